"""Which slices a change of a tenant, a namespace or a Subnamespace concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from tenantry.api.contribution import REGISTER
from tenantry.api.kubernetes import Namespace
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.slice import Sharing, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.slices.gather import BY_SLICE, SliceInputs, slice_of_claim
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Watch
from tenantry.engine.observed import Observed


class ClaimIndex:
    """The tenants and namespaces of the claims that a controller has reconciled.

    Args:
        index: The name of the index that finds nodes and namespaces by slice.
        of_label: Returns the slices that a namespace's labels name.
        sharing: The claims that the controller reconciles; None for all.
    """

    def __init__(
        self, index: str, of_label: Callable[[Observed], Iterable[str]], sharing: Sharing | None = None
    ) -> None:
        self._index = index
        self._of_label = of_label
        self._sharing = sharing
        # Slice to the tenant and the namespace of its claim.
        self._claims: dict[str, tuple[str, str]] = {}

    def __iter__(self) -> Iterator[str]:
        """Return the names of all their slices, as they are now."""
        return iter(list(self._claims))

    def note(self, inputs: SliceInputs) -> list[str]:
        """Remember the tenant and the namespace of a slice's claim, and return the slices that a new one concerns.

        A namespace above may have a claim whose nodes the namespaces below used until now.
        """
        if inputs.claim is None or inputs.tenant is None:
            return []
        found = (inputs.tenant.metadata.name, inputs.claim.metadata.namespace)
        is_new = self._claims.get(inputs.name) != found
        self._claims[inputs.name] = found
        return [each for each in self.of_tenants([found[0]]) if each != inputs.name] if is_new else []

    def forget(self, name: str) -> None:
        """Forget a slice."""
        self._claims.pop(name, None)

    def claimed_in(self, namespaces: Iterable[str]) -> list[str]:
        """Return the slices whose claims are in these namespaces."""
        wanted = set(namespaces)
        return [key for key, (_, place) in self._claims.items() if place in wanted]

    def of_tenants(self, tenants: Iterable[str]) -> list[str]:
        """Return the slices of these tenants."""
        wanted = set(tenants)
        return [key for key, (tenant, _) in self._claims.items() if tenant in wanted]

    def watches(
        self, of_node: Callable[[Change[Node]], Iterable[str]], slices_of: Callable[[Node], Iterable[str]]
    ) -> list[Watch]:
        """Return what wakes a controller of slices.

        Args:
            of_node: Returns the slices that a change of a node concerns.
            slices_of: Returns the slices of a node, for an index.
        """
        namespaces = watched.watch(Namespace.resource, self.by_namespace)
        indexes = {**(namespaces.indexes or {}), self._index: self._of_label}
        return [
            watched.slice_claims(self.by_claim, {BY_SLICE: slice_of_claim}),
            watched.slices(watched.own_key),
            watched.nodes(of_node, {self._index: slices_of}),
            watched.node_handovers(_slice_of_handover),
            msgspec.structs.replace(namespaces, indexes=indexes),
            watched.subnamespaces(self.by_subnamespace),
            watched.tenants(self.by_tenant),
            watched.defaults(lambda _: list(self)),
            watched.watch(PolicyParameters.resource, self.by_register),
        ]

    # -- keys of changes --------------------------------------------------------------------------

    def by_claim(self, change: Change[SliceClaim]) -> Iterable[str]:
        """Return the slice of a claim, and those beside and above it: another of them may have a namespace now."""
        found = [each for each in (change.before, change.after) if each is not None]
        ours = (each for each in found if self._sharing is None or each.spec.sharing is self._sharing)
        own = {name for each in ours for name in slice_of_claim(each)}
        tenants = {self._claims[name][0] for name in own if name in self._claims}
        return own | {*self.claimed_in({each.metadata.namespace for each in found}), *self.of_tenants(tenants)}

    def by_namespace(self, change: Change[Observed]) -> Iterable[str]:
        """Return the slices that a change of a namespace's labels concerns."""
        before, after = change.before, change.after
        value = after or before
        if value is None or (before is not None and after is not None and before.labels == after.labels):
            return ()
        tenants = {name for each in (before, after) if each is not None for name in watched.tenant_of(each)}
        return [*self.of_tenants(tenants), *self._of_label(value)]

    def by_subnamespace(self, change: Change[Subnamespace]) -> Iterable[str]:
        """Return the slices that a Subnamespace's use of another claim concerns."""
        before, after = change.before, change.after
        value = after or before
        if value is None or (before is not None and after is not None and _use(before) == _use(after)):
            return ()
        return self.claimed_in([value.metadata.namespace])

    def by_tenant(self, change: Change[Tenant]) -> Iterable[str]:
        """Return the slices that a change of a Tenant's spec concerns."""
        before, after = change.before, change.after
        value = after or before
        if value is None or (before is not None and after is not None and before.spec == after.spec):
            return ()
        return self.of_tenants([value.metadata.name])

    def by_register(self, change: Change[Observed]) -> Iterable[str]:
        """Return all slices if the record of a contributed node has changed, which says what the node adds."""
        before, after = change.before, change.after
        found = after or before
        if found is None or found.name != REGISTER or (before and after and before.annotations == after.annotations):
            return ()
        return list(self)


def _slice_of_handover(change: Change[NodeHandover]) -> Iterable[str]:
    """Return the slice of a handover that comes or goes: its other changes are news to no slice."""
    before, after = change.before, change.after
    value = after or before
    return () if value is None or (before is not None and after is not None) else [value.spec.slice]


def _use(found: Subnamespace) -> object:
    return found.spec.slice_claim_name, found.status.namespace

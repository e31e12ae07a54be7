"""What decides about a Subnamespace's child, read from the caches at one moment."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import (
    LimitRange,
    Namespace,
    NamespaceRole,
    NetworkPolicy,
    ResourceQuota,
    RoleBinding,
)
from tenantry.api.marks import (
    INHERITED_FROM,
    KIND,
    KIND_CORE,
    KIND_SUBTENANT,
    PARENT,
    SUBNAMESPACE_UID,
    TENANT,
    TENANT_UID,
    ZONE,
)
from tenantry.api.model import Resource, object_key
from tenantry.api.owner import Owner
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.rules import Rules
from tenantry.api.subnamespace import InheritanceMode, Mode, Scope, Subnamespace, ZoneChoice
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane, tenantnamespace
from tenantry.controllers.inheritance.status import Inherited
from tenantry.controllers.lineage import DEEPEST, subnamespace_key, subnamespace_of, subnamespaces_above
from tenantry.controllers.network import ALONE, ClusterAddresses
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.controllers.subnamespace.treelimit import TreeLimit
from tenantry.controllers.tenancyrules import rules_of_all
from tenantry.controllers.watched import BY_ADOPTION, BY_BINDING, BY_NAMESPACE, BY_TENANT, is_rules, tenant_of
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Lookup
from tenantry.world import objectcounts
from tenantry.world.leases import ENDLESS, LeaseState, lease, with_lease
from tenantry.world.naming import child_name
from tenantry.world.objectcounts import ObjectLimits
from tenantry.world.sandbox import NO_SANDBOX, Sandbox

CHILD_KINDS = (
    Namespace,
    ResourceQuota,
    LimitRange,
    NetworkPolicy,
    TenancyRules,
    PolicyParameters,
    NamespaceRole,
    RoleBinding,
)
"""The kinds that this controller creates for a child; the quota controller creates the ResourceQuota of its share."""


class SubnamespaceCaches(msgspec.Struct, frozen=True):
    """The caches that a Subnamespace is gathered from.

    Args:
        tenants: All tenants.
        subnamespaces: All Subnamespaces.
        observed: The caches of the other kinds.
        wanted: Names of namespaces that Tenantry does not manage, and the key of the Subnamespace that waits for each.
        defaults: The TenancyDefaults; None if the cluster does not serve them.
        sandbox: The cluster's sandbox.
        limits: The limits of all tenants.
        tree_limit: How many namespaces each tenant has.
        control_planes: All VirtualControlPlanes; None if they are not watched.
    """

    tenants: Cache[Tenant]
    subnamespaces: Cache[Subnamespace]
    observed: dict[Resource, Cache[Observed]]
    wanted: dict[str, str]
    tree_limit: TreeLimit
    defaults: Cache[TenancyDefaults] | None = None
    sandbox: Sandbox = NO_SANDBOX
    limits: ObjectLimits = objectcounts.DEFAULT
    control_planes: Cache[VirtualControlPlane] | None = None

    @property
    def namespaces(self) -> Cache[Observed]:
        """Return the namespaces of the cluster."""
        return self.observed[Namespace.resource]


class SubnamespaceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides about a Subnamespace's child and status.

    Args:
        subnamespace: The Subnamespace.
        cluster_uid: The uid of the namespace kube-system.
        tenant: The tenant of its namespace; None if the namespace is in no tree.
        parent: The namespace that it is in.
        ancestors: The names of the namespaces above the child, the core namespace first and the parent last.
        owners: The child's owners: its own, and the parent's if they are inherited.
        owners_above: For a child that does not exist yet: the owners of the namespaces above, up to the next
            Subtenant's.
        bound: The namespace that is bound to it by uid.
        namespace: The name of the child's namespace, existing or not.
        adoptee: The namespace that `spec.adopt` names.
        restored: A namespace whose labels name this Subnamespace, and a uid that no Subnamespace has: it comes from a
            backup, or belonged to an earlier Subnamespace of this name. None for none, or if there is a bound one.
        adopted_from: The Subnamespace that it is to be taken from.
        adopted_by: The Subnamespace that takes this one's namespace.
        zone: The child's network zone.
        around: The addresses of nodes and DNS.
        children: The Subnamespaces in the child namespace.
        count: How many namespaces the tenant has below its core namespace.
        bindings: Every RoleBinding of the child namespace.
        verdict: The verdict of the quota controller; None before the first one.
        lookup: The observed objects, by kind and key.
        above: The Subnamespaces from the top of the tree down to this one.
        defaults: The rules of all tenants.
        sandbox: The cluster's sandbox.
        limits: The limits of all tenants.
        made: What Tenantry created in the child.
        plane: The VirtualControlPlane in the child that has the name of the Subnamespace; None if there is none.
        lease: The state of its lease.
        lease_problem: Why `spec.expiresAt` has no meaning; "" if it has.
        inherited: What the child inherits, as it was brought; None until it is. People are admitted after it.
    """

    subnamespace: Subnamespace
    cluster_uid: str
    tenant: Tenant | None
    parent: Observed | None
    ancestors: tuple[str, ...]
    owners: tuple[Owner, ...]
    owners_above: frozenset[Owner]
    bound: Observed | None
    namespace: str
    adoptee: Observed | None
    restored: Observed | None = None
    adopted_from: Subnamespace | None
    adopted_by: Subnamespace | None
    zone: str
    around: ClusterAddresses
    children: list[Subnamespace]
    count: int
    bindings: list[Observed]
    verdict: ShareVerdict | None
    lookup: Lookup
    above: tuple[Subnamespace, ...] = ()
    defaults: Rules = Rules()
    sandbox: Sandbox = NO_SANDBOX
    limits: ObjectLimits = objectcounts.DEFAULT
    made: tuple[tuple[Resource, Observed], ...] = ()
    plane: VirtualControlPlane | None = None
    lease: LeaseState = ENDLESS
    lease_problem: str = ""
    inherited: Inherited | None = None

    @property
    def is_limited(self) -> bool:
        """Return whether the tenant has a quota, so that the child needs a share of it."""
        return self.tenant is not None and bool(self.tenant.spec.quota.hard)

    @property
    def set_above(self) -> tuple[object, ...]:
        """Return what the child follows of the tenant, the Subnamespaces above and TenancyDefaults."""
        tenant = self.tenant
        whole = (tenant.metadata.generation, tenant.spec.suspended) if tenant is not None else None
        above = tuple((each.metadata.uid, each.metadata.generation) for each in self.above[:-1])
        moves = controlplane.is_converting(self.subnamespace)
        return whole, above, moves, self.zone, self.defaults, self.sandbox, self.limits, self.around

    @property
    def is_judged(self) -> bool:
        """Return whether the quota controller has decided about the spec as it is."""
        return self.verdict is not None and self.verdict.generation >= self.subnamespace.metadata.generation

    @property
    def awaits_verdict(self) -> bool:
        """Return whether the child must not be created yet, because it may get no share of the quota."""
        return self.is_limited and self.bound is None and not self.is_judged

    @property
    def is_in_force(self) -> bool:
        """Return whether the API server enforces the child's share of the quota."""
        return not self.is_limited or (self.verdict is not None and self.verdict.in_force)

    @property
    def is_early(self) -> bool:
        """Return whether the parent, a child itself, still lacks what it inherits."""
        above = self.above[-2] if len(self.above) > 1 else None
        if above is None or above.metadata.deletion_timestamp or self.subnamespace.status.namespace:
            return False
        return above.status.namespace != self.subnamespace.metadata.namespace


def gather(
    subnamespace: Subnamespace,
    caches: SubnamespaceCaches,
    verdict: ShareVerdict | None,
    *,
    cluster_uid: str,
    now: dt.datetime,
    around: ClusterAddresses = ALONE,
) -> SubnamespaceInputs:
    """Read the caches.

    Args:
        subnamespace: The Subnamespace.
        caches: The caches.
        verdict: The verdict of the quota controller.
        cluster_uid: The uid of the namespace kube-system.
        now: The time, at which the tenant's lease may have ended.
        around: The addresses of nodes and DNS.

    Raises:
        InputError: The end of the tenant's lease is not a time.
    """
    meta, spec = subnamespace.metadata, subnamespace.spec
    parent = caches.namespaces.get(meta.namespace)
    tenant = tenant_above(parent, caches.tenants)
    tenant = with_lease(tenant, now) if tenant is not None else None
    # By uid: a namespace of the computed name may belong to an earlier Subnamespace.
    bound = next(iter(caches.namespaces.by_index(BY_BINDING, meta.uid)), None)
    if bound is not None:
        namespace = bound.name
    elif spec.adopt.namespace or spec.namespace_name:
        namespace = spec.adopt.namespace or spec.namespace_name
    else:
        # A federated child has the same name in every cluster: the uid of its home cluster is part of the hash.
        home = cluster_uid if spec.scope is Scope.FEDERATED else ""
        namespace = child_name(tenant.metadata.uid if tenant is not None else "", meta.namespace, meta.name, home)

    subnamespace = controlplane.effective(subnamespace, bound)

    def lookup(resource: Resource, key: str) -> Observed | None:
        return caches.observed[resource].get(key)

    # A lease that cannot be read must not stop the reconcile: the status has to report it.
    old = spec.adopt.parent
    term, lease_problem = ENDLESS, ""
    try:
        term = lease(spec.expires_at, now)
    except InputError as error:
        lease_problem = str(error)
    ancestors, above = lineage(caches.namespaces, meta.namespace), _above(subnamespace, caches)
    highest = caches.namespaces.get(above[0].metadata.namespace)
    is_in_core = highest is not None and highest.labels.get(KIND) == KIND_CORE
    # A chain of Subnamespaces that does not reach the core namespace inherits nothing from the tenant.
    top = tenant.spec.owners if tenant is not None and is_in_core else ()
    inputs = SubnamespaceInputs(
        subnamespace=subnamespace,
        cluster_uid=cluster_uid,
        tenant=tenant,
        parent=parent,
        ancestors=ancestors,
        owners=effective_owners(above, top),
        owners_above=owners_above(above, top) if bound is None else frozenset(),
        bound=bound,
        namespace=namespace,
        adoptee=caches.namespaces.get(spec.adopt.namespace) if spec.adopt.namespace else None,
        restored=_restored(subnamespace, tenant, caches) if bound is None and not spec.adopt.namespace else None,
        adopted_from=caches.subnamespaces.get(object_key(old, meta.name)) if old else None,
        adopted_by=next(iter(caches.subnamespaces.by_index(BY_ADOPTION, subnamespace.key)), None),
        zone=meta.uid if begins_zone(subnamespace) else zone_of(caches.namespaces, caches.subnamespaces, ancestors),
        around=around,
        children=caches.subnamespaces.by_index(BY_NAMESPACE, namespace) if bound is not None else [],
        count=caches.tree_limit.count(tenant.metadata.name, caches.namespaces) if tenant is not None else 0,
        bindings=caches.observed[RoleBinding.resource].by_index(BY_NAMESPACE, namespace) if bound is not None else [],
        verdict=verdict,
        lookup=lookup,
        above=above,
        defaults=rules_of_all(caches.defaults.get(DEFAULTS) if caches.defaults is not None else None),
        sandbox=caches.sandbox,
        limits=caches.limits,
        lease=term,
        lease_problem=lease_problem,
        plane=caches.control_planes.get(object_key(namespace, meta.name))
        if caches.control_planes is not None and bound is not None
        else None,
    )
    return msgspec.structs.replace(inputs, made=tuple(made_inside(inputs, caches.observed)))


def made_inside(
    inputs: SubnamespaceInputs, observed: Mapping[Resource, Cache[Observed]]
) -> list[tuple[Resource, Observed]]:
    """Return the objects in a child that have our names, except for its share of the quota.

    Args:
        inputs: The inputs so far.
        observed: The caches of `CHILD_KINDS`.
    """
    if inputs.bound is None:
        return []
    return [
        (kind.resource, found)
        for kind in CHILD_KINDS
        if kind.resource.namespaced
        if kind.resource in observed
        for found in observed[kind.resource].by_index(BY_NAMESPACE, inputs.namespace)
        # Copies from the parent belong to the inheritance controller, whatever their names are.
        if tenantnamespace.has_our_name(found)
        and (tenant_of(found) or is_rules(found))
        and INHERITED_FROM not in found.labels
        if kind is not ResourceQuota or found.name == tenantnamespace.COUNTS
    ]


def _above(subnamespace: Subnamespace, caches: SubnamespaceCaches) -> tuple[Subnamespace, ...]:
    """Return the Subnamespaces from the top of the tree down to one."""
    return (
        *subnamespaces_above(subnamespace.metadata.namespace, caches.namespaces, caches.subnamespaces),
        subnamespace,
    )


def _restored(subnamespace: Subnamespace, tenant: Tenant | None, caches: SubnamespaceCaches) -> Observed | None:
    """Return a namespace that was the child of a Subnamespace of this key and another uid; see `restored`."""
    if tenant is None:
        return None
    tree = caches.namespaces.by_index(BY_TENANT, tenant.metadata.name)
    found = [each for each in tree if subnamespace_key(each) == subnamespace.key and not each.deleting]
    if not found:
        return None
    uids = {each.metadata.uid for each in caches.subnamespaces}
    return next((each for each in found if each.labels.get(SUBNAMESPACE_UID, "") not in uids), None)


def tenant_above(namespace: Observed | None, tenants: Cache[Tenant]) -> Tenant | None:
    """Return the tenant that a namespace belongs to: by uid, so that a later one of the same name is another."""
    if namespace is None:
        return None
    tenant = tenants.get(namespace.labels.get(TENANT, ""))
    # A label with the name alone may be left from an earlier tenant.
    if tenant is None or tenant.metadata.uid != namespace.labels.get(TENANT_UID):
        return None
    return tenant


def lineage(namespaces: Cache[Observed], name: str) -> tuple[str, ...]:
    """Return the names from the core namespace down to this one; () if the chain of parents does not end there."""
    names = [name]
    while len(names) <= DEEPEST:
        found = namespaces.get(names[-1])
        if found is None:
            return ()
        if found.labels.get(KIND) == KIND_CORE:
            return tuple(reversed(names))
        names.append(found.labels.get(PARENT, ""))
    return ()


def begins_zone(subnamespace: Subnamespace) -> bool:
    """Return whether a child has a network zone of its own."""
    return subnamespace.spec.mode is Mode.SUBTENANT or subnamespace.spec.isolation.zone is ZoneChoice.OWN


def zone_of(namespaces: Cache[Observed], subnamespaces: Cache[Subnamespace], ancestors: Sequence[str]) -> str:
    """Return the network zone of the last of the namespaces from the core namespace down; "" if there are none.

    The zone follows from the Subnamespaces of the namespaces above: their zone labels may be about to change. The
    label counts only for a namespace whose Subnamespace is gone.
    """
    for above in reversed(ancestors):
        found = namespaces.get(above)
        if found is None:
            continue
        if found.labels.get(KIND) == KIND_CORE:
            return found.labels.get(TENANT_UID, "")
        uid, its = found.labels.get(SUBNAMESPACE_UID, ""), subnamespace_of(found, subnamespaces)
        is_own = begins_zone(its) if its is not None else found.labels.get(ZONE) == uid
        if is_own or found.labels.get(KIND) == KIND_SUBTENANT:
            return uid
    return ""


def effective_owners(above: Sequence[Subnamespace], top: Sequence[Owner]) -> tuple[Owner, ...]:
    """Return a child's owners: its own, then those of each parent from which it inherits role bindings.

    Args:
        above: The Subnamespaces from the top of the tree down to the child's.
        top: The tenant's owners, if the topmost Subnamespace is in the core namespace.
    """
    owners: list[Owner] = []
    for each in reversed(above):
        owners += each.spec.owners
        if not inherits_people(each):
            return tuple(dict.fromkeys(owners))
    return tuple(dict.fromkeys([*owners, *top]))


def owners_above(above: Sequence[Subnamespace], top: Sequence[Owner]) -> frozenset[Owner]:
    """Return the owners of every namespace above a child, up to and including the first that is a Subtenant's.

    The owners above a Subtenant do not see into it, so they do not see what is below it either.

    Args:
        above: The Subnamespaces from the top of the tree down to the child's.
        top: As in `effective_owners`.
    """
    owners: set[Owner] = set()
    for each in reversed(above[:-1]):
        owners.update(each.spec.owners)
        if each.spec.mode is Mode.SUBTENANT:
            return frozenset(owners)
    return frozenset({*owners, *top})


def inherits_people(subnamespace: Subnamespace) -> bool:
    """Return whether the child inherits its parent's owners."""
    spec = subnamespace.spec
    return spec.mode is Mode.WORKSPACE and spec.inheritance.role_bindings is not InheritanceMode.NONE

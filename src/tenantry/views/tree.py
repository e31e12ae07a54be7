"""Tenants and their namespaces as trees, with the use of each namespace's share of the quota."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.model import Condition, ConditionStatus
from tenantry.api.owner import Owner
from tenantry.api.subnamespace import Subnamespace, SubnamespaceQuota
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import ClaimShareStatus
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.engine.conditions import find
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import all_of
from tenantry.views.objects import KeyUsage, NamespaceWithPhase
from tenantry.views.permitted import list_permitted
from tenantry.views.snapshot import Snapshot, read_below
from tenantry.views.snapshot import read as read_snapshot


class ConditionView(msgspec.Struct, frozen=True, kw_only=True):
    """A condition without its times."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


class PlaneView(msgspec.Struct, frozen=True, kw_only=True):
    """A VirtualControlPlane; one that sleeps has no share of the quota."""

    name: str
    phase: PlanePhase


class NamespaceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A namespace of a tenant, and the namespaces below it.

    Args:
        name: "" for a Subnamespace that has no namespace yet.
        phase: Active or Terminating; "" if there is no namespace.
        kind: core, workspace or subtenant.
        subnamespace: The name of its Subnamespace; "" for the core namespace.
        expires_at: When the Subnamespace expires; "" for never.
        quota: The use of its own share.
        claims: What SliceClaims and VirtualControlPlanes inside have of the tenant's quota; empty if the user may not
            read how it is divided.
        planes: The VirtualControlPlanes inside; empty if the user may not list them.
        bound: Its Subnamespace exists; always true of the core namespace.
        is_closed: The user may not read it; its quota is the total of the namespaces below.
        control_plane: The VirtualControlPlane that its owners work with; "" for none.
        conditions: Of the Subnamespace; None if the Subnamespace was not read.
        children: The namespaces below it.
    """

    name: str
    phase: str
    kind: str = marks.KIND_CORE
    subnamespace: str = ""
    expires_at: str = ""
    bound: bool = True
    is_closed: bool = False
    control_plane: str = ""
    quota: tuple[KeyUsage, ...] = ()
    claims: tuple[ClaimShareStatus, ...] = ()
    planes: tuple[PlaneView, ...] = ()
    conditions: tuple[ConditionView, ...] | None = ()
    children: tuple[NamespaceView, ...] = ()


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant with its namespaces."""

    name: str
    ready: bool
    suspended: bool
    network: str
    owners: tuple[str, ...]
    conditions: tuple[ConditionView, ...] = ()
    namespaces: tuple[NamespaceView, ...] = ()


async def read(
    reader: ObjectReader, names: Sequence[str], start: str, *, only: bool
) -> tuple[list[TenantView], NamespaceView | None]:
    """Return the trees of tenants, or the tree below a namespace.

    Args:
        reader: Reads with the user's rights.
        names: The tenants; () for all.
        start: The namespace to begin at if the user may not list tenants; "" for none.
        only: Begin at the namespace in any case.

    Raises:
        NotFound: There is no such tenant or namespace.
        Forbidden: The user may neither list tenants nor read the namespace.
    """
    if not only:
        try:
            found = await read_snapshot(reader, names)
            return tenants(msgspec.structs.replace(found, control_planes=await _planes(reader))), None
        except Forbidden:
            if not start:
                raise
    found = await read_below(reader, start)
    listed = await all_of(_planes(reader, each.metadata.name) for each in found.namespaces)
    planes = [plane for each in listed for plane in each]
    return [], below(msgspec.structs.replace(found, control_planes=planes), start)


async def _planes(reader: ObjectReader, namespace: str = "") -> list[VirtualControlPlane]:
    """Return the control planes that the user may list, in one namespace or in all."""
    try:
        return await list_permitted(reader, VirtualControlPlane, namespace=namespace) or []
    except NotFound:
        return []  # an earlier version of Tenantry does not have the kind


def tenants(snapshot: Snapshot) -> list[TenantView]:
    """Return the trees of the snapshot's tenants."""
    by_tenant: dict[str, list[NamespaceWithPhase]] = defaultdict(list)
    for namespace in snapshot.namespaces:
        # By uid: an earlier tenant of the same name may have left a namespace.
        by_tenant[namespace.metadata.labels.get(marks.TENANT_UID, "")].append(namespace)
    quotas, subnamespaces, planes = _by_namespace(snapshot)
    claims = {share.namespace: share.claims for each in snapshot.tenant_quotas for share in each.status.tree}
    return [
        of_tenant(each, _Tree(by_tenant[each.metadata.uid], quotas, subnamespaces, planes, claims).roots())
        for each in snapshot.tenants
    ]


def below(snapshot: Snapshot, start: str) -> NamespaceView:
    """Return the tree that begins at a namespace, from what `snapshot.read_below` could read."""
    return _Tree(snapshot.namespaces, *_by_namespace(snapshot), is_partial=True).below(start)


def _by_namespace(
    snapshot: Snapshot,
) -> tuple[dict[str, tuple[KeyUsage, ...]], dict[str, list[Subnamespace]], dict[str, list[PlaneView]]]:
    quotas = {each.metadata.namespace: each.usage() for each in snapshot.quotas}
    subnamespaces: dict[str, list[Subnamespace]] = defaultdict(list)
    for each in snapshot.subnamespaces:
        subnamespaces[each.metadata.namespace].append(each)
    planes: dict[str, list[PlaneView]] = defaultdict(list)
    for plane in sorted(snapshot.control_planes, key=lambda plane: plane.key):
        planes[plane.metadata.namespace].append(PlaneView(name=plane.metadata.name, phase=plane.status.phase))
    return quotas, subnamespaces, planes


def of_tenant(tenant: Tenant, namespaces: tuple[NamespaceView, ...]) -> TenantView:
    """Return the tree of a tenant from the trees of its namespaces."""
    # Conditions about an older spec do not make a tenant ready.
    is_current = tenant.status.observed_generation >= tenant.metadata.generation
    ready = find(tenant.status.conditions, reasons.READY)
    return TenantView(
        name=tenant.metadata.name,
        ready=is_current and ready is not None and ready.status is ConditionStatus.TRUE,
        suspended=tenant.spec.suspended,
        network=tenant.spec.isolation.network,
        owners=tuple(map(owner_text, tenant.spec.owners)),
        conditions=_conditions(tenant.status.conditions),
        namespaces=namespaces,
    )


class _Tree:
    """Builds trees from namespaces by their labels.

    Args:
        namespaces: Of one tenant.
        quotas: The use of each namespace's share.
        subnamespaces: By their namespace.
        planes: The control planes, by their namespace.
        claims: The shares of claims, by namespace.
        is_partial: The user may not read all of the tree: a namespace that is missing is closed to the user.
    """

    def __init__(
        self,
        namespaces: Iterable[NamespaceWithPhase],
        quotas: dict[str, tuple[KeyUsage, ...]],
        subnamespaces: dict[str, list[Subnamespace]],
        planes: Mapping[str, Sequence[PlaneView]],
        claims: Mapping[str, tuple[ClaimShareStatus, ...]] = {},
        *,
        is_partial: bool = False,
    ) -> None:
        self._quotas = quotas
        self._subnamespaces = subnamespaces
        self._planes = planes
        self._claims = claims
        self._is_partial = is_partial
        # Each namespace is drawn once, also if the parent labels form a cycle.
        self._left = {each.metadata.name: each for each in sorted(namespaces, key=lambda each: each.key)}
        self._below: dict[str, list[NamespaceWithPhase]] = defaultdict(list)
        for each in self._left.values():
            self._below[each.metadata.labels.get(marks.PARENT, "")].append(each)

    def roots(self) -> tuple[NamespaceView, ...]:
        """Return the core namespace with the namespaces below it, and every namespace without a place in the tree."""
        found = [self._view(each, None) for each in self._below[""]]
        while self._left:
            # The parent is gone, or the labels form a cycle.
            found.append(self.below(next(iter(self._left))))
        return tuple(found)

    def below(self, name: str) -> NamespaceView:
        """Return the tree that begins at a namespace."""
        return self._view(self._left[name], None)

    def _view(self, namespace: NamespaceWithPhase, bound: Subnamespace | None) -> NamespaceView:
        meta = namespace.metadata
        self._left.pop(meta.name, None)
        waiting = {each.metadata.uid: each for each in self._subnamespaces.get(meta.name, ())}
        children: list[NamespaceView] = []
        for each in self._below[meta.name]:
            uid = each.metadata.labels.get(marks.SUBNAMESPACE_UID, "")
            if each.metadata.name in self._left:
                children.append(self._view(each, waiting.pop(uid, None)))
        children += map(self._unread, waiting.values())
        subnamespace = meta.labels.get(marks.SUBNAMESPACE, "")
        return NamespaceView(
            name=meta.name,
            phase=namespace.status.phase,
            kind=meta.labels.get(marks.KIND, marks.KIND_CORE),
            subnamespace=subnamespace,
            # A user who may not read the parent sees no Subnamespace: that does not mean that it is gone.
            bound=bound is not None or not subnamespace or self._is_partial,
            expires_at=bound.spec.expires_at if bound is not None else "",
            control_plane=meta.labels.get(marks.CONTROL_PLANE, ""),
            quota=self._quotas.get(meta.name, ()),
            claims=self._claims.get(meta.name, ()),
            planes=tuple(self._planes.get(meta.name, ())),
            conditions=_conditions(bound.status.conditions) if bound is not None else None if self._is_partial else (),
            children=tuple(sorted(children, key=lambda child: child.subnamespace)),
        )

    def _unread(self, value: Subnamespace) -> NamespaceView:
        """Return the view of a Subnamespace whose namespace is not there, or is closed to the user."""
        # The parent of a Subtenant sees only the totals in the status of the Subnamespace.
        name = value.status.namespace if self._is_partial else ""
        total = value.status.quota if self._is_partial else SubnamespaceQuota()
        return NamespaceView(
            name=name,
            phase="",
            kind=value.spec.mode.value.lower(),
            subnamespace=value.metadata.name,
            expires_at=value.spec.expires_at,
            is_closed=bool(name),
            quota=tuple(KeyUsage(key, total.used.get(key, "0"), hard) for key, hard in sorted(total.assigned.items())),
            conditions=_conditions(value.status.conditions),
        )


def _conditions(given: Iterable[Condition]) -> tuple[ConditionView, ...]:
    return tuple(
        ConditionView(type=each.type, status=each.status, reason=each.reason, message=each.message) for each in given
    )


def owner_text(owner: Owner) -> str:
    """Return an owner in the form of `--owner`."""
    name = f"{owner.namespace}/{owner.name}" if owner.namespace else owner.name
    return f"{owner.kind}:{name}"

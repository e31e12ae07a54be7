"""The control plane of a namespace whose owners work with one of their own (H01): pure.

isolation.controlPlane: Virtual
─► label of the namespace     policies keep the VirtualControlPlane of this name
─► Role                       what the owners may do on the host; without the label, it is a ClusterRole
─► VirtualControlPlane        created once; its spec is not the tenant's, so no field of it is brought back
─► its Ready                  condition ControlPlaneReady, and Ready of the Tenant or Subnamespace
"""

from __future__ import annotations

from typing import TypeVar, cast

from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import UNDONE_BY_SPEC, Conversion, ConversionStep
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import AlreadyExists, NotFound
from tenantry.api.kinds import KINDS
from tenantry.api.kubernetes import NamespaceRole, RoleRule
from tenantry.api.model import READ, KindAccess, object_key
from tenantry.api.offloading import NamespaceOffloading
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.lineage import subnamespace_key
from tenantry.controllers.tenantcluster import has_cluster
from tenantry.controllers.tenantnamespace import OWNER_BINDING, WAVE_LIMITS, WAVE_PLANE, TenantNamespace, meta
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.conditions import Wanted, find, is_true
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Child, DirectWrite

K = TypeVar("K", Tenant, Subnamespace)

_READ_ONLY = (VirtualControlPlane, DedicatedCluster, NamespaceOffloading)
"""Kinds that owners of such a namespace only read: the pods of the host are not theirs to place."""

_CLUSTER_RULES = (
    RoleRule(
        api_groups=(marks.GROUP,),
        resources=(DedicatedCluster.resource.plural, f"{DedicatedCluster.resource.plural}/scale"),
        verbs=("get", "update", "patch"),
    ),
)

_LOOKED_AT = ("pods", "events", "resourcequotas", "limitranges")
"""What owners read in the namespace: their pods as the host runs them, and what limits these."""


def name_of(owner: Tenant | Subnamespace) -> str:
    """Return the name of the VirtualControlPlane that a Tenant or Subnamespace has; "" for none.

    That of a cluster of its own has the name of the cluster.
    """
    is_shared = owner.spec.isolation.control_plane is ControlPlaneChoice.SHARED
    return "" if is_shared else owner.metadata.name


def namespace_of(owner: Tenant | Subnamespace) -> str:
    """Return the name of the namespace of a Tenant or Subnamespace; "" while a Subnamespace has none."""
    return owner.metadata.name if isinstance(owner, Tenant) else owner.status.namespace


def plane_key(owner: Tenant | Subnamespace) -> str:
    """Return the key of the VirtualControlPlane that a Tenant or Subnamespace has, or would have."""
    return object_key(namespace_of(owner), owner.metadata.name)


def waits(owner: Tenant | Subnamespace, namespace: Observed | None) -> bool:
    """Return whether a Tenant or Subnamespace is to get a control plane later, and its conversion has not begun.

    Args:
        owner: The Tenant or Subnamespace.
        namespace: Its namespace as it is.
    """
    if owner.spec.isolation.control_plane is not ControlPlaneChoice.VIRTUAL or not _is_of(namespace, owner):
        return False
    journal = _journal(owner)
    if journal is not None and journal.to is ControlPlaneChoice.SHARED:
        # Until the labels of its former control plane are gone, it does not have one, either.
        return journal.step is ConversionStep.CONVERTED
    if journal is not None and journal.step is not ConversionStep.REFUSED:
        return False
    return not _has_plane(owner, namespace)


def leaves(owner: Tenant | Subnamespace, namespace: Observed | None) -> bool:
    """Return whether an owner is to return to the API server of the cluster, and still has its control plane.

    Args:
        owner: The Tenant or Subnamespace.
        namespace: Its namespace as it is.
    """
    if owner.spec.isolation.control_plane is not ControlPlaneChoice.SHARED or not _is_of(namespace, owner):
        return False
    journal = _journal(owner)
    if journal is None:
        return _has_plane(owner, namespace)
    if journal.to is ControlPlaneChoice.SHARED:
        return journal.step is not ConversionStep.CONVERTED
    return journal.step not in UNDONE_BY_SPEC


def _is_of(namespace: Observed | None, owner: Tenant | Subnamespace) -> bool:
    """Return whether a namespace is that of its owner; a namespace that a Subnamespace is about to adopt is not yet."""
    mark = marks.TENANT_UID if isinstance(owner, Tenant) else marks.SUBNAMESPACE_UID
    if namespace is None or namespace.name != namespace_of(owner):
        return False
    return namespace.labels.get(mark) == owner.metadata.uid


def _has_plane(owner: Tenant | Subnamespace, namespace: Observed | None) -> bool:
    """Return whether it has a control plane: a label that was removed or set by hand makes no conversion."""
    labels = namespace.labels if namespace is not None else {}
    return marks.CONTROL_PLANE in labels or find(owner.status.conditions, reasons.CONTROL_PLANE_READY) is not None


def is_forgotten(owner: Tenant | Subnamespace, namespace: Observed | None) -> bool:
    """Return whether nothing shows any more that a control plane was about to be created.

    Args:
        owner: The Tenant or Subnamespace.
        namespace: Its namespace as it is.
    """
    return not _has_plane(owner, namespace)


def _journal(owner: Tenant | Subnamespace) -> Conversion | None:
    found = owner.status.conversion
    return found if isinstance(found, Conversion) else None


def effective(owner: K, namespace: Observed | None) -> K:
    """Return a Tenant or Subnamespace as it is to be kept now: as it was, until its conversion begins, or has ended.

    Args:
        owner: The Tenant or Subnamespace.
        namespace: As for `waits`.
    """
    if waits(owner, namespace):
        kept = ControlPlaneChoice.SHARED
    elif leaves(owner, namespace):
        kept = ControlPlaneChoice.VIRTUAL
    else:
        return owner
    return replace(owner, spec=replace(owner.spec, isolation=replace(owner.spec.isolation, control_plane=kept)))


def is_converting(owner: Tenant | Subnamespace) -> bool:
    """Return whether objects of an owner move, so that its namespace is closed."""
    journal = _journal(owner)
    return journal is not None and journal.step is ConversionStep.MOVING


def is_handed_over(owner: Tenant | Subnamespace) -> bool:
    """Return whether objects of an owner move out of its control plane, so that no mirror follows it any more."""
    journal = _journal(owner)
    return journal is not None and is_converting(owner) and journal.to is ControlPlaneChoice.SHARED


def is_under_way(owner: Tenant | Subnamespace) -> bool:
    """Return whether a conversion needs the control plane of an owner: it starts, or objects move."""
    journal = _journal(owner)
    return journal is not None and journal.step in (ConversionStep.PREPARING, ConversionStep.MOVING)


def is_entering(owner: Tenant | Subnamespace) -> bool:
    """Return whether a control plane is prepared for objects of the host, or those move: owners do not use it yet."""
    journal = _journal(owner)
    return journal is not None and is_under_way(owner) and journal.to is ControlPlaneChoice.VIRTUAL


def labels(owner: Tenant | Subnamespace) -> dict[str, str]:
    """Return the labels of the namespace: which control plane it has, and whether it is closed."""
    name = name_of(owner)
    closed = {marks.CONVERTING: "true"} if is_converting(owner) else {}
    return {**({marks.CONTROL_PLANE: name} if name else {}), **closed}


def children(namespace: TenantNamespace) -> list[Child]:
    """Return what owners need on the host; nothing without a control plane."""
    if not namespace.control_plane:
        return []
    role = NamespaceRole(metadata=meta(namespace, OWNER_BINDING), rules=rules(owns_cluster=has_cluster(namespace)))
    return [Child(object=role, wave=WAVE_LIMITS)]


def plane(namespace: TenantNamespace) -> list[Child]:
    """Return the VirtualControlPlane, so that it can be counted; nothing without one.

    `creation` creates it, or the controller of a DedicatedCluster does.
    """
    if not namespace.control_plane:
        return []
    wanted = VirtualControlPlane(metadata=meta(namespace, namespace.control_plane))
    return [Child(object=wanted, wave=WAVE_PLANE)]


def rules(*, owns_cluster: bool = False) -> tuple[RoleRule, ...]:
    """Return what the owners of a namespace with a control plane may do in it.

    They manage the tree of the tenant, and they look. They write nothing that runs, or that gives rights: such objects
    would stand beside those that the mirror writes for the users inside. They read the kubeconfig in another namespace,
    because others may have a watch of the Secrets of this one.

    Args:
        owns_cluster: The control plane is that of a DedicatedCluster, which they may change, and neither create nor
            delete.
    """
    by_verbs: dict[tuple[str, ...], list[str]] = {}
    for kind in KINDS:
        access = cast("KindAccess", vars(kind)["access"]).owners
        verbs = READ if access and kind in _READ_ONLY else access
        if verbs:
            by_verbs.setdefault(verbs, []).append(kind.resource.plural)
    return (
        RoleRule(api_groups=("",), resources=("namespaces",), verbs=("get",)),
        RoleRule(api_groups=("",), resources=_LOOKED_AT, verbs=READ),
        RoleRule(api_groups=("events.k8s.io",), resources=("events",), verbs=READ),
        *(
            RoleRule(api_groups=(marks.GROUP,), resources=tuple(plurals), verbs=verbs)
            for verbs, plurals in by_verbs.items()
        ),
        *(_CLUSTER_RULES if owns_cluster else ()),
    )


def creation(namespace: TenantNamespace, found: VirtualControlPlane | None) -> tuple[DirectWrite, ...]:
    """Return the write that creates the VirtualControlPlane; () if there is one, even one that is being deleted.

    It wakes the controllers of the VirtualControlPlane. A VirtualControlPlane of this name that was there before is
    the control plane of the namespace, too: only users of the tenant, or administrators, can have created it.

    Args:
        namespace: The namespace.
        found: The VirtualControlPlane as it is.
    """
    if found is not None or has_cluster(namespace):
        return ()
    wanted = (child.object for child in plane(namespace))
    return tuple(DirectWrite(request=request.create(each), ignores=(NotFound, AlreadyExists)) for each in wanted)


# -- status ---------------------------------------------------------------------------------------

_WITHHELD = "its kubeconfig is written when all objects are inside"


def problem(name: str, found: VirtualControlPlane | None) -> Blocked | None:
    """Return why a control plane is not usable; None if it is, or if there is to be none.

    Args:
        name: Its name; "" for none.
        found: The VirtualControlPlane as it is.
    """
    if not name:
        return None
    if found is None:
        return Blocked(
            reason=reasons.PROGRESSING, message=f"VirtualControlPlane {name!r} is not created yet", passing=True
        )
    if found.metadata.deletion_timestamp:
        message = (
            f"VirtualControlPlane {found.key!r} is being deleted with all objects inside; an empty one is created when"
            " it is gone"
        )
        return Blocked(reason=reasons.PROGRESSING, message=message, passing=True)
    conditions = found.status.conditions
    ready = find(conditions, reasons.READY)
    if ready is None:
        return Blocked(reason=reasons.PROGRESSING, message=f"VirtualControlPlane {found.key!r} starts", passing=True)
    is_stalled = is_true(conditions, reasons.STALLED)
    has_served = bool(found.status.wakes and found.status.kubeconfig_secret)
    # Clients of one that wakes are held meanwhile.
    is_waking = has_served and ready.reason == reasons.PROGRESSING and not is_stalled
    is_ready = is_waking or is_true(conditions, reasons.READY)
    if is_ready and found.status.kubeconfig_secret:
        return None
    reason, told = (ready.reason, ready.message) if not is_ready else (reasons.PROGRESSING, _WITHHELD)
    message = f"VirtualControlPlane {found.key!r}: {told}"
    return Blocked(reason=reason, message=message, passing=not is_stalled)


def condition(name: str, obstacle: Blocked | None) -> list[Wanted]:
    """Return the condition ControlPlaneReady; none without a control plane.

    Args:
        name: As for `problem`.
        obstacle: Its result.
    """
    if not name:
        return []
    if obstacle is not None:
        return [Wanted(reasons.CONTROL_PLANE_READY, False, obstacle.reason, obstacle.message)]
    # The same while it sleeps and wakes: the condition does not flap.
    message = f"VirtualControlPlane {name!r} serves its clients; while it sleeps, the next connection starts it"
    return [Wanted(reasons.CONTROL_PLANE_READY, True, reasons.ESTABLISHED, message)]


# -- wakes ----------------------------------------------------------------------------------------


def is_news(change: Change[VirtualControlPlane]) -> bool:
    """Return whether a Tenant or Subnamespace may report another state of its control plane after a change."""
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    return _reported(before) != _reported(after)


def _reported(found: VirtualControlPlane) -> object:
    return problem(found.metadata.name, found), found.metadata.uid


def owner_of(namespace: Observed | None, name: str) -> tuple[type[Tenant | Subnamespace], str] | None:
    """Return the kind and the key of what a VirtualControlPlane belongs to; None if users have created it.

    Args:
        namespace: Its namespace.
        name: Its name.
    """
    if namespace is None or namespace.labels.get(marks.CONTROL_PLANE) != name:
        return None
    key = subnamespace_key(namespace)
    return (Subnamespace, key) if key else (Tenant, namespace.name)

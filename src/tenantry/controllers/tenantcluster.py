"""The cluster of a tenant whose owners work with one of their own: pure.

isolation.controlPlane: Dedicated
─► label of the namespace, Role     as with Virtual: `controlplane`, because the cluster has a VirtualControlPlane
─► DedicatedCluster                 created once; its spec is not the tenant's, so no field of it is brought back
─► its conditions                   ControlPlaneReady and NodesReady, and Ready of the Tenant
"""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import AlreadyExists, NotFound
from tenantry.api.model import object_key
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.tenantnamespace import WAVE_PLANE, TenantNamespace, meta
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.conditions import Wanted, find, is_true
from tenantry.engine.plan import Blocked, Child, DirectWrite

_REPORTED = (reasons.CONTROL_PLANE_READY, reasons.NODES_READY)
"""The conditions of a DedicatedCluster that its Tenant has, too."""


def is_wanted(tenant: Tenant) -> bool:
    """Return whether the owners of a tenant work with a cluster of their own."""
    return tenant.spec.isolation.control_plane is ControlPlaneChoice.DEDICATED


def has_cluster(namespace: TenantNamespace) -> bool:
    """Return whether the owners of a namespace work with a cluster of their own: in core namespaces only."""
    return is_wanted(namespace.tenant) and namespace.name == namespace.tenant.metadata.name


def children(namespace: TenantNamespace) -> list[Child]:
    """Return the DedicatedCluster, so that it can be counted; nothing without one. `creation` creates it."""
    if not has_cluster(namespace):
        return []
    wanted = DedicatedCluster(metadata=meta(namespace, namespace.control_plane))
    return [Child(object=wanted, wave=WAVE_PLANE)]


def creation(namespace: TenantNamespace, found: DedicatedCluster | None) -> tuple[DirectWrite, ...]:
    """Return the write that creates the DedicatedCluster; () if there is one, even one that is being deleted.

    A DedicatedCluster of this name that was there before is the cluster of the tenant, too: only users of the tenant,
    or administrators, can have created it.

    Args:
        namespace: The core namespace.
        found: The DedicatedCluster as it is.
    """
    if found is not None:
        return ()
    wanted = (child.object for child in children(namespace))
    return tuple(DirectWrite(request=request.create(each), ignores=(NotFound, AlreadyExists)) for each in wanted)


# -- status ---------------------------------------------------------------------------------------


def problem(tenant: Tenant, found: DedicatedCluster | None) -> Blocked | None:
    """Return why the cluster of a tenant is not usable; None if it is, or if there is to be none.

    Args:
        tenant: The tenant.
        found: The DedicatedCluster of its name; None for none.
    """
    if not is_wanted(tenant):
        return None
    name = tenant.metadata.name
    if found is None:
        message = f"DedicatedCluster {object_key(name, name)!r} is not created yet"
        return Blocked(reason=reasons.PROGRESSING, message=message, passing=True)
    if found.metadata.deletion_timestamp:
        message = (
            f"DedicatedCluster {found.key!r} is being deleted with all objects inside; an empty one is created when it"
            " is gone"
        )
        return Blocked(reason=reasons.PROGRESSING, message=message, passing=True)
    conditions = found.status.conditions
    ready = find(conditions, reasons.READY)
    if ready is None:
        return Blocked(reason=reasons.PROGRESSING, message=f"DedicatedCluster {found.key!r} starts", passing=True)
    # A suspension is the tenant's own, which reports it.
    if is_true(conditions, reasons.READY) or ready.reason == reasons.TENANT_SUSPENDED:
        return None
    is_stalled = is_true(conditions, reasons.STALLED)
    return Blocked(
        reason=ready.reason, message=f"DedicatedCluster {found.key!r}: {ready.message}", passing=not is_stalled
    )


def conditions(found: DedicatedCluster | None, obstacle: Blocked | None) -> list[Wanted]:
    """Return the conditions ControlPlaneReady and NodesReady of a tenant with a cluster of its own.

    Args:
        found: As for `problem`.
        obstacle: Its result.
    """
    wanted: list[Wanted] = []
    for type_ in _REPORTED:
        known = find(found.status.conditions, type_) if found is not None else None
        if known is None or found is None or found.metadata.deletion_timestamp:
            why = obstacle or Blocked(reason=reasons.PROGRESSING, message="the operator has not reported it yet")
            wanted.append(Wanted(type_, False, why.reason, why.message))
            continue
        holds = is_true(found.status.conditions, type_)
        wanted.append(Wanted(type_, holds, known.reason, f"DedicatedCluster {found.key!r}: {known.message}"))
    return wanted


def has_plane(found: DedicatedCluster | None) -> bool:
    """Return whether the control plane of a cluster serves its clients."""
    return found is not None and is_true(found.status.conditions, reasons.CONTROL_PLANE_READY)


def has_nodes(found: DedicatedCluster | None) -> bool:
    """Return whether pods of a cluster run: all of its nodes have joined it, and there is one at least."""
    if found is None or not is_true(found.status.conditions, reasons.NODES_READY):
        return False
    return any(pool.ready for pool in found.status.pools)


# -- wakes ----------------------------------------------------------------------------------------


def keys(change: Change[DedicatedCluster]) -> list[str]:
    """Return the tenant that a change of its cluster concerns."""
    return watched.tenant_of_its_name(change, _decides)


def _decides(found: DedicatedCluster) -> object:
    meta, status = found.metadata, found.status
    told = [(each.type, each.status, each.reason, each.message) for each in status.conditions]
    return meta.uid, meta.deletion_timestamp, told, any(pool.ready for pool in status.pools)

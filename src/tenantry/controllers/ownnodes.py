"""The nodes of a tenant's own: pure.

isolation.nodes: Slice
─► label of every namespace of the tree   policy tenantry-own-nodes refuses pods there until they run on a slice
─► SliceClaim                             kept in the core namespace, with the name of the tenant
─► its state                              condition NodesReady, and Ready of the Tenant

The policy is necessary beside the claim: a namespace without the label of a Bound slice has no nodes yet, is about to
use another claim, or belongs to a Subtenant, and its pods would run on the nodes of all tenants.
"""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import UNSET

from tenantry.api import marks, reasons
from tenantry.api.errors import AlreadyExists, Conflict, NotFound
from tenantry.api.model import Json, ObjectMeta, OwnerReference, object_key
from tenantry.api.slice import ClaimMode, OwnNodes, Sharing, SliceClaim, SliceClaimSpec, SliceState, Users
from tenantry.api.tenant import NodesChoice, Tenant
from tenantry.controllers import watched
from tenantry.controllers.tenantnamespace import WAVE_PLANE
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.conditions import Wanted, find, is_true
from tenantry.engine.plan import Amendment, Blocked, Child, DirectWrite, merge_patch

_LEFT_TO_ADMINISTRATORS = ("gracePeriodSeconds", "replaceAfterSeconds")
"""Fields of the claim that the Tenant does not set: an administrator may change them, and the operator keeps them."""


def is_wanted(tenant: Tenant) -> bool:
    """Return whether the pods of a tenant run on nodes of its own only."""
    return tenant.spec.isolation.nodes is NodesChoice.SLICE


def labels(tenant: Tenant) -> dict[str, str]:
    """Return the label of each namespace of the tree; {} if pods may run on shared nodes."""
    return {marks.OWN_NODES: "true"} if is_wanted(tenant) else {}


def claim_of(tenant: Tenant) -> SliceClaim | None:
    """Return the SliceClaim that a tenant should have; None for none."""
    if not is_wanted(tenant):
        return None
    given = tenant.spec.isolation.slice
    nodes = OwnNodes() if given is UNSET else given
    name = tenant.metadata.name
    owner = OwnerReference(
        api_version=Tenant.resource.api_version,
        kind=Tenant.resource.kind,
        name=name,
        uid=tenant.metadata.uid,
        controller=True,
    )
    meta = ObjectMeta(
        name=name,
        namespace=name,
        labels={marks.MANAGED_BY: marks.MANAGER, marks.TENANT: name},
        owner_references=(owner,),
    )
    spec = SliceClaimSpec(
        mode=ClaimMode.DYNAMIC,
        users=Users.EVERYBODY,
        count=nodes.count,
        selector=nodes.selector,
        per_node=nodes.per_node,
        total=nodes.total,
    )
    return SliceClaim(metadata=meta, spec=spec)


def children(tenant: Tenant) -> list[Child]:
    """Return the SliceClaim, so that it can be counted; `writes` keeps it."""
    wanted = claim_of(tenant)
    return [Child(object=wanted, wave=WAVE_PLANE)] if wanted is not None else []


def is_kept(found: SliceClaim) -> bool:
    """Return whether a claim is one that a Tenant keeps.

    Users cannot set the label, which is protected.
    """
    meta = found.metadata
    is_marked = meta.labels.get(marks.TENANT) == meta.namespace == meta.name
    return is_marked and any(each.controller and each.kind == Tenant.resource.kind for each in meta.owner_references)


def writes(tenant: Tenant, found: SliceClaim | None) -> tuple[DirectWrite | Amendment, ...]:
    """Return the write that creates, corrects or deletes the SliceClaim of a tenant; () if it is as it should be.

    A claim of this name that users created before becomes that of the tenant, unless `obstacle` rejects it.

    Args:
        tenant: The tenant.
        found: The claim of the tenant's name in its core namespace; None if there is none.
    """
    wanted = claim_of(tenant)
    if wanted is None:
        if found is None or found.metadata.deletion_timestamp or not _is_of(found, tenant):
            return ()
        meta = found.metadata
        asked = request.delete(SliceClaim.resource, meta.namespace, meta.name, uid=meta.uid)
        return (DirectWrite(request=asked, version=found.version, ignores=(NotFound, Conflict)),)
    if found is None:
        return (DirectWrite(request=request.create(wanted), ignores=(NotFound, AlreadyExists)),)
    if found.metadata.deletion_timestamp or _foreign(found, tenant) or not _patch(wanted, found):
        return ()
    return (Amendment(resource=SliceClaim.resource, seen=found, change=partial(_changed, tenant, wanted)),)


def _changed(tenant: Tenant, wanted: SliceClaim, found: SliceClaim) -> Json:
    if found.metadata.deletion_timestamp or _foreign(found, tenant):
        raise Conflict(f"SliceClaim {found.key!r} has changed meanwhile", status=409)
    return _patch(wanted, found)


def _patch(wanted: SliceClaim, found: SliceClaim) -> Json:
    """Return the merge patch that gives a claim the fields that its Tenant sets; {} if it has them."""
    spec = merge_patch(_set_by_tenant(found.spec), _set_by_tenant(wanted.spec))
    metadata: Json = {}
    if missing := {
        key: value for key, value in wanted.metadata.labels.items() if found.metadata.labels.get(key) != value
    }:
        metadata["labels"] = missing
    ours = {each.uid for each in wanted.metadata.owner_references}
    owners = found.metadata.owner_references
    if not any(each.controller and each.uid in ours for each in owners):
        # A merge patch replaces the whole list.
        kept = (each for each in owners if each.uid not in ours)
        metadata["ownerReferences"] = msgspec.to_builtins([*kept, *wanted.metadata.owner_references])
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}


def _set_by_tenant(spec: SliceClaimSpec) -> Json:
    """Return the fields that a Tenant sets; an empty part is the same whether it is stored or left out."""
    whole: Json = msgspec.to_builtins(spec)
    return {key: value for key, value in whole.items() if key not in _LEFT_TO_ADMINISTRATORS and value != {}}


def _is_of(found: SliceClaim, tenant: Tenant) -> bool:
    """Return whether a claim is the one that a Tenant keeps, or kept."""
    uid = tenant.metadata.uid
    return is_kept(found) and any(each.controller and each.uid == uid for each in found.metadata.owner_references)


def _foreign(found: SliceClaim, tenant: Tenant) -> str:
    """Return why a claim of the tenant's name cannot become that of the tenant; "" if it can."""
    others = [each for each in found.metadata.owner_references if each.controller and each.uid != tenant.metadata.uid]
    if others:
        return f"it belongs to {others[0].kind} {others[0].name!r}"
    if found.metadata.finalizers and not _is_of(found, tenant):
        return "it has finalizers of users, which would outlast its deletion"
    # The API server does not change this field.
    return "it is for parts of nodes" if found.spec.sharing is Sharing.PART else ""


# -- status ---------------------------------------------------------------------------------------


def problem(tenant: Tenant, found: SliceClaim | None) -> Blocked | None:
    """Return why the pods of a tenant do not run on nodes of its own; None if they do, or need not.

    Args:
        tenant: The tenant.
        found: The claim of the tenant's name in its core namespace; None if there is none.
    """
    if not is_wanted(tenant):
        return None
    name = tenant.metadata.name
    if found is None:
        message = f"SliceClaim {object_key(name, name)!r} is not created yet"
        return Blocked(reason=reasons.PROGRESSING, message=message, passing=True)
    if why := _foreign(found, tenant):
        message = (
            f"SliceClaim {found.key!r} exists already and cannot become that of the tenant, because {why}: delete it,"
            " and the operator creates another one"
        )
        return Blocked(reason=reasons.OBJECT_EXISTS, message=message)
    if found.metadata.deletion_timestamp or not _is_of(found, tenant):
        then = "is about to become that of the tenant"
        if found.metadata.deletion_timestamp:
            then = "is being deleted; the operator creates another one when it is gone"
        return Blocked(reason=reasons.PROGRESSING, message=f"SliceClaim {found.key!r} {then}", passing=True)
    return _unbound(found) if found.status.state is not SliceState.BOUND else None


def _unbound(found: SliceClaim) -> Blocked:
    """Return what a claim waits for."""
    ready = find(found.status.conditions, reasons.READY)
    reason, told = (ready.reason, ready.message) if ready is not None else (reasons.PROGRESSING, "it waits for nodes")
    if found.status.state is SliceState.RESERVED and reason == reasons.NODES_RESERVED:
        told += "; an older SliceClaim with `users: Everybody` has the namespace: delete it"
    is_stalled = is_true(found.status.conditions, reasons.STALLED)
    message = f"SliceClaim {found.key!r}: {told}; until it is Bound, pods of the tenant are refused"
    return Blocked(reason=reason, message=message, passing=not is_stalled)


def condition(found: SliceClaim | None, obstacle: Blocked | None) -> list[Wanted]:
    """Return the condition NodesReady of a tenant whose pods run on nodes of its own.

    Args:
        found: As for `problem`.
        obstacle: Its result.
    """
    if obstacle is not None:
        return [Wanted(reasons.NODES_READY, False, obstacle.reason, obstacle.message)]
    if found is None:
        return []
    message = f"SliceClaim {found.key!r} is Bound: new pods of the tenant run on its nodes only"
    degraded = find(found.status.conditions, reasons.DEGRADED)
    if degraded is not None:
        message += f"; {degraded.message}"
    return [Wanted(reasons.NODES_READY, True, reasons.NODES_BOUND, message)]


def keys(change: Change[SliceClaim]) -> list[str]:
    """Return the tenant that a change of its claim concerns."""
    return watched.tenant_of_its_name(change, _decides)


def _decides(found: SliceClaim) -> object:
    meta, status = found.metadata, found.status
    told = [(each.type, each.status, each.reason, each.message) for each in status.conditions]
    return meta.uid, meta.labels, meta.owner_references, meta.deletion_timestamp, found.spec, status.state, told

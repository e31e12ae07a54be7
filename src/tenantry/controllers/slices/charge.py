"""Charges Dynamic claims against their tenant's quota: no node is taken before the quota covers it (X03): pure.

the Slice records its nodes' resources            ─►  the quota controller makes room in the tree of shares
─►  its verdict: that quota is reserved           ─►  the Slice's status records it, and then nodes are taken
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, InputError
from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT
from tenantry.api.model import ObjectMeta, OwnerReference
from tenantry.api.node import Node
from tenantry.api.quota import Quantity
from tenantry.api.slice import ClaimReference, Slice, SliceClaim, SliceSpec, SliceState, approval_of
from tenantry.api.tenant import Tenant
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.world.quota import node_key, normal_key
from tenantry.world.shares.amounts import Amounts, add, fits, lower, read, spelled, thousandths


class Charge(msgspec.Struct, frozen=True):
    """How far the charge of a claim is.

    Args:
        write: The next write; None if there is none.
        waits: What the claim waits for before it takes nodes; None if it may take them.
    """

    write: DirectWrite | None = None
    waits: SliceProgress | None = None


def find(inputs: SliceInputs, wanted: Mapping[str, Quantity]) -> Charge:
    """Return how far the charge of a claim is; a Manual claim is not charged.

    Args:
        inputs: A claim in a tenant's namespace.
        wanted: What it should be charged with; see `charge_of`.
    """
    claim, tenant, slice_ = inputs.claim, inputs.tenant, inputs.slice
    if claim is None or tenant is None or inputs.is_manual:
        return Charge()
    # The Slice exists before any node is marked: the quota controller divides the quota over Slices, not over nodes.
    if slice_ is None:
        new = slice_for(claim, tenant, inputs.name, inputs.grace_seconds, wanted)
        # AlreadyExists: the cache has not seen the Slice yet; the next look continues with it.
        return Charge(write=DirectWrite(request=request.create(new), ignores=(AlreadyExists,)))
    held, amounts = read(slice_.status.charged), read(wanted)
    if any(value > amounts.get(key, 0) for key, value in held.items()):
        # Before the quota controller gives it to others: a claim that grows again has to wait for it again.
        return Charge(write=_record(slice_, lower(held, amounts)))
    # Compared as amounts: "1" and "1000m" are the same charge.
    if read(slice_.spec.charge) != read(wanted):
        return Charge(write=_change(slice_, wanted))
    is_covered = fits(limited(tenant, wanted), read(slice_.status.charged))
    waits = None if is_covered else _waits(slice_, inputs.verdict)
    if is_covered or waits is not None:
        return Charge(waits=waits)
    # Recorded before a node is taken: from then on, the quota controller must not lower the share below it.
    return Charge(write=_record(slice_, read(wanted)))


def _record(slice_: Slice, charged: Amounts) -> DirectWrite:
    """Return the write of what is charged: of what is 0, there is no key."""
    kept = {key: value for key, value in charged.items() if value}
    status = msgspec.structs.replace(slice_.status, charged=spelled(kept))
    written = request.replace(msgspec.structs.replace(slice_, status=status), subresource="status")
    return DirectWrite(request=written, quiet=True)


def approval(inputs: SliceInputs) -> DirectWrite | None:
    """Return the write that records what a Slice of an administrator approves; None if the Slice records it."""
    claim, slice_ = inputs.claim, inputs.slice
    if claim is None or slice_ is None or not inputs.is_manual or slice_.spec.approved is not msgspec.UNSET:
        return None
    body = {
        "metadata": {"resourceVersion": slice_.metadata.resource_version},
        "spec": {"approved": msgspec.to_builtins(approval_of(claim.spec))},
    }
    return DirectWrite(request=request.patch(Slice.resource, "", slice_.metadata.name, body))


def given_up(inputs: SliceInputs) -> Plan:
    """Return the plan that gives back the quota reserved by a claim that was denied nodes."""
    claim, slice_ = inputs.claim, inputs.slice
    if claim is None or inputs.is_manual or slice_ is None or inputs.nodes:
        return Plan()
    return Plan(writes=(deletion(slice_),))


def deletion(found: Slice) -> DirectWrite:
    """Return the deletion of a Slice."""
    meta = found.metadata
    return DirectWrite(request=request.delete(Slice.resource, "", meta.name, uid=meta.uid))


def charge_of(nodes: Iterable[Node]) -> dict[str, Quantity]:
    """Return what nodes have together, by quota key."""
    sums: Amounts = {}
    for node in nodes:
        for resource, value in node.status.allocatable.items():
            key = node_key(resource)
            if key:
                add(sums, {key: thousandths(value)})
    # A zero would be a key that the quota controller divides for nothing.
    return {key: value for key, value in spelled(sums).items() if value != "0"}


def limited(tenant: Tenant, charge: Mapping[str, Quantity]) -> Amounts:
    """Return the part of amounts that the tenant's quota limits."""
    # A key that the tenant's quota does not limit is free: the verdict covers only limited keys.
    keys: set[str] = set()
    for key in tenant.spec.quota.hard:
        with suppress(InputError):
            keys.add(normal_key(key))
    return {key: value for key, value in read(charge).items() if key in keys}


def _change(slice_: Slice, charge: Mapping[str, Quantity]) -> DirectWrite:
    # A merge patch leaves out what it does not name: a key that is no longer charged needs a null.
    gone = dict.fromkeys(slice_.spec.charge.keys() - charge.keys())
    body = {
        "metadata": {"resourceVersion": slice_.metadata.resource_version},
        "spec": {"charge": {**charge, **gone}},
    }
    return DirectWrite(request=request.patch(Slice.resource, "", slice_.metadata.name, body))


def _waits(slice_: Slice, verdict: ShareVerdict | None) -> SliceProgress | None:
    """Return what the quota controller still has to do, or refuses; None if the charge is in force."""
    # A verdict on an earlier charge says nothing about this one.
    is_known = verdict is not None and verdict.generation == slice_.metadata.generation
    reason, message = reasons.PROGRESSING, "room is made for it in the tenant's quota"
    if verdict is not None and is_known and verdict.blocked is not None:
        reason = verdict.blocked.reason
        message = f"the tenant's quota does not cover its nodes: {verdict.blocked.message}"
    elif verdict is not None and is_known and verdict.in_force:
        return None
    return SliceProgress(state=SliceState.PENDING, reason=reason, message=message)


# -- the Slice ------------------------------------------------------------------------------------


def slice_for(
    claim: SliceClaim, tenant: Tenant, name: str, grace_seconds: int, charge: Mapping[str, Quantity]
) -> Slice:
    """Return the Slice of a claim, charged with what its nodes have."""
    # Owned by the Tenant, not by the claim: a cluster-scoped object cannot have a namespaced owner.
    owner = OwnerReference(
        api_version=Tenant.resource.api_version,
        kind=Tenant.resource.kind,
        name=tenant.metadata.name,
        uid=tenant.metadata.uid,
    )
    labels = {MANAGED_BY: MANAGER, TENANT: tenant.metadata.name}
    return Slice(
        metadata=ObjectMeta(name=name, labels=labels, owner_references=(owner,)),
        spec=SliceSpec(
            claim=ClaimReference(namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid),
            tenant=tenant.metadata.name,
            sharing=claim.spec.sharing,
            grace_period_seconds=grace_seconds,
            charge=dict(charge),
        ),
    )


def note_of(claim: SliceClaim) -> str:
    """Return the annotation of a node that names its claim."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}/{claim.metadata.uid}"

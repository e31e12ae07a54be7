"""Charges Dynamic claims against their tenant's quota: no node is taken before the quota has given what it has (X03).

the Slice says what its nodes have, or will have  ─►  the quota controller makes room in the tree of shares
─►  its verdict: nobody else can use that         ─►  the Slice's status says so, and then nodes are taken
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, InputError
from tenantry.api.node import Node
from tenantry.api.quota import Quantity
from tenantry.api.slice import ClaimMode, Slice, SliceState
from tenantry.api.tenant import Tenant
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.slices import desired
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.cluster import Cluster
from tenantry.world.quota import normal_key
from tenantry.world.shares.amounts import Amounts, add, fits, read, spelled, thousandths

UNCHARGED = frozenset({"pods"})
"""How many pods a node can run is no resource of it: a tenant's quota of pods counts pods."""


class Charges:
    """Asks for room in tenants' quotas.

    Args:
        verdicts: Where the quota controller says what became of it.
    """

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts

    async def settle(self, cluster: Cluster, inputs: SliceInputs, nodes: Iterable[Node]) -> SliceProgress | None:
        """Have a claim charged with what nodes have; return what it waits for, None where it may take them.

        Args:
            cluster: Whose client writes.
            inputs: A claim in a tenant's namespace.
            nodes: All that it is to have.

        Raises:
            ApiError: The API server refuses.
        """
        claim, tenant = inputs.claim, inputs.tenant
        if claim is None or tenant is None or claim.spec.mode is not ClaimMode.DYNAMIC:
            return None
        charge = charge_of(nodes)
        slice_ = inputs.slice
        if slice_ is None:
            slice_ = await self._make(cluster, inputs, tenant, charge)
        elif read(slice_.spec.charge) != read(charge):
            slice_ = await _change(cluster, slice_, charge)
        limited = _limited(tenant, charge)
        if fits(limited, read(slice_.status.charged)):
            return None
        verdict = self._verdicts.get(slice_.metadata.uid)
        if verdict is None or verdict.generation != slice_.metadata.generation:
            return _waits(reasons.PROGRESSING, "room is made for it in the tenant's quota")
        if verdict.blocked is not None:
            message = f"the tenant's quota does not cover its nodes: {verdict.blocked.message}"
            return _waits(verdict.blocked.reason, message)
        if not verdict.in_force:
            return _waits(reasons.PROGRESSING, "room is made for it in the tenant's quota")
        charged = spelled(read(charge))
        status = msgspec.structs.replace(slice_.status, charged=charged)
        await cluster.writer.status(msgspec.structs.replace(slice_, status=status))
        return None

    async def _make(
        self, cluster: Cluster, inputs: SliceInputs, tenant: Tenant, charge: Mapping[str, Quantity]
    ) -> Slice:
        if inputs.claim is None:
            raise TypeError("no claim")
        wanted = desired.slice_for(inputs.claim, tenant, inputs.name, inputs.grace_seconds, charge)
        with suppress(AlreadyExists):
            return await cluster.writer.create(wanted)
        found: Slice | None = cluster.cache(Slice.resource).get(inputs.name)
        return found or await cluster.live.get(Slice, inputs.name)


async def give_up(cluster: Cluster, inputs: SliceInputs) -> None:
    """Take back what a claim asked of the quota that gets no nodes."""
    claim, slice_ = inputs.claim, inputs.slice
    if claim is not None and claim.spec.mode is ClaimMode.DYNAMIC and slice_ is not None and not inputs.nodes:
        await cluster.writer.delete(slice_)


def charge_of(nodes: Iterable[Node]) -> dict[str, Quantity]:
    """Return what nodes have together, by quota key."""
    sums: Amounts = {}
    for node in nodes:
        for resource, value in node.status.allocatable.items():
            key = _key(resource)
            if key:
                add(sums, {key: thousandths(value)})
    return {key: value for key, value in spelled(sums).items() if value != "0"}


def _key(resource: str) -> str:
    """Return the quota key of a node's resource; "" for one that no quota counts."""
    if resource in UNCHARGED:
        return ""
    try:
        return normal_key(f"requests.{resource}" if "/" in resource else resource)
    except InputError:
        return ""


def _limited(tenant: Tenant, charge: Mapping[str, Quantity]) -> Amounts:
    """Return the part of a charge that the tenant's quota limits."""
    keys: set[str] = set()
    for key in tenant.spec.quota.hard:
        with suppress(InputError):
            keys.add(normal_key(key))
    return {key: value for key, value in read(charge).items() if key in keys}


async def _change(cluster: Cluster, slice_: Slice, charge: Mapping[str, Quantity]) -> Slice:
    gone = dict.fromkeys(slice_.spec.charge.keys() - charge.keys())
    patch = {
        "metadata": {"resourceVersion": slice_.metadata.resource_version},
        "spec": {"charge": {**charge, **gone}},
    }
    changed: Slice = await cluster.writer.patch(Slice.resource, "", slice_.metadata.name, patch)
    return changed


def _waits(reason: str, message: str) -> SliceProgress:
    return SliceProgress(state=SliceState.PENDING, reason=reason, message=message)

"""What the contributed nodes of a slice add to their tenant's quota, inside the claim only: pure.

A node that a tenant brought is not charged to its quota. The agreed capacity of the node is added to the ResourceQuota
of one namespace that uses the slice, and nothing of it can be used elsewhere:

    every pod of the namespace runs on the slice   policies hold new pods there, as long as the namespace has its label
    spec.contributed of the Slice                  what may be added
    status.contributed                             written before the ResourceQuota grows
    ─►  the quota controller adds it to that ResourceQuota, and to no share that can be passed on

    the node leaves, or the slice ends             spec.contributed goes first
    ─►  the ResourceQuota has shrunk               then status.contributed, the label of the namespace, and the node

The capacity is the one in the register of contributed nodes, which only administrators write, or what the node reports
if that is less.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from tenantry.api.contribution import Contribution, is_contributed, record_of
from tenantry.api.errors import InputError
from tenantry.api.marks import PARENT, SLICE
from tenantry.api.node import Node
from tenantry.api.slice import ContributedQuota, Slice
from tenantry.api.wording import shortened
from tenantry.controllers.slices import charge, preconditions
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.engine import request
from tenantry.engine.observed import Observed
from tenantry.engine.plan import DirectWrite
from tenantry.world.quota import node_key
from tenantry.world.shares.amounts import Amounts, add, fits, read, spelled, thousandths

LOOK_AGAIN_SECONDS = 5.0
"""When to look again for pods that have left: pods end all the time, so no watch reports these."""


def is_brought(inputs: SliceInputs, node: Node) -> bool:
    """Return whether a node of the claim's tenant adds to its quota, instead of being charged to it."""
    return _agreement(inputs, node) is not None


def charged(inputs: SliceInputs) -> list[Node]:
    """Return the nodes that a claim should have and that its tenant's quota is charged for."""
    return [node for node in inputs.wanted if not is_brought(inputs, node)]


def capacity(inputs: SliceInputs, nodes: Sequence[Node]) -> Amounts:
    """Return what nodes add by quota key: what was agreed on, or what they report if that is less."""
    sums: Amounts = {}
    for node in nodes:
        agreed = _agreement(inputs, node)
        # The record of a node that is being taken back still keeps it from being charged.
        if agreed is None or agreed.ended:
            continue
        for resource, text in agreed.agreed_capacity.items():
            key = node_key(resource)
            try:
                value = min(thousandths(text), thousandths(node.status.allocatable.get(resource, "0")))
            except InputError:
                continue  # an administrator wrote the record by hand
            if key and value > 0:
                add(sums, {key: value})
    return sums


def find(inputs: SliceInputs) -> DirectWrite | None:
    """Return the next write of what the contributed nodes of a slice add; None if there is none."""
    slice_ = inputs.slice
    if slice_ is None:
        return None
    wanted = None if preconditions.ends(inputs) else _wanted(inputs)
    spec, status = slice_.spec.contributed, slice_.status.contributed
    if spec is not UNSET and wanted != spec:
        # Less, or for another namespace: what was added goes back as a whole, before any of it is added again.
        grows = wanted is not None and _place(wanted) == _place(spec) and fits(read(spec.hard), read(wanted.hard))
        return _changed(slice_, wanted if grows else None)
    if spec is not UNSET:
        return _recorded(slice_, spec) if status != spec else None
    if status is not UNSET:
        return None if inputs.adds else _recorded(slice_, None)
    return _changed(slice_, wanted) if wanted is not None else None


def is_going_back(inputs: SliceInputs) -> bool:
    """Return whether what contributed nodes added is being taken back: until then, nothing of the slice goes."""
    slice_ = inputs.slice
    if slice_ is None:
        return inputs.adds
    return slice_.spec.contributed is UNSET and slice_.status.contributed is not UNSET and inputs.adds


def holder(inputs: SliceInputs) -> str:
    """Return the namespace that has what contributed nodes add, or had it until a moment ago; "" for none."""
    if inputs.slice is None:
        return ""
    for found in (inputs.slice.status.contributed, inputs.slice.spec.contributed):
        if found is not UNSET:
            return found.namespace
    return ""


def holder_uid(inputs: SliceInputs) -> str:
    """Return the uid of the namespace to which contributed nodes add now; "" for none."""
    found = inputs.slice.spec.contributed if inputs.slice is not None else UNSET
    return found.uid if found is not UNSET else ""


def told(inputs: SliceInputs) -> str:
    """Return what a message reports about what the contributed nodes add; "" for nothing."""
    found = inputs.slice.spec.contributed if inputs.slice is not None else UNSET
    if found is not UNSET:
        amounts = ", ".join(f"{key}={value}" for key, value in sorted(found.hard.items()))
        return f"its contributed nodes add {amounts} to the quota of namespace {found.namespace!r}"
    if inputs.elsewhere and any(is_brought(inputs, node) for node in inputs.nodes):
        pods = shortened(f"'{each}'" for each in inputs.elsewhere)
        return (
            "its contributed nodes add their capacity to the quota of a namespace when all pods there run on the slice;"
            f" delete or restart {pods}"
        )
    return ""


def _wanted(inputs: SliceInputs) -> ContributedQuota | None:
    if inputs.tenant is None or inputs.slice is None:
        return None
    bound = [
        node
        for node in inputs.nodes
        if marking.is_bound(node, inputs.name) and node.metadata.name not in inputs.replaced
    ]
    amounts = charge.limited(inputs.tenant, spelled(capacity(inputs, bound)))
    place = _chosen(inputs)
    if not amounts or place is None:
        return None
    return ContributedQuota(namespace=place.name, uid=place.uid, hard=dict(spelled(amounts)))


def _chosen(inputs: SliceInputs) -> Observed | None:
    """Return the namespace that gets what the nodes add: the one that has it, the claim's, or the first of the top."""
    able = {each.name: each for each in inputs.users if each.uid in inputs.exclusive and _is_labelled(inputs, each)}
    using = {each.name for each in inputs.users}
    top = sorted(name for name, each in able.items() if each.labels.get(PARENT, "") not in using)
    own = inputs.claim.metadata.namespace if inputs.claim is not None else ""
    return next((able[name] for name in (holder(inputs), own, *top) if name in able), None)


def _is_labelled(inputs: SliceInputs, found: Observed) -> bool:
    return found.labels.get(SLICE) == inputs.name


def _agreement(inputs: SliceInputs, node: Node) -> Contribution | None:
    """Return the record of a node that the claim's tenant has contributed with an agreed capacity."""
    name = node.metadata.name
    # The register, not the labels of the node: a record there is an administrator's.
    if inputs.tenant is None or not is_contributed(name):
        return None
    agreed = record_of(inputs.register.get(name))
    return agreed if agreed is not None and agreed.capacity and agreed.tenant == inputs.tenant.metadata.name else None


def _place(found: ContributedQuota) -> tuple[str, str]:
    return found.namespace, found.uid


def _changed(slice_: Slice, wanted: ContributedQuota | None) -> DirectWrite:
    body = {
        "metadata": {"resourceVersion": slice_.metadata.resource_version},
        "spec": {"contributed": msgspec.to_builtins(wanted)},
    }
    return DirectWrite(request=request.patch(Slice.resource, "", slice_.metadata.name, body))


def _recorded(slice_: Slice, held: ContributedQuota | None) -> DirectWrite:
    status = msgspec.structs.replace(slice_.status, contributed=held if held is not None else UNSET)
    return DirectWrite(request=request.replace(msgspec.structs.replace(slice_, status=status), subresource="status"))

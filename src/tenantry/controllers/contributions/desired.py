"""What a contributed node should be: labelled as agreed, or on its way out. Pure.

A contributed node has a taint that only pods of its contributor's tenant tolerate, and of tenants that an administrator
names: the owner of the machine can read whatever its pods can.

A node that its contributor withdraws, or that was never agreed on, gets no more pods. A withdrawn one then waits until
its slice has given it back. Its pods are evicted, a NoExecute taint ends those of DaemonSets, and it is deleted.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api import marks
from tenantry.api.contribution import REGISTER, Contribution, change
from tenantry.api.marks import CONTRIBUTED_BY, NODE_ADDRESSES, SYSTEM_NAMESPACE, TAKEN_BACK
from tenantry.api.node import Node, Taint
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.slice import DEFAULT_GRACE_SECONDS
from tenantry.api.tenancydefaults import SliceDefaults
from tenantry.controllers.contributions.pods import LeavingPod
from tenantry.controllers.slices.decision import SliceDecision, departures, next_look
from tenantry.controllers.slices.evictiondeadlines import eviction_deadlines
from tenantry.controllers.slices.nodes import slice_of
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite, Plan

MOST_ADDRESSES = 10
"""How many addresses of a node are recorded without an administrator; a record holds 512 characters of them."""

LOOK_AGAIN_SECONDS = 1.0
"""When to check whether the slice has released a node: own writes wake no reconciler."""


class ContributionInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides about a contributed node.

    Args:
        node: As last seen.
        agreed: The agreement; None if there is no readable record.
        now: The time.
        version: The resourceVersion of the register.
        pods: Its pods; () while it is in a slice.
        defaults: Of TenancyDefaults.
        reported: The addresses that the node reports and that are its own; () unless `is_unrecorded`.
    """

    node: Node
    agreed: Contribution | None
    now: dt.datetime
    version: str = ""
    pods: tuple[LeavingPod, ...] = ()
    defaults: SliceDefaults = SliceDefaults()
    reported: tuple[str, ...] = ()


def plan(inputs: ContributionInputs) -> SliceDecision:
    """Return the next stage of a contributed node."""
    node, agreed = inputs.node, inputs.agreed
    name, since = node.metadata.name, node.metadata.annotations.get(TAKEN_BACK, "")
    lacking = _lacking(node, agreed) if agreed is not None else {}
    if lacking:
        return SliceDecision(plan=_patch(name, lacking), goes_on=True)
    found = _recordable(inputs, agreed) if agreed is not None else None
    if found is not None and found != agreed:
        # Without a version the record was moved a moment ago: first read the version of the register.
        return SliceDecision(plan=_recording(inputs, found) if inputs.version else Plan(), goes_on=True)
    # kubelet can write labels of its own node, so the agreed ones are restored before anything else is decided.
    if agreed is not None and not since:
        return SliceDecision()
    # Cordoned before its pods leave, or a scheduler would place them there again.
    if not node.spec.unschedulable:
        return SliceDecision(plan=_patch(name, {"spec": {"unschedulable": True}}), goes_on=True)
    if not since:
        return SliceDecision()
    return _delete(inputs, since) if is_vacant(node) else SliceDecision(again=LOOK_AGAIN_SECONDS)


def is_unrecorded(agreed: Contribution | None) -> bool:
    """Return whether a record is one without addresses."""
    return agreed is not None and not agreed.ended and not agreed.addresses


def _recordable(inputs: ContributionInputs, agreed: Contribution) -> Contribution:
    """Return the record with what it lacks: the ranges that Kubernetes has assigned, and the addresses.

    The policy on the addresses of nodes admits none that are not recorded. So a node that reports some without a record
    of them joined before records had addresses, and the earlier version trusted its report.
    """
    if inputs.reported and is_unrecorded(agreed):
        agreed = msgspec.structs.replace(agreed, addresses=",".join(inputs.reported[:MOST_ADDRESSES]))
    if inputs.node.spec.pod_cidrs and not agreed.ranges:
        agreed = msgspec.structs.replace(agreed, pod_cidrs=",".join(inputs.node.spec.pod_cidrs))
    return agreed


def _recording(inputs: ContributionInputs, found: Contribution) -> Plan:
    """Return the write of a record."""
    body = change(inputs.node.metadata.name, found, version=inputs.version)
    asked = request.patch(PolicyParameters.resource, SYSTEM_NAMESPACE, REGISTER, body)
    return Plan(writes=(DirectWrite(request=asked),))


def _delete(inputs: ContributionInputs, since: str) -> SliceDecision:
    """Return the eviction of the pods of a vacant node, then the taint that ends the rest, then its deletion."""
    meta = inputs.node.metadata
    pods = tuple(pod.facts for pod in inputs.pods if pod.is_evicted)
    if not pods:
        return _end(inputs)
    left = eviction_deadlines(since, inputs.now, DEFAULT_GRACE_SECONDS, inputs.defaults.disruption_budget_seconds)
    found = departures(pods, left, f"the owner of node {meta.name!r} takes it back: the pod leaves")
    return SliceDecision(
        plan=Plan(writes=tuple(each.write for each in found)),
        again=next_look(pods, left.grace),
        departures=found,
    )


def _end(inputs: ContributionInputs) -> SliceDecision:
    """Return the taint that ends the pods of DaemonSets, which no eviction ends, and then the deletion of the node."""
    node, meta = inputs.node, inputs.node.metadata
    if not any(taint.key == TAKEN_BACK for taint in node.spec.taints):
        taints = (*node.spec.taints, Taint(key=TAKEN_BACK, effect="NoExecute"))
        body: dict[str, object] = {
            "metadata": {"resourceVersion": meta.resource_version},
            "spec": {"taints": msgspec.to_builtins(taints)},
        }
        return SliceDecision(plan=_patch(meta.name, body), goes_on=True)
    # A dead kubelet ends no pod: Kubernetes removes pods that are being deleted after their node.
    left = [pod for pod in inputs.pods if pod.tainted_away and (node.is_ready or not pod.facts.deleting)]
    if left:
        return SliceDecision(again=LOOK_AGAIN_SECONDS)
    # By uid: a machine that was contributed again in the meantime has a new Node of the same name.
    gone = request.delete(Node.resource, "", meta.name, uid=meta.uid)
    return SliceDecision(plan=Plan(writes=(DirectWrite(request=gone),)))


def is_vacant(node: Node) -> bool:
    """Return whether a withdrawn node gets no more pods and is in no slice."""
    return bool(node.metadata.annotations.get(TAKEN_BACK)) and node.spec.unschedulable and not slice_of(node)


def _lacking(node: Node, agreed: Contribution) -> dict[str, object]:
    """Return the patch by which a node is as it was agreed on; {} if it is."""
    meta, found = node.metadata, dict[str, dict[str, object]]()
    # Labels that were not agreed on are removed: a node must not claim to be contributed by another tenant.
    wanted: dict[str, str | None] = {**dict.fromkeys(marks.OF_CONTRIBUTIONS), **agreed.labels}
    labels = {key: value for key, value in wanted.items() if meta.labels.get(key) != value}
    if labels:
        found["metadata"] = {"labels": labels}
    if meta.annotations.get(NODE_ADDRESSES, "") != agreed.addresses:
        found.setdefault("metadata", {})["annotations"] = {NODE_ADDRESSES: agreed.addresses or None}
    # Kubernetes allows no change of ranges, only that a node gets some.
    if agreed.ranges and not node.spec.pod_cidrs:
        found["spec"] = {"podCIDR": agreed.ranges[0], "podCIDRs": list(agreed.ranges)}
    kept = Taint(key=CONTRIBUTED_BY, value=agreed.tenant, effect="NoSchedule")
    if [each for each in node.spec.taints if each.key == CONTRIBUTED_BY] != [kept]:
        taints = (*(each for each in node.spec.taints if each.key != CONTRIBUTED_BY), kept)
        # The list is replaced as a whole: at another version, taints of other controllers would be lost.
        found.setdefault("metadata", {})["resourceVersion"] = meta.resource_version
        found.setdefault("spec", {})["taints"] = msgspec.to_builtins(taints)
    return {**found}


def _patch(name: str, body: dict[str, object]) -> Plan:
    return Plan(writes=(DirectWrite(request=request.patch(Node.resource, "", name, body)),))

"""A condition of a Node that shows a problem: pure. A node without the problem, now and before, has no condition."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api.node import Node, NodeCondition
from tenantry.engine import request
from tenantry.engine.clock import rfc3339
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.engine.request import PatchType


def plan(node: Node, wanted: NodeCondition, now: dt.datetime) -> Plan:
    """Return the write by which a node has a condition; most nodes need none.

    Args:
        node: As last seen.
        wanted: The condition; its status is "True" if there is no problem.
        now: The time.
    """
    before = next((each for each in node.status.conditions if each.type == wanted.type), None)
    if before is None and wanted.status == "True":
        return Plan()
    moment = before.last_transition_time if before is not None and before.status == wanted.status else rfc3339(now)
    condition = msgspec.structs.replace(wanted, last_transition_time=moment)
    if condition == before:
        return Plan()
    # Conditions are merged by their type, so that those of kubelet stay (Kubernetes, "Node Status").
    patch: dict[str, object] = {"status": {"conditions": [msgspec.to_builtins(condition)]}}
    asked = request.patch(
        Node.resource, "", node.metadata.name, patch, subresource="status", patch_type=PatchType.STRATEGIC
    )
    return Plan(writes=(DirectWrite(request=asked),))

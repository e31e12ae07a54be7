"""Which PriorityClasses pods may have."""

from __future__ import annotations

from tenantry.policy.check import listed
from tenantry.policy.forms import refuse
from tenantry.policy.mend import drops
from tenantry.policy.rules.runtimeclasses import named_class
from tenantry.policy.targets.pods import POD

SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")
"""The classes of every cluster. Source: Kubernetes, "Guaranteed Scheduling For Critical Add-On Pods"."""

CHECKS = (
    named_class(
        "priorityClasses.allowed",
        "priorityClassName",
        example={"spec": {"priorityClassName": "system-node-critical"}},
        note="The cluster's default PriorityClass counts as named.",
    ),
    refuse(
        "priorityClasses.system",
        POD,
        bad=f"has(variables.spec.priorityClassName) && variables.spec.priorityClassName in {listed(SYSTEM_PRIORITIES)}",
        is_bad=lambda spec, _: spec.get("priorityClassName") in SYSTEM_PRIORITIES,
        what="has a PriorityClass of the cluster's own, before which all others give way",
        fix="leave out priorityClassName",
        mend=drops("spec.priorityClassName"),
        example={"spec": {"priorityClassName": "system-cluster-critical"}},
    ),
)

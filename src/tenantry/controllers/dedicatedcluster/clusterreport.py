"""What Cluster API reports of a Cluster in its status: pure."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.model import Json
from tenantry.engine.conditions import Wanted

AVAILABLE, CONTROL_PLANE_AVAILABLE, WORKERS_AVAILABLE = "Available", "ControlPlaneAvailable", "WorkersAvailable"
TOPOLOGY_RECONCILED = "TopologyReconciled"
"""Conditions of a Cluster; the last one is false if its ClusterClass is gone or broken, and during upgrades."""

UPGRADING = "ClusterUpgrading"
"""The reason of TopologyReconciled while machines have another version than the Cluster."""


def is_seen(own: Json, reported: Json, topology: Json) -> bool:
    """Return whether both controllers of Cluster API that carry out a Cluster have seen its spec."""
    generation = int(own["metadata"].get("generation") or 0)
    seen = int(reported.get("observedGeneration") or 0)
    # The status is of the one that reports; machines and versions are of the one that sets this condition.
    return min(seen, int(topology.get("observedGeneration") or seen)) >= generation


def versions(reported: Json) -> list[str]:
    """Return the versions of the processes of the control plane, as in v1.36.1; none if its provider reports none."""
    plane: Json = reported.get("controlPlane") or {}
    listed: list[Json] = plane.get("versions") or []
    return [str(each["version"]) for each in listed]


def minor(version: str) -> str:
    """Return the minor version of a version, as in v1.36."""
    return ".".join(version.split(".")[:2])


def running(own: Json, reported: Json) -> str:
    """Return the version of the whole control plane, as in 1.36.1; "" if it has several, or is not known.

    Args:
        own: The Cluster.
        reported: Its status.
    """
    found = {each.removeprefix("v") for each in versions(reported)}
    if found:
        return found.pop() if len(found) == 1 else ""
    begun: Json = reported.get("initialization") or {}
    if not begun.get("controlPlaneInitialized"):
        return ""
    # The provider of the control plane reports none: Cluster API upgrades it before it says that the topology is done.
    done = condition(reported, TOPOLOGY_RECONCILED)
    if done.get("status") != "True" or not is_seen(own, reported, done):
        return ""
    return wanted_version(own).removeprefix("v")


def wanted_version(own: Json) -> str:
    """Return the version that a Cluster is to have, as in v1.36.0; "" for none."""
    spec: Json = own.get("spec") or {}
    topology: Json = spec.get("topology") or {}
    return str(topology.get("version", ""))


def condition(reported: Json, type_: str) -> Json:
    """Return a condition; {} if it is not reported."""
    conditions: list[Json] = reported.get("conditions") or []
    none: Json = {}
    return next((each for each in conditions if each.get("type") == type_), none)


def part(reported: Json, type_: str, ours: str) -> Wanted:
    """Return our condition about a part of a Cluster, with the words of Cluster API."""
    seen = condition(reported, type_)
    holds = seen.get("status") == "True"
    reason = reasons.ESTABLISHED if holds else reasons.PROGRESSING
    told = seen.get("message") or (type_ if holds else "no controller has reported it yet")
    return Wanted(ours, holds, reason, f"Cluster API: {told}")

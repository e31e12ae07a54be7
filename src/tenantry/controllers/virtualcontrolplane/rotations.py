"""Has the credentials of control planes replaced, and renewed when it is time. The glue; `rotation` decides.

A new kubeconfig is issued only when a removed owner can no longer read it on the host.
"""

from __future__ import annotations

import logging

import msgspec
from msgspec.structs import replace

from tenantry.api.kubernetes import RoleBinding
from tenantry.api.owner import owner_line
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.tenantnamespace import OWNER_BINDING
from tenantry.controllers.virtualcontrolplane import rotation
from tenantry.controllers.virtualcontrolplane.rotation import RotationStep
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.hosting.placement import RunningPlane

BINDING_SECONDS = 1.0
"""When to look again at a binding from which another controller takes a removed owner."""

LONGEST_SECONDS = 6 * 3600.0
"""When to look again at the latest: a machine that was suspended has not counted the time."""

log = logging.getLogger(__name__)


async def begin(cluster: Cluster, found: VirtualControlPlane, namespace: Observed) -> RotationStep:
    """Record that credentials are to be replaced; the write wakes the key of the control plane.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    gone = rotation.removed(found, namespace)
    if gone and await are_bound(cluster, found.metadata.namespace, gone):
        return RotationStep(again_seconds=BINDING_SECONDS)
    step = rotation.step(found, namespace, cluster.clock.now())
    if step.status is not None:
        changed = replace(found, status=step.status)
        if rotation.wanted(found) != rotation.wanted(changed):
            log.info("credentials of a control plane are replaced", extra={"key": found.key, "removed": len(gone)})
        # At the resourceVersion that it was read at, and not quiet: the process has to start anew.
        await cluster.writer.own(request.replace(changed, subresource="status"))
    return step


def renewal_in(cluster: Cluster, running: RunningPlane) -> float | None:
    """Return in how many seconds to look whether certificates are due; 0 or less if they are, None for never."""
    if running.renewal is None:
        return None
    return min((running.renewal - cluster.clock.now()).total_seconds(), LONGEST_SECONDS)


def is_renewed(cluster: Cluster, running: RunningPlane) -> bool:
    """Return whether certificates are due."""
    seconds = renewal_in(cluster, running)
    return seconds is not None and seconds <= 0


async def are_bound(cluster: Cluster, namespace: str, gone: frozenset[str]) -> bool:
    """Return whether a removed owner still has rights in its namespace, or still may read the kubeconfig.

    Args:
        cluster: The host.
        namespace: The namespace of the control plane.
        gone: The digests of removed owners.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    for place, name in ((namespace, OWNER_BINDING), (KUBECONFIGS_NAMESPACE, namespace)):
        data = await cluster.live.find(RoleBinding.resource, place, name)
        subjects = msgspec.json.decode(data, type=RoleBinding).subjects if data is not None else ()
        if rotation.is_bound((owner_line(each.kind, each.name, each.namespace or "") for each in subjects), gone):
            return True
    return False

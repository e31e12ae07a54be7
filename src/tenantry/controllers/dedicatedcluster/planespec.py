"""The VirtualControlPlane of a DedicatedCluster: what the cluster decides of its spec, and the requests: pure.

spec of the cluster                        ─► the same fields, which are brought back
spec.rotation.request, spec.snapshots.…    ─► each new value once, because administrators request there, too
annotation tenantry.dev/requested-phase    ─► as well; with `sleep.nodes: Release` when the nodes have returned
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenantry.api.dedicatedcluster import DedicatedCluster, HandledRequests
from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.planesnapshots import UpgradeSettings
from tenantry.api.virtualcontrolplane import (
    MAX_REQUEST,
    PlaneNodes,
    PlaneSleep,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
)
from tenantry.controllers.dedicatedcluster import release, template
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.engine.plan import merge_patch
from tenantry.hosting import versions


def spec(inputs: ClusterInputs, before: VirtualControlPlane | None = None) -> VirtualControlPlaneSpec:
    """Return the spec of the VirtualControlPlane of a cluster.

    Args:
        inputs: The cluster.
        before: The VirtualControlPlane as it is: what the cluster does not decide stays, such as its egress, its
            version if the cluster names none, and a snapshot or a restore that is requested there.
    """
    found = inputs.found
    wanted, kept = found.spec, before.spec if before is not None else VirtualControlPlaneSpec()
    handled, settings = found.status.requests, template.settings(found)
    return replace(
        kept,
        version=_version(found, before),
        replicas=settings.replicas,
        # No control plane moves to another datastore.
        datastore=settings.datastore if before is None else kept.datastore,
        resources=settings.resources,
        nodes=PlaneNodes.OWN,
        # It must not change there, either.
        endpoint=wanted.endpoint if before is None else kept.endpoint,
        network=wanted.network if before is None else kept.network,
        owners=wanted.owners,
        egress=replace(kept.egress, issuers=template.issuers(inputs, kept.egress.issuers)),
        authentication=replace(kept.authentication, oidc=wanted.api_server.oidc),
        audit=replace(kept.audit, level=wanted.api_server.audit_level),
        feature_gates=wanted.api_server.feature_gates,
        add_ons=template.add_ons(found),
        guards=template.guards(found),
        hosting=template.taken(found).hosting,
        runtime=settings.runtime,
        sleep=PlaneSleep(after_idle_seconds=settings.after_idle_seconds),
        snapshots=replace(
            wanted.snapshots,
            request=_once(wanted.snapshots.request, handled.snapshot, kept.snapshots.request),
            restore=_once(wanted.snapshots.restore, handled.restore, kept.snapshots.restore),
        ),
        upgrade=UpgradeSettings(soak_seconds=wanted.upgrade.soak_seconds, ignore=wanted.upgrade.ignore),
        rotation=replace(
            wanted.rotation, request=_once(wanted.rotation.request, handled.rotation, kept.rotation.request)
        ),
    )


def is_outdated(inputs: ClusterInputs, before: VirtualControlPlane) -> bool:
    """Return whether the spec of a VirtualControlPlane is not what the cluster decides."""
    return bool(merge_patch(msgspec.to_builtins(before.spec), msgspec.to_builtins(spec(inputs, before))))


def notes(inputs: ClusterInputs) -> dict[str, str]:
    """Return the annotation by which the VirtualControlPlane is to sleep or to wake; none without a request."""
    value = release.sleep_request(inputs) or _asked(inputs)
    return {REQUESTED_PHASE: value} if value else {}


def _asked(inputs: ClusterInputs) -> str:
    """Return the request of a user that is brought to the control plane now; "" for none."""
    found = inputs.found
    if release.pending(found) is None or release.is_held_back(inputs):
        return ""
    return found.metadata.annotations.get(REQUESTED_PHASE, "")[:MAX_REQUEST]


def handled(inputs: ClusterInputs) -> HandledRequests:
    """Return the requests that the VirtualControlPlane has, for the status."""
    found, plane = inputs.found, inputs.own_plane
    before = found.status.requests
    if plane is None:
        return before

    def known(asked: str, there: str, recorded: str) -> str:
        return asked if asked and asked == there else recorded

    wanted, there = found.spec, plane.spec
    return replace(
        before,
        snapshot=known(wanted.snapshots.request, there.snapshots.request, before.snapshot),
        restore=known(wanted.snapshots.restore, there.snapshots.restore, before.restore),
        rotation=known(wanted.rotation.request, there.rotation.request, before.rotation),
        phase=known(
            found.metadata.annotations.get(REQUESTED_PHASE, "")[:MAX_REQUEST],
            plane.metadata.annotations.get(REQUESTED_PHASE, "")[:MAX_REQUEST],
            before.phase,
        ),
        sleep=release.next_request(inputs),
    )


def _once(asked: str, handled: str, there: str) -> str:
    """Return the value of a request: that of the cluster if it is a new one, else the one that is there."""
    return asked if asked not in ("", handled) else there


def _version(found: DedicatedCluster, before: VirtualControlPlane | None) -> str:
    """Return `spec.version` of the VirtualControlPlane.

    It is before the version that its objects have only together with a restore, until that has an outcome.
    """
    wanted = found.spec.version
    if before is None:
        return template.first_version(found)
    running, there = before.status.version, before.spec.version
    if not running:
        return wanted or there
    is_back = bool(wanted) and versions.is_before(wanted, running)
    asked = found.spec.snapshots.restore
    is_restored = asked not in ("", before.status.last_restore.requested) and asked in (
        before.spec.snapshots.restore,
        _once(asked, found.status.requests.restore, before.spec.snapshots.restore),
    )
    if is_back and is_restored:
        return wanted
    chosen = there if is_back or not wanted else wanted
    if not chosen or not versions.is_before(chosen, running):
        return chosen
    # A restore that was refused has left it, unless an administrator requests one there now.
    is_due = before.spec.snapshots.restore not in ("", before.status.last_restore.requested)
    return chosen if is_due else versions.minor(running)

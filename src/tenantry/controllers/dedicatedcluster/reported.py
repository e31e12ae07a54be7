"""What the status of a DedicatedCluster has of its control plane, its lease and its template: pure.

status.phase, status.lastSnapshot of the VirtualControlPlane ─► Sleeping, BackedUp
versions of the template                                     ─► UpgradeAvailable
spec.expiresAt                                               ─► Expiring, and then the deletion
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError
from tenantry.api.virtualcontrolplane import PlanePhase
from tenantry.controllers.conclusion import expiring
from tenantry.controllers.dedicatedcluster import template
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.engine.conditions import Wanted
from tenantry.engine.plan import Blocked
from tenantry.hosting import versions
from tenantry.world.leases import ENDLESS, LeaseState, lease


def term(found: DedicatedCluster, now: dt.datetime) -> LeaseState:
    """Return the state of the lease of a cluster; endless if its end is not a time."""
    try:
        return lease(found.spec.expires_at, now)
    except InputError:
        return ENDLESS


def problems(found: DedicatedCluster, now: dt.datetime) -> Iterable[Blocked]:
    """Yield that the end of the lease is not a time."""
    try:
        lease(found.spec.expires_at, now)
    except InputError as error:
        yield Blocked(reason=reasons.INVALID_SPEC, message=f"spec.expiresAt: {error}")


def lapse(found: DedicatedCluster, now: dt.datetime) -> list[Wanted]:
    """Return the condition about the end of the lease, of a cluster of any provider; nothing if it is far away."""
    return expiring(
        found.spec.expires_at,
        term(found, now),
        then="is deleted with all objects inside",
        ended=": the operator deletes it",
    )


def conditions(inputs: ClusterInputs) -> Iterable[Wanted]:
    """Yield the conditions about what is known of a cluster."""
    found, plane = inputs.found, inputs.own_plane
    yield from lapse(found, inputs.now)
    if plane is None:
        return
    if plane.status.phase is PlanePhase.ASLEEP:
        told = "its control plane has no process: the next connection starts it"
        yield Wanted(reasons.SLEEPING, True, reasons.ASLEEP, told, only_true=True)
    last = plane.status.last_snapshot
    if last.message:
        yield Wanted(reasons.BACKED_UP, False, reasons.SNAPSHOT_FAILED, f"the last snapshot failed: {last.message}")
    elif last.snapshot:
        yield Wanted(reasons.BACKED_UP, True, reasons.ESTABLISHED, f"the last snapshot is {last.snapshot!r}")
    newest = template.latest(inputs.template.spec.versions) if inputs.template is not None else ""
    running = versions.minor(plane.status.version) if plane.status.version else ""
    if newest and running and versions.is_before(running, newest):
        told = (
            f"its template offers {newest}, and it has {running}: `tenantry cluster upgrade {found.metadata.name} -n"
            f" {found.metadata.namespace} --plan` shows the way"
        )
        yield Wanted(reasons.UPGRADE_AVAILABLE, True, reasons.VERSION_OFFERED, told, only_true=True)


def last_backup(inputs: ClusterInputs) -> str:
    """Return when the newest snapshot that is kept was taken; "" for none."""
    kept = inputs.own_plane.status.snapshots if inputs.own_plane is not None else ()
    return kept[-1].time if kept else ""

"""Has the credentials of control planes replaced, and renewed when it is time. The glue; `rotation` decides.

A new kubeconfig is issued only when a removed owner can no longer read it on the host.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import TenantryError
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.owner import owner_line
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE, RotationPhase
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.tenantnamespace import OWNER_BINDING
from tenantry.controllers.virtualcontrolplane import rotation
from tenantry.controllers.virtualcontrolplane.rotation import RotationStep
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.tasks import all_of
from tenantry.hosting import activity
from tenantry.hosting.placement import Placement, RunningPlane
from tenantry.hosting.reports import FormerUse

BINDING_SECONDS = 1.0
"""When to look again at a binding from which another controller takes a removed owner."""

LOOK_SECONDS = 30.0
"""How often processes are asked for the clients with certificates of before."""

_FRESH_SECONDS = 2 * (LOOK_SECONDS + activity.ANSWER_SECONDS)
"""How long a report counts: the next one is there by then, if all processes answer."""

log = logging.getLogger(__name__)


class FormerClients:
    """Asks processes which clients still use the credentials of before a gradual rotation.

    Args:
        placement: Where the control planes run.
        group: Runs the questions: users inside can make a process slow, and workers are few.
    """

    def __init__(self, placement: Placement, group: asyncio.TaskGroup) -> None:
        self._placement = placement
        self._group: asyncio.TaskGroup = group
        # By uid.
        self._asked: dict[str, asyncio.Task[tuple[FormerUse, ...] | None]] = {}
        # When all processes had answered.
        self._reported: dict[str, float] = {}

    def has_reported(self, cluster: Cluster, uid: str) -> bool:
        """Return whether all processes of a control plane have reported their clients lately."""
        last = self._reported.get(uid)
        return last is not None and cluster.clock.monotonic() - last <= _FRESH_SECONDS

    def forget(self, uid: str) -> None:
        """Drop what is known of a control plane that is deleted, or has no phase."""
        self._reported.pop(uid, None)
        task = self._asked.pop(uid, None)
        if task is not None:
            task.cancel()

    async def follow(self, cluster: Cluster, found: VirtualControlPlane) -> bool:
        """Record the clients of a control plane that is connected; return whether the status was written.

        Raises:
            ApiError: The status cannot be written.
        """
        uid, credentials = found.metadata.uid, found.status.credentials
        if rotation.is_due(found, cluster.clock.now(), has_reported=self.has_reported(cluster, uid)):
            # What was reported just now has woken nothing.
            cluster.wake(VirtualControlPlane, found.key)
            return True
        if credentials.phase is not RotationPhase.ISSUING or rotation.is_pending(found):
            self.forget(uid)
            return False
        task = self._asked.get(uid)
        if task is not None and not task.done():
            return False
        changed = partial(cluster.wake, VirtualControlPlane, found.key)
        is_first = task is None
        self._asked[uid] = self._group.create_task(self._ask(uid, 0.0 if is_first else LOOK_SECONDS, changed))
        answer = task.result() if task is not None and not task.cancelled() else None
        if answer is None:
            return False
        quiet, now = found.spec.rotation.quiet_seconds, cluster.clock.now()
        clients = rotation.noted(credentials.former_clients, answer, quiet, now)
        self._reported[uid] = cluster.clock.monotonic()
        if clients == credentials.former_clients:
            if rotation.is_due(found, now, has_reported=True):
                cluster.wake(VirtualControlPlane, found.key)
            return False
        status = replace(found.status, credentials=replace(credentials, former_clients=clients))
        # Not quiet: the phase may end.
        await cluster.writer.own(request.replace(replace(found, status=status), subresource="status"))
        return True

    async def _ask(self, uid: str, after_seconds: float, changed: Callable[[], None]) -> tuple[FormerUse, ...] | None:
        """Return what all processes report, None if one of them does not.

        No error leaves this method, because it would end the operator's term.
        """
        found: tuple[FormerUse, ...] | None = None
        await asyncio.sleep(after_seconds)
        try:
            # At once: five slow answers, one after the other, would be older than a report may be.
            answers = await all_of([activity.ask(each, None) for each in self._placement.activity(uid)])
            found = tuple(used for each in answers for used in each.former_clients)
        except (TenantryError, OSError) as error:
            log.warning("a control plane does not report its clients", extra={"uid": uid, "error": str(error)})
            await asyncio.sleep(LOOK_SECONDS)
        changed()
        return found


async def begin(
    cluster: Cluster, found: VirtualControlPlane, namespace: Observed, *, has_reported: bool
) -> RotationStep:
    """Record that credentials are to be replaced; the write wakes the key of the control plane.

    Args:
        cluster: The host.
        found: The control plane.
        namespace: Its namespace.
        has_reported: See `rotation.is_due`.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    gone = rotation.removed(found, namespace)
    if gone and await are_bound(cluster, found.metadata.namespace, gone):
        return RotationStep(again_seconds=BINDING_SECONDS)
    step = rotation.step(found, namespace, cluster.clock.now(), has_reported=has_reported)
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
    return min((running.renewal - cluster.clock.now()).total_seconds(), rotation.LONGEST_SECONDS)


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

"""Keeps the priority levels: one for all tenants, one for each of at most four named ones, and one for mirrors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.flowcontrol import FlowSchema
from tenantry.api.kubernetes import Namespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.conclusion import PATIENCE, problem_of
from tenantry.controllers.fairness import desired, status
from tenantry.controllers.fairness.gather import KINDS, gather, is_guest
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch

ALL = "levels"
"""The one key: all levels are planned together."""

LOOK_AGAIN_SECONDS = 15.0
"""How often to look for new namespaces of tenants that have a level of their own: our own writes wake no controller."""

log = logging.getLogger(__name__)


class FairnessController:
    """Reconciles priority levels and FlowSchemas; the key is always `ALL`."""

    name = "fairness"
    kind = FlowSchema

    def __init__(self) -> None:
        self._reserved: frozenset[str] = frozenset()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            *(watched.watch(resource, _ours) for resource in KINDS),
            watched.defaults(lambda _: [ALL]),
            watched.tenants(self._tenant_keys),
            watched.watch(Namespace.resource, lambda _: ()),
            watched.control_planes(_begins_or_ends),
        ]

    def _tenant_keys(self, change: Change[Tenant]) -> Iterable[str]:
        found = change.after or change.before
        if found is None:
            return ()
        begins_or_ends = (change.before is None or change.after is None) and is_guest(found)
        return [ALL] if begins_or_ends or found.metadata.name in self._reserved else ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - there is one key
        """Apply the plan of the levels; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        inputs = gather(cluster)
        self._reserved = frozenset(inputs.reserved)
        outcome = await cluster.writer.apply(desired.plan(inputs, cluster.writer.equivalent))
        defaults = inputs.defaults
        if defaults is not None and not defaults.metadata.deletion_timestamp:
            problem = problem_of(outcome)
            written = status.compute(defaults, inputs.missing, problem, rfc3339(cluster.clock.now()))
            # Conditions must not flap: a temporary failure is reported only after several tries.
            waits = outcome.error is not None and problem is not None and problem.passing and attempt < PATIENCE
            if written != defaults.status and not waits:
                await cluster.writer.status(msgspec.structs.replace(defaults, status=written))
        for blocked in outcome.blocked:
            log.warning("a priority level is not as it should be", extra={"problem": blocked.message})
        if isinstance(outcome.error, ApiError):
            raise outcome.error
        return LOOK_AGAIN_SECONDS if self._reserved or outcome.blocked else None


def _begins_or_ends(change: Change[VirtualControlPlane]) -> Iterable[str]:
    return [ALL] if change.before is None or change.after is None else ()


def _ours(change: Change[Any]) -> Iterable[str]:
    found = change.after or change.before
    return [ALL] if found is not None and found.name.startswith("tenantry-") else ()

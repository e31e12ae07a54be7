"""Keeps the rules of all namespaces that have none of their own, in Tenantry's namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.tenancyrules import TenancyRules
from tenantry.controllers import watched
from tenantry.controllers.rules import desired
from tenantry.controllers.rules.gather import gather
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed

KEY = "shared"
KINDS = (TenancyRules, PolicyParameters)


class RulesController:
    """Reconciles the shared rules; the key is `KEY`."""

    name = "rules"
    kind = TenancyRules

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.defaults(lambda _: [KEY]),
            # The name of the sandbox stands in the shared rules, too.
            watched.runtime_classes(lambda _: [KEY]),
            *(watched.watch(kind.resource, _concerned) for kind in KINDS),
            # Every cluster has this namespace, and so it has these objects, with or without TenancyDefaults.
            watched.watch(Namespace.resource, _concerned),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - there is one key
        """Apply the plan of the shared rules.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        try:
            plan = desired.plan(gather(cluster), cluster.writer.equivalent)
        except InputError:
            return None  # Ready of TenancyDefaults reports it (inheritance.status); the rules in force stay
        outcome = await cluster.writer.apply(plan)
        if outcome.error is not None:
            raise outcome.error
        return None


def _concerned(change: Change[Any]) -> Iterable[str]:
    value: Observed | None = change.after or change.before
    return [KEY] if value is not None and marks.SYSTEM_NAMESPACE in {value.namespace, value.name} else []

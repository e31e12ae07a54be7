"""The checks of the rules with their examples, for tests of Python and of the API server."""

from __future__ import annotations

from typing import Any

from tenantry.api.marks import RUNTIME, RUNTIME_SANDBOXED, TENANT, TENANT_UID
from tenantry.policy.catalog import CHECKS, TARGETS
from tenantry.policy.check import RuleCheck, RuleTarget
from tenantry.policy.request import Request

Json = dict[str, Any]

SOURCE = "Tenant 'x'"
LABELS = {TENANT: "x", TENANT_UID: "u"}


def target_of(check: RuleCheck) -> RuleTarget:
    """Return the kind of object that a check decides on."""
    return next(target for target in TARGETS if target.name == check.scope.target)


def labels_of(check: RuleCheck) -> dict[str, str]:
    """Return the labels of a namespace in which a check is evaluated."""
    marked = target_of(check).marked
    return LABELS | ({RUNTIME: RUNTIME_SANDBOXED} if marked == RUNTIME else {marked: "true"} if marked else {})


def request_of(check: RuleCheck, value: Json) -> Request:
    """Return the request of a person who creates an object of the kind that a check decides on."""
    target = target_of(check)
    return Request(
        group=target.group,
        resource=target.resources[0],
        namespace="x",
        namespace_labels=labels_of(check),
        object=value,
    )


def names() -> list[str]:
    """Return a name for each check: its rule, its target, and a number if there are several."""
    found: list[str] = []
    for check in CHECKS:
        name = f"{check.rule}-{check.scope.target}"
        found.append(f"{name}-{sum(each.startswith(name) for each in found)}")
    return found


EVERY_CHECK = list(zip(names(), CHECKS, strict=True))

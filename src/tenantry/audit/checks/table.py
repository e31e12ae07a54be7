"""One row of a table of checks. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenantry.audit.check import Attempt, AttemptsOf, AuditCheck, Severity
from tenantry.audit.context import AuditContext

RBAC_FIX = (
    "Remove the right from the roles that give it to this user: `kubectl get clusterrolebindings,rolebindings -A -o"
    " wide` lists them."
)


def check(  # noqa: PLR0917 - a row of a table
    id_: str,
    title: str,
    severity: Severity,
    tries: str,
    proves: str,
    attempts: AttemptsOf,
    *,
    fix: str = RBAC_FIX,
    control: Callable[[AuditContext], Attempt] | None = None,
    **more: Any,  # noqa: ANN401 - the other fields of a check
) -> AuditCheck:
    """Return a check; see `AuditCheck`.

    Args:
        id_: The id without TNT-, as in API-001.
        title: The title.
        severity: The severity.
        tries: What is attempted.
        proves: What is known if the check passes.
        attempts: The requests.
        fix: What to change if it fails; removing a right by default.
        control: A legitimate request of the same kind.
        more: Other fields.
    """
    return AuditCheck(
        id=f"TNT-{id_}",
        title=title,
        severity=severity,
        tries=tries,
        proves=proves,
        fix=fix,
        attempts=attempts,
        control=control,
        **more,
    )

"""Fairness at the API server from the first moment on, also while no operator runs (H06). Pure.

What it is, and why: `controllers/fairness/desired.py`; the operator keeps it as an administrator decides.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api.flowcontrol import FlowSubject, Named
from tenantry.controllers.fairness import desired

Json = dict[str, Any]

COMPONENTS = "tenantry-components"
COMPONENTS_PRECEDENCE = 790

_COMPONENTS = ("system:kube-proxy", "system:kube-dns")
_LOCAL_COMPONENTS = ("tenantry:kwok",)
"""What plays the nodes of a local cluster."""


def everything(subject: Json) -> list[Json]:
    """Return what every cluster gets.

    Args:
        subject: The operator, as RBAC names it; a User is that of a local cluster.
    """
    names = (*_COMPONENTS, *(_LOCAL_COMPONENTS if subject["kind"] == "User" else ()))
    # Some have users of their own, where they are not pods of kube-system.
    components = desired.flow_schema(
        COMPONENTS,
        level_name="system",
        precedence=COMPONENTS_PRECEDENCE,
        subjects=[FlowSubject(kind="User", user=Named(name=name)) for name in names],
    )
    return [
        {"apiVersion": value.resource.api_version, "kind": value.resource.kind, **msgspec.to_builtins(value)}
        for value in (*desired.common(), components)
    ]

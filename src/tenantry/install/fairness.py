"""Fairness at the API server from the installation on, also while no operator runs (H06). Pure.

The levels are explained in `controllers/fairness/desired.py`; the operator keeps them as TenancyDefaults define.
"""

from __future__ import annotations

import msgspec

from tenantry.api.flowcontrol import FlowSubject, Named
from tenantry.api.model import Json
from tenantry.controllers.fairness import desired

COMPONENTS = "tenantry-components"
COMPONENTS_PRECEDENCE = 790

_COMPONENTS = ("system:kube-proxy", "system:kube-dns")
_LOCAL_COMPONENTS = ("tenantry:kwok",)
"""The simulator of nodes in a local cluster."""


def everything(subject: Json) -> list[Json]:
    """Return the levels and FlowSchemas of every cluster.

    Args:
        subject: The operator, as RBAC names it; a User is that of a local cluster.
    """
    names = (*_COMPONENTS, *(_LOCAL_COMPONENTS if subject["kind"] == "User" else ()))
    # Some distributions run them as users of their own instead of as pods of kube-system.
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

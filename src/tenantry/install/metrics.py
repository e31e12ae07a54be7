"""The rights behind /metrics: of the operator to review the tokens of clients, and of those that may read it. Pure."""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.install.rights import allow, cluster_role, given

ROLE = "tenantry-metrics"
READER = "tenantry-metrics-reader"
"""Bind a scraper to it. Prometheus' own roles often have the right already."""


def everything(subject: Json) -> list[Json]:
    """Return the roles, and the binding of the operator's.

    Args:
        subject: The operator, as RBAC names it.
    """
    reviews = [
        allow(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        allow(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ]
    page: Json = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    return [cluster_role(ROLE, rules=reviews), given(ROLE, subject), cluster_role(READER, rules=[page])]

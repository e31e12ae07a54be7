"""Guards: admission policies inside a control plane that its own administrators cannot see, change or delete."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta


class ClusterGuard(StrEnum):
    """The guards; what each refuses is in policy/guards.py."""

    OUTGOING_URLS = "OutgoingUrls"
    OPERATOR_RIGHTS = "OperatorRights"
    NODE_IDENTITY = "NodeIdentity"
    BOOTSTRAP_TOKENS = "BootstrapTokens"


_ABOUT = (
    "OutgoingUrls: webhooks and conversions by `url`. OperatorRights: changes to the roles and bindings of the operator"
    " and of nodes. NodeIdentity: Nodes that users create or delete, their addresses, provider ids and labels of"
    " Tenantry, and approvals of certificates of kubelets. BootstrapTokens: Secrets with tokens by which machines join."
)

Guards = Annotated[
    tuple[ClusterGuard, ...],
    Meta(
        max_length=len(ClusterGuard),
        description=f"What the API server refuses to administrators inside, too. {_ABOUT} Kubernetes 1.36 has the"
        " feature as an alpha: the isolation of tenants never depends on it. Default: none.",
        extra_json_schema={"x-kubernetes-list-type": "set"},
    ),
]

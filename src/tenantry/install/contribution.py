"""The rights of contributed nodes before they join, and the policy on the labels of their owner. Pure.

Source: Kubernetes, "TLS bootstrapping", "Authenticating with Bootstrap Tokens".
"""

from __future__ import annotations

from typing import Any

from tenantry.api import contribution, marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.install.policy import ADMINISTER, bound, by, rule, says, validating
from tenantry.install.rights import LABELS

Json = dict[str, Any]

JOIN = "tenantry-contributed-nodes-join"
RENEW = "tenantry-nodes-renew"
LABELS_POLICY = "tenantry-contributed-nodes"


def everything(subject: Json) -> list[Json]:
    """Return rights and policies.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [
        _given(JOIN, "system:node-bootstrapper", contribution.GROUP),
        # Kubernetes approves the renewal of a node's own certificate.
        _given(RENEW, "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
        *_labels(subject),
    ]


def _given(name: str, role: str, group: str) -> Json:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": dict(LABELS)},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": group}],
    }


def _labels(subject: Json) -> list[Json]:
    """Return the policy that keeps kubelets from setting the owner and the place of their node (E19)."""
    keys = ", ".join(f"'{key}'" for key in marks.OF_CONTRIBUTIONS)

    def of(what: str) -> str:
        return f"[{keys}].map(k, {what}.?metadata.labels[k].orValue(''))"

    none = f"[{keys}].map(k, '')"
    changed = f"{of('object')} != (request.operation == 'CREATE' ? {none} : {of('oldObject')})"
    by_a_node = "request.userInfo.username.startsWith('system:node:')"
    message = (
        f"labels {', '.join(marks.OF_CONTRIBUTIONS)} must not come from a node itself: they are agreed on when it is"
        " contributed"
    )
    policy = validating(
        LABELS_POLICY,
        [rule("", ["nodes", "nodes/status"])],
        [says("false", message)],
        conditions={"says-whose-it-is": f"{by_a_node} && !({by(subject)}) && {changed} && !{ADMINISTER}"},
    )
    return bound(policy)

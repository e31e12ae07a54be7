"""The rights of contributed nodes before they join, and the policy on the labels of their owner. Pure.

Source: Kubernetes, "TLS bootstrapping", "Authenticating with Bootstrap Tokens".
"""

from __future__ import annotations

from tenantry.api import contribution, marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json
from tenantry.install.policy import ADMINISTER, NODES, bound, by, mutating, refusing, rule
from tenantry.install.rights import given

JOIN = "tenantry-contributed-nodes-join"
RENEW = "tenantry-nodes-renew"
LABELS_POLICY = "tenantry-contributed-nodes"
TAINT_POLICY = "tenantry-contributed-node-taint"
_IS_CONTRIBUTED = f"object.metadata.name.startsWith('{contribution.PREFIX}')"
_REQUESTS = "system:certificates.k8s.io:certificatesigningrequests"


def everything(subject: Json) -> list[Json]:
    """Return rights and policies.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [
        given("system:node-bootstrapper", _group(contribution.GROUP), called=JOIN),
        # Kubernetes approves the renewal of a node's own certificate.
        given(f"{_REQUESTS}:selfnodeclient", _group("system:nodes"), called=RENEW),
        *_taint(),
        *_labels(subject),
    ]


def _tainted(what: str) -> str:
    """Return CEL: the effects and values of the taint of contributed nodes."""
    taints = f"{what}.?spec.taints.orValue([]).filter(t, t.key == '{marks.CONTRIBUTED_BY}')"
    return f"{taints}.map(t, string(t.effect) + string(t.?value.orValue(''))).join(',')"


def _taint() -> list[Json]:
    """Return the policy that gives a contributed node its taint when it registers, before a pod can come (E19)."""
    others = f"object.?spec.taints.orValue([]).filter(t, t.key != '{marks.CONTRIBUTED_BY}')"
    ours = f"[{{'key': '{marks.CONTRIBUTED_BY}', 'effect': 'NoSchedule'}}]"
    patch = f"[JSONPatch{{op: 'add', path: '/spec/taints', value: dyn({others}) + dyn({ours})}}]"
    new = rule("", ["nodes"], "CREATE")
    return bound(mutating(TAINT_POLICY, [new], [patch], conditions={"contributed": _IS_CONTRIBUTED}))


def _group(name: str) -> Json:
    return {"apiGroup": RBAC_GROUP, "kind": "Group", "name": name}


def _labels(subject: Json) -> list[Json]:
    """Return the policy that keeps kubelets from setting the owner and the addresses of their node (E19, H06)."""
    keys = ", ".join(f"'{key}'" for key in marks.OF_CONTRIBUTIONS)

    def of(what: str) -> str:
        # As strings: CEL mixes no types in a list.
        labels = f"[{keys}].map(k, string({what}.?metadata.labels[k].orValue('')))"
        addresses = f"string({what}.?metadata.annotations['{marks.NODE_ADDRESSES}'].orValue(''))"
        ranges = f"string({what}.?spec.podCIDR.orValue('')), {what}.?spec.podCIDRs.orValue(['']).join(',')"
        return f"{labels} + [{addresses}, {ranges}, {_tainted(what)}]"

    # The mutating policy below gives the taint to a new node, and no other policy or webhook may remove it.
    none = f"[{keys}, '', '', ''].map(k, '') + [{_IS_CONTRIBUTED} ? 'NoSchedule' : '']"
    changed = f"{of('object')} != (request.operation == 'CREATE' ? {none} : {of('oldObject')})"
    by_a_node = "request.userInfo.username.startsWith('system:node:')"
    message = (
        f"labels {', '.join(marks.OF_CONTRIBUTIONS)}, annotation {marks.NODE_ADDRESSES}, taint {marks.CONTRIBUTED_BY}"
        " and spec.podCIDRs must not come from a node itself: administrators, the operator and controllers of"
        " Kubernetes set them"
    )
    conditions = {"says-whose-it-is": f"{by_a_node} && !({by(subject)}) && {changed} && !{ADMINISTER}"}
    return refusing(LABELS_POLICY, [NODES], message, conditions=conditions)

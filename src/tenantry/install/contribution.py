"""The rights of contributed nodes before they join, and the policy on the labels of their owner. Pure.

Source: Kubernetes, "TLS bootstrapping", "Authenticating with Bootstrap Tokens".
"""

from __future__ import annotations

import msgspec

from tenantry.api import contribution, marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json
from tenantry.api.policyparameters import PREFIX, PolicyParameters
from tenantry.install.policy import (
    ADMINISTER,
    NEW_PODS,
    NODES,
    PARAM_KIND,
    bound,
    by,
    mutating,
    refusing,
    rule,
    says,
    validating,
)
from tenantry.install.rights import given

JOIN = "tenantry-contributed-nodes-join"
RENEW = "tenantry-nodes-renew"
LABELS_POLICY = "tenantry-contributed-nodes"
TAINT_POLICY = "tenantry-contributed-node-taint"
_IS_CONTRIBUTED = f"object.metadata.name.startsWith('{contribution.PREFIX}')"
CERTIFICATES = "tenantry-contributed-node-certificates"
REGISTRATIONS = "tenantry-contributed-node-registrations"
POD_REPORTS = "tenantry-contributed-pod-addresses"
NEW_MIRRORS = "tenantry-contributed-node-pods"
NODE_REPORTS = "tenantry-contributed-node-addresses"
MOST_SECONDS = 86_400
"""The lifetime of a contributed node's certificate: Kubernetes revokes none."""
_BY_NODE = {"by-a-contributed-node": f"request.userInfo.username.startsWith('system:node:{contribution.PREFIX}')"}
_PLACE: Json = {
    "name": contribution.REGISTER,
    "namespace": marks.SYSTEM_NAMESPACE,
    "parameterNotFoundAction": "Deny",
}
_NOT_CURRENT = (
    "'node \\'' + variables.node + '\\' has no current record: it was taken back, or was never contributed; an"
    " administrator runs `tenantry node contribute` for a new token'"
)
_REQUESTS = "system:certificates.k8s.io:certificatesigningrequests"


def everything(subject: Json) -> list[Json]:
    """Return rights and policies.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [
        given("system:node-bootstrapper", _group(contribution.BOOTSTRAPPERS), called=JOIN),
        # Kubernetes approves the renewal of a node's own certificate.
        given(f"{_REQUESTS}:selfnodeclient", _group("system:nodes"), called=RENEW),
        _register(),
        *_certificates(),
        *_registrations(subject),
        *_reports(),
        *_pods(),
        *_taint(),
        *_labels(subject),
    ]


def _register() -> Json:
    """Return the register; the annotations of its nodes are added later, by other field managers."""
    found: Json = msgspec.to_builtins(contribution.register({}))
    kind = {"apiVersion": PolicyParameters.resource.api_version, "kind": PolicyParameters.resource.kind}
    return {**kind, **found, "spec": {"limits": []}}


def _record(node: str) -> dict[str, str]:
    """Return the variables of a policy that has the register as its parameter.

    Args:
        node: CEL: the name of the node.
    """
    found = f"params.?metadata.annotations['{PREFIX}' + variables.node].orValue('')"
    return {"node": node, "record": f"string({found}).split(' ').filter(each, each != '')"}


_CURRENT = "variables.record.size() > 0 && !('ended=true' in variables.record)"
"""CEL: the node has a record, and was not taken back."""


def _certificates() -> list[Json]:
    """Return the policies by which a contributed node has short certificates, and none after it was taken back (E19).

    Kubelets ask for no lifetime, and the default of the signer is a year.
    """
    requests = [rule("certificates.k8s.io", ["certificatesigningrequests"], "CREATE")]
    bootstrap, node = "system:bootstrap:", "system:node:"
    user = "request.userInfo.username"
    by_token = f"{user}.startsWith('{bootstrap}') && '{contribution.BOOTSTRAPPERS}' in request.userInfo.groups"
    conditions = {"contributed": f"{user}.startsWith('{node}{contribution.PREFIX}') || {by_token}"}
    name = (
        f"{user}.startsWith('{node}') ? {user}.substring({len(node)})"
        f" : '{contribution.PREFIX}' + {user}.substring({len(bootstrap)})"
    )
    most = MOST_SECONDS
    patch = (
        f"has(object.spec.expirationSeconds) && object.spec.expirationSeconds <= {most} ? []"
        f" : [JSONPatch{{op: 'add', path: '/spec/expirationSeconds', value: {most}}}]"
    )
    validations = [
        says(
            f"has(object.spec.expirationSeconds) && object.spec.expirationSeconds <= {most}",
            f"spec.expirationSeconds must be at most {most} for a contributed node",
        ),
        says(_CURRENT, _NOT_CURRENT, told=True),
    ]
    policy = validating(
        CERTIFICATES,
        requests,
        validations,
        conditions=conditions,
        variables=_record(name),
        params=PARAM_KIND,
    )
    return [*bound(mutating(CERTIFICATES, requests, [patch], conditions=conditions)), *bound(policy, paramRef=_PLACE)]


def _registrations(subject: Json) -> list[Json]:
    """Return the policy by which a node that was taken back does not register again (E19)."""
    policy = validating(
        REGISTRATIONS,
        [rule("", ["nodes"], "CREATE")],
        [says(_CURRENT, _NOT_CURRENT, told=True)],
        conditions={"contributed": f"{_IS_CONTRIBUTED} && !({by(subject)}) && !{ADMINISTER}"},
        variables=_record("object.metadata.name"),
        params=PARAM_KIND,
    )
    return bound(policy, paramRef=_PLACE)


def _reports() -> list[Json]:
    """Return the policies by which a contributed node reports only addresses of its record (E19, H06).

    The address of a pod decides which NetworkPolicies apply to packets, and the API server connects to the addresses of
    nodes. A record without addresses admits none.
    """
    name = f"request.userInfo.username.substring({len('system:node:')})"

    def field(key: str) -> str:
        found = f"(variables.record.filter(each, each.startsWith('{key}=')) + ['{key}='])[0]"
        return f"{found}.substring({len(key) + 1}).split(',').filter(each, each != '')"

    variables = {**_record(name), "own": field("addresses"), "ranges": field("podCidrs")}
    is_own = "isIP(a) && variables.own.exists(o, ip(o) == ip(a))"
    is_inside = "isIP(a) && variables.ranges.exists(r, cidr(r).containsIP(a))"
    status = "object.?status"
    pod_ips = f"([{status}.podIP.orValue('')] + {status}.podIPs.orValue([]).map(p, p.?ip.orValue('')))"
    host_ips = f"([{status}.hostIP.orValue('')] + {status}.hostIPs.orValue([]).map(p, p.?ip.orValue('')))"
    recorded = (
        f"' must be among \\'' + variables.own.join(', ') + '\\', which {contribution.REGISTER} records for node \\''"
        " + variables.node + '\\'; an administrator runs `tenantry node record --address`'"
    )
    ranged = (
        f"'status.podIPs must be within \\'' + variables.ranges.join(', ') + '\\', which {contribution.REGISTER}"
        " records for node \\'' + variables.node + '\\''"
    )
    of_pods = validating(
        POD_REPORTS,
        [rule("", ["pods/status"], "UPDATE")],
        [
            says(
                f"object.?spec.hostNetwork.orValue(false) ? {pod_ips}.all(a, a == '' || {is_own})"
                f" : {pod_ips}.all(a, a == '' || {is_inside})",
                f"object.?spec.hostNetwork.orValue(false) ? 'status.podIPs of a pod with hostNetwork' + {recorded}"
                f" : {ranged}",
                told=True,
            ),
            says(f"{host_ips}.all(a, a == '' || {is_own})", f"'status.hostIPs' + {recorded}", told=True),
        ],
        conditions=_BY_NODE,
        variables=variables,
        params=PARAM_KIND,
    )
    reported = f"{status}.addresses.orValue([])"
    of_nodes = validating(
        NODE_REPORTS,
        [NODES],
        [
            says(
                f"{reported}.all(r, r.type in ['InternalIP', 'ExternalIP'] ? [r.address].all(a, {is_own})"
                " : r.address == variables.node)",
                f"'each of status.addresses' + {recorded} + ', or the name of the node'",
                told=True,
            )
        ],
        conditions=_BY_NODE,
        variables=variables,
        params=PARAM_KIND,
    )
    return [*bound(of_pods, paramRef=_PLACE), *bound(of_nodes, paramRef=_PLACE)]


def _pods() -> list[Json]:
    """Return the policy by which a contributed node creates no pods (E19).

    A kubelet creates the mirrors of its static pods, in a namespace and with labels that the owner of the node chooses:
    a mirror would be a peer of any tenant and an endpoint of any Service, as of the cluster's DNS. NodeRestriction
    checks neither. The kubelet runs a static pod without its mirror, too.
    """
    message = (
        "pods must not be created by a contributed node: remove the manifest from the staticPodPath of its kubelet, and"
        " create the pod through the API"
    )
    return refusing(NEW_MIRRORS, [NEW_PODS], message, conditions=_BY_NODE)


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

"""The policies that enforce slices: pods run on their namespace's slice, and no other pods run there. Pure.

They read a label of the namespace, so that a pod is bound before a scheduler sees it, also while the operator is down.
Source: Kubernetes, "Mutating Admission Policy", "Taints and Tolerations".
"""

from __future__ import annotations

from tenantry.api.clusterapi import TenantryMachine
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.marks import (
    CLEANED,
    CLEANING,
    CONTRIBUTED_BY,
    CONTRIBUTORS,
    HANDED_OVER,
    HANDED_OVER_TO,
    HANDOVER_RECORD,
    LAST_DRAIN,
    NODE_AGENT,
    OWN_NODES,
    PART,
    PARTS,
    PEERS,
    SLICE,
    SLICE_CLAIM,
    SLICE_RESERVED,
    SYSTEM_NAMESPACE,
    TENANT,
    TENANT_UID,
)
from tenantry.api.model import Json
from tenantry.api.peercluster import NODE_PREFIX, PEER
from tenantry.api.slice import LIMITS_MAP, MAX_GRACE, MAX_GRACE_SECONDS, MIN_GRACE, SliceClaim
from tenantry.hosting import simulation
from tenantry.install.policy import (
    ADMINISTER,
    EXPIRES_LATER,
    KUBERNETES,
    NEW_PODS,
    NODES,
    PARAM_KIND,
    binding,
    bound,
    by,
    exists,
    in_a_tenant,
    mutating,
    not_administrator,
    not_operator,
    refusing,
    rule,
    says,
    validating,
)
from tenantry.policy.text import has_parameter, parameter
from tenantry.policy.users import NOT_MIRRORED

PODS = "tenantry-slice-pods"
TOLERATIONS = "tenantry-node-tolerations"
MARKS = "tenantry-slice-nodes"
HANDOVERS = "tenantry-handed-over-nodes"
CLEANERS = "tenantry-slice-cleaners"
CLAIMS = "tenantry-slice-claims"
GRACE = "tenantry-slice-grace-periods"
OWN = "tenantry-own-nodes"
KEPT = "tenantry-kept-slice-claims"

_SLICED: Json = exists(SLICE)
_NAME = f"namespaceObject.metadata.labels['{SLICE}']"


def everything(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [
        *_bound(),
        *_own_nodes(),
        *_tolerations(),
        *_nodes(subject),
        *_handovers(subject),
        *_cleaners(subject),
        *_claims(subject),
        *_kept(subject),
        *_grace(subject),
    ]


def _bound() -> list[Json]:
    """Return the policies that put pods on their namespace's slice, and check it (E13)."""
    key = SLICE.replace("/", "~1")
    selector = (
        f"[has(object.spec.nodeSelector) ? JSONPatch{{op: 'add', path: '/spec/nodeSelector/{key}', value: {_NAME}}}"
        f" : JSONPatch{{op: 'add', path: '/spec/nodeSelector', value: {{'{SLICE}': {_NAME}}}}}]"
    )
    toleration = f"{{'key': '{SLICE}', 'operator': 'Equal', 'value': {_NAME}}}"
    tolerates = (
        f"object.spec.tolerations.exists(t, t.?key.orValue('') == '{SLICE}' && t.?value.orValue('') == {_NAME}"
        " && !has(t.effect))"
    )
    tolerations = (
        f"!has(object.spec.tolerations) ? [JSONPatch{{op: 'add', path: '/spec/tolerations', value: [{toleration}]}}]"
        f" : {tolerates} ? [] : [JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {toleration}}}]"
    )
    # On contributed nodes, too: the selector keeps the pod on the nodes that the slice has.
    contributed = f"{{'key': '{CONTRIBUTED_BY}', 'operator': 'Exists', 'effect': 'NoSchedule'}}"
    contributions = (
        f"object.spec.tolerations.exists(t, t.?key.orValue('') == '{CONTRIBUTED_BY}' && t.?operator.orValue('') =="
        f" 'Exists') ? [] : [JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {contributed}}}]"
    )
    pods = NEW_PODS
    not_mirror = {"not-a-mirror": NOT_MIRRORED}
    put_there = mutating(PODS, [pods], [selector, tolerations, contributions], conditions=not_mirror, where=_SLICED)
    is_there = says(
        f"object.?spec.nodeSelector['{SLICE}'].orValue('') == {_NAME}",
        f'"spec.nodeSelector must have {SLICE} \'" + {_NAME} + "\': pods of this namespace run on its slice"',
        told=True,
    )
    seen = validating(PODS, [pods], [is_there], conditions=not_mirror, where=_SLICED)
    return [put_there, binding(PODS, "Mutating"), seen, binding(PODS)]


def _own_nodes() -> list[Json]:
    """Return the policy by which pods of a tenant with nodes of its own run nowhere else (E12).

    Its namespaces get the label of a slice when the slice is Bound. Without it, a pod would run on shared nodes: before
    the first node is Bound, in a Subtenant, and in a namespace whose owner has created a nearer claim that gets none.
    """
    missing: Json = {
        "matchExpressions": [{"key": OWN_NODES, "operator": "Exists"}, {"key": SLICE, "operator": "DoesNotExist"}]
    }
    told = (
        f'"namespace \'" + request.namespace + "\' has no nodes yet: pods of Tenant \'" +'
        f" namespaceObject.?metadata.labels['{TENANT}'].orValue('') + \"' run on its own nodes only, because its"
        ' spec.isolation.nodes is Slice; see the SliceClaims of the namespace and of those above"'
    )
    return refusing(OWN, [NEW_PODS], told, conditions={"not-a-mirror": NOT_MIRRORED}, where=missing, told=True)


def _tolerations() -> list[Json]:
    """Return the policy about tolerations of slices, nodes in parts or of others, and peers (E12, E19, E20, H05, L06).

    One policy for all: the API server converts a pod for each policy that it evaluates.
    """
    key, given = "t.?key.orValue('')", "object.spec.?tolerations.orValue([])"
    is_new = (
        "(request.operation == 'CREATE' || !has(oldObject.spec.tolerations)"
        " || object.spec.tolerations != oldObject.spec.tolerations)"
    )
    of_tenant = f"'{TENANT_UID}' in namespaceObject.?metadata.labels.orValue({{}})"
    # A pod that tolerates everything tolerates slices, which is for agents of the cluster only. Conditions do not see
    # the namespace.
    some = f"{given}.exists(t, {key} in ['', '{SLICE}', '{PARTS}', '{CONTRIBUTED_BY}', '{HANDED_OVER}', '{PEER}'])"
    own = f"namespaceObject.?metadata.labels['{SLICE}'].orValue('')"
    all_own = (
        f"{given}.all(t, {key} == '{SLICE}' ? t.?operator.orValue('Equal') == 'Equal'"
        f" && {own} != '' && t.?value.orValue('') == {own} : {key} != '' || !({of_tenant}))"
    )
    labels = "namespaceObject.?metadata.labels"
    admitted = (
        f"([{labels}['{TENANT}'].orValue('')]"
        f" + string(namespaceObject.?metadata.annotations['{CONTRIBUTORS}'].orValue('')).split(','))"
        ".filter(name, name != '')"
    )
    contributed = (
        f"!({of_tenant}) || '{SLICE}' in {labels}.orValue({{}}) || {given}.all(t, {key} !="
        f" '{CONTRIBUTED_BY}' || t.?operator.orValue('Equal') == 'Equal' && t.?value.orValue('') in {admitted})"
    )
    peers = f"string(namespaceObject.?metadata.annotations['{PEERS}'].orValue('')).split(',')"
    selected = (
        f"!({of_tenant}) || {given}.all(t, {key} != '{PEER}'"
        f" || t.?operator.orValue('Equal') == 'Equal' && t.?value.orValue('') != '' && t.value in {peers})"
    )
    # A pod with a nodeName passes by taints, where the rules allow it.
    names = f"request.operation == 'CREATE' && object.spec.?nodeName.orValue('').startsWith('{NODE_PREFIX}')"
    is_there = f"!({of_tenant}) || !({names}) || object.spec.nodeName in {peers}.map(p, '{NODE_PREFIX}' + p)"
    policy = validating(
        TOLERATIONS,
        [rule("", ["pods"])],
        [
            says(
                all_own,
                f"spec.tolerations must not tolerate {SLICE}: these nodes belong to one tenant, whose pods get"
                " the toleration at admission",
            ),
            says(
                f"'{PART}' in namespaceObject.?metadata.labels.orValue({{}}) || !{given}.exists(t, {key} == '{PARTS}')",
                f"spec.tolerations must not tolerate {PARTS}: these nodes are divided into parts, and pods of a part"
                " get the toleration at admission",
            ),
            says(
                f"!({of_tenant}) || !{given}.exists(t, {key} == '{HANDED_OVER}')",
                f"spec.tolerations must not tolerate {HANDED_OVER}: these nodes serve other clusters",
            ),
            says(
                contributed,
                f"'spec.tolerations may tolerate {CONTRIBUTED_BY} only with operator Equal and one of these values: ' +"
                f" {admitted}.join(', ') + '; the owner of a contributed node can read the Secrets of its pods, so an"
                " administrator names other tenants in spec.isolation.contributors of the Tenant'",
                told=True,
            ),
            says(
                selected,
                f"'spec.tolerations may tolerate {PEER} only with operator Equal and the name of a peer that the"
                " NamespaceOffloading of the namespace selects (' + "
                f"{peers}.join(', ') + '): leave the toleration out, pods get it at admission'",
                told=True,
            ),
            says(
                is_there,
                f"spec.nodeName must not begin with {NODE_PREFIX}: this is the Node of a peer that the"
                " NamespaceOffloading of the namespace does not select",
            ),
        ],
        conditions={"tolerates-some": f"{NOT_MIRRORED} && ({some} && {is_new} || {names})"},
    )
    return bound(policy)


def _nodes(subject: Json) -> list[Json]:
    """Return the policy by which only the operator and administrators mark nodes; kubelets may not (E12)."""

    def of(what: str) -> str:
        labels, notes = f"{what}.?metadata.labels", f"{what}.?metadata.annotations"
        taints = f"{what}.?spec.taints.orValue([])"
        return (
            f"[{labels}['{SLICE}'].orValue(''), {labels}['{SLICE_RESERVED}'].orValue(''),"
            f" {notes}['{SLICE_CLAIM}'].orValue(''), {notes}['{CLEANING}'].orValue(''),"
            f" {notes}['{LAST_DRAIN}'].orValue('')]"
            f" + {taints}.filter(t, t.key == '{SLICE}').map(t, t.effect + t.?value.orValue(''))"
        )

    none = "['', '', '', '', '']"
    same = f"({of('object')}) == (request.operation == 'CREATE' ? {none} : {of('oldObject')})"
    message = (
        f"labels, annotations and taints that assign a node to a slice ({SLICE}) must not be changed: the"
        " operator sets them for a SliceClaim"
    )
    conditions = {"changes-marks-of-slices": f"!({by(subject)}) && !({same}) && !{ADMINISTER}"}
    return refusing(MARKS, [NODES], message, conditions=conditions)


def _handovers(subject: Json) -> list[Json]:
    """Return the policy that keeps the marks of nodes that serve other clusters, and what the host gets back (H05)."""

    def of(what: str) -> str:
        labels, notes = f"{what}.?metadata.labels", f"{what}.?metadata.annotations"
        taints = f"{what}.?spec.taints.orValue([])"
        # The operator gives the node back as the record says: what others change meanwhile would be lost, or kwok would
        # run pods of the host there.
        cordon = f"string({what}.?spec.unschedulable.orValue(false))"
        simulated = ", ".join(f"{each}['{simulation.MARK}'].orValue('')" for each in (labels, notes))
        kept = f"'{HANDED_OVER}' in {labels}.orValue({{}}) ? [{simulated}, {cordon}] : []"
        return (
            f"[{labels}['{HANDED_OVER}'].orValue(''), {notes}['{HANDED_OVER_TO}'].orValue(''),"
            f" {notes}['{HANDOVER_RECORD}'].orValue('')] + ({kept})"
            f" + {taints}.filter(t, t.key == '{HANDED_OVER}').map(t, t.effect + t.?value.orValue(''))"
        )

    same = f"({of('object')}) == (request.operation == 'CREATE' ? ['', '', ''] : {of('oldObject')})"
    message = (
        f"the label, annotations and taint of a node that serves another cluster ({HANDED_OVER}), its cordon and"
        f" {simulation.MARK} must not be changed: the operator sets them for a NodeHandover"
    )
    conditions = {"changes-marks-of-handovers": f"!({by(subject)}) && !({same}) && !{ADMINISTER}"}
    return refusing(HANDOVERS, [NODES], message, conditions=conditions)


def _cleaners(subject: Json) -> list[Json]:
    """Return the policy by which only a node itself reports that it is clean (E20)."""

    def of(what: str) -> str:
        notes = f"{what}.?metadata.annotations"
        return f"{notes}['{CLEANED}'].orValue('') + '|' + {notes}['{NODE_AGENT}'].orValue('')"

    changed = f"({of('object')}) != (request.operation == 'CREATE' ? '|' : {of('oldObject')})"
    itself = "request.userInfo.username == 'system:node:' + object.metadata.name"
    message = (
        f"annotations {CLEANED} and {NODE_AGENT} may only be written by the node itself: they report that it is clean"
    )
    conditions = {"answers-for-another-node": f"{changed} && !({by(subject)}) && !({itself}) && !{ADMINISTER}"}
    return refusing(CLEANERS, [NODES], message, conditions=conditions)


def _claims(subject: Json) -> list[Json]:
    """Return the policy for all SliceClaims (E13, X05)."""
    resource = SliceClaim.resource
    validations = [
        in_a_tenant("the SliceClaim"),
        says(EXPIRES_LATER, "spec.expiresAt must be in the future"),
    ]
    about = [rule(resource.group, [resource.plural])]
    operator = not_operator(subject)
    return bound(validating(CLAIMS, about, validations, conditions=operator))


def _kept(subject: Json) -> list[Json]:
    """Return the policy that keeps the SliceClaims of Tenants and clusters from their owners, and its binding (E13).

    An owner could otherwise take more nodes or others, or have the nodes given back, until the operator restores it.
    """
    resource = SliceClaim.resource
    # Users cannot set the label, which is protected. With a reference of this kind on a claim of its own, an owner
    # keeps only itself from changing it.
    of_tenant = (
        f"(oldObject.?metadata.labels['{TENANT}'].orValue('') == oldObject.metadata.name"
        " && oldObject.metadata.name == request.namespace)"
    )
    kinds = ", ".join(f"'{kind.resource.kind}'" for kind in (DedicatedCluster, TenantryMachine))
    is_cluster = f"(o.kind in [{kinds}] && o.?controller.orValue(false))"
    clusters = f"oldObject.?metadata.ownerReferences.orValue([]).filter(o, {is_cluster})"
    refusal = (
        '"SliceClaim \'" + oldObject.metadata.name + "\' is Tenantry\'s: " +'
        f' ({of_tenant} ? "spec.isolation of Tenant \'" + request.namespace + "\' determines it; an administrator'
        f' changes it there" : {clusters}[0].kind + " \'" + {clusters}[0].name + "\' determines it: change its nodes'
        ' there")'
    )
    return refusing(
        KEPT,
        [rule(resource.group, [resource.plural], "UPDATE", "DELETE")],
        refusal,
        conditions={
            "is-kept": f"{of_tenant} || size({clusters}) > 0",
            "not-kubernetes": f"!{KUBERNETES}",
            **not_administrator(subject),
        },
        told=True,
    )


def _grace(subject: Json) -> list[Json]:
    """Return the policy that bounds grace periods (E12); a claim that has one keeps it.

    Before the operator has written the bound, the condition of the claim reports a longer period.
    """
    resource = SliceClaim.resource
    place: Json = {"name": LIMITS_MAP, "namespace": SYSTEM_NAMESPACE, "parameterNotFoundAction": "Allow"}
    least = f"({has_parameter(MIN_GRACE)} ? {parameter(MIN_GRACE)} : '0')"
    most = f"({has_parameter(MAX_GRACE)} ? {parameter(MAX_GRACE)} : '{MAX_GRACE_SECONDS}')"
    policy = validating(
        GRACE,
        [rule(resource.group, [resource.plural])],
        [
            says(
                f"object.spec.gracePeriodSeconds <= int({most})",
                f"'spec.gracePeriodSeconds must be at most ' + {most} + ', which is spec.slices.{MAX_GRACE} of"
                " TenancyDefaults'",
                told=True,
            ),
            # No pods of other tenants leave for a part of a node.
            says(
                f"object.?spec.sharing.orValue('') == 'Part' || object.spec.gracePeriodSeconds >= int({least})",
                f"'spec.gracePeriodSeconds must be at least ' + {least} + ', which is spec.slices.{MIN_GRACE} of"
                " TenancyDefaults'",
                told=True,
            ),
        ],
        conditions={
            "asks-for-one": (
                f"!({by(subject)}) && has(object.spec.gracePeriodSeconds)"
                " && (request.operation == 'CREATE' || !has(oldObject.spec.gracePeriodSeconds)"
                " || object.spec.gracePeriodSeconds != oldObject.spec.gracePeriodSeconds)"
            )
        },
        params=PARAM_KIND,
    )
    return bound(policy, paramRef=place)

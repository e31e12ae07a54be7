"""Where pods may ask to run: nodes, taints, and pods of other tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from tenantry.api.marks import CONTRIBUTED_BY, PART_OPEN, PART_SUFFIX, PARTS, SLICE, ZONE
from tenantry.api.peercluster import PEER, VIRTUAL
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import RuleCheck, listed, quoted
from tenantry.policy.forms import LIST, CheckOptions, allow, refuse
from tenantry.policy.mend import drops
from tenantry.policy.request import Json, Review, part, parts, texts
from tenantry.policy.targets.claims import CHOSEN_NODE, CLAIM, NAMES_NODE, drop_chosen_node, names_node
from tenantry.policy.targets.pods import POD, Item
from tenantry.policy.users import DAEMON_SETS, NOT_MIRRORED, is_mirrored
from tenantry.world.rules import covers

NODE_NAME = "scheduling.nodeName"
NODE_SELECTORS = "scheduling.nodeSelectors"
TOLERATIONS = "scheduling.tolerations"

ALWAYS_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", PARTS, CONTRIBUTED_BY, PEER)
"""Kubernetes itself adds the first two to every pod, and Tenantry the others; a policy of its own checks these."""

CONTROL_PLANE_TAINTS = (
    "CriticalAddonsOnly",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/etcd",
    "node-role.kubernetes.io/master",
)
"""Keys of the taints that keep workloads off control planes.

Sources: Kubernetes, "Well-Known Labels, Annotations and Taints"; the manuals of K3s, RKE and AKS.
"""

NODE_TROUBLE = "node.kubernetes.io/"
"""The prefix of the keys that the DaemonSet controller adds to its pods."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_BY_DAEMON_SETS = f"request.userInfo.username == '{DAEMON_SETS}'"

_IN_SLICE = f"{quoted(SLICE)} in namespaceObject.metadata.labels"
"""CEL: Tenantry itself adds the slice to pods there; a policy of slices checks that it is the right one."""

_OPEN = f"{PART_SUFFIX}{PART_OPEN}"
"""The suffix of the same label for parts of nodes; policies of parts refuse it to pods without a part."""


def _is_added(review: Review, key: str) -> bool:
    """Return whether Tenantry itself has added a node's label, or its toleration, to a pod."""
    return key in {PEER, VIRTUAL} or key.endswith(_OPEN) or (key == SLICE and SLICE in review.request.namespace_labels)


def _first_of(
    rule: str, among: str, of: Callable[[Review], list[str]], *, what: str, **more: Unpack[CheckOptions]
) -> RuleCheck:
    """Return a check of several keys in a pod's spec.

    Args:
        rule: The path of the rule.
        among: CEL with `LIST` for the rule's values: the keys that they do not allow, in any order.
        of: The same in Python.
        what: What is wrong, before the first of them by name.
        more: See `RuleCheck`.
    """

    def find(_: Json, _allowed: Sequence[str], review: Review) -> str | None:
        return min(of(review), default=None)

    # Go's maps have no order.
    return allow(rule, POD, bad=f"size({among}) > 0", find=find, what=what, value=f"{among}.min()", **more)


# -- tolerations ----------------------------------------------------------------------------------

_KEY = "(has(t.key) ? t.key : '')"
_NOT_TOLERATED = (
    f"(has(variables.spec.tolerations) ? variables.spec.tolerations.map(t, {_KEY}).filter(k,"
    f" !(k in {LIST} || k in {listed(ALWAYS_TOLERATED)}"
    f" || k == {quoted(SLICE)} && {_IN_SLICE} || k.startsWith('{NODE_TROUBLE}') && {_BY_DAEMON_SETS})) : [])"
)


def _not_tolerated(review: Review) -> list[str]:
    allowed = (*review.rules.allowed[TOLERATIONS].values, *ALWAYS_TOLERATED)
    keys: list[str] = [each.get("key", "") for each in parts(review.spec, "tolerations")]
    by_daemon_sets = review.request.user == DAEMON_SETS
    others = [key for key in keys if key not in allowed and not _is_added(review, key)]
    return [key for key in others if not (by_daemon_sets and key.startswith(NODE_TROUBLE))]


_FOR_CONTROL_PLANES = "(!has(t.key) || t.key == '' || t.key in {})"
_TOLERATED = "(has(variables.spec.tolerations) ? variables.spec.tolerations : [])"


def _is_for_control_planes(toleration: Json) -> bool:
    """Return whether a toleration is of a control plane's taint, or without a key of all taints."""
    return (toleration.get("key") or "") in {"", *CONTROL_PLANE_TAINTS}


def _drop_control_plane_tolerations(pod: Item, _: Section) -> None:
    pod["spec"]["tolerations"] = [
        each for each in parts(pod, "spec", "tolerations") if not _is_for_control_planes(each)
    ]


def _tolerate_less(pod: Item, rules: Section) -> None:
    allowed = (*rules.allowed[TOLERATIONS].values, *ALWAYS_TOLERATED)
    pod["spec"]["tolerations"] = [each for each in parts(pod, "spec", "tolerations") if each.get("key", "") in allowed]


# -- labels of nodes ------------------------------------------------------------------------------

_SELECTOR = "variables.spec.nodeSelector"
_NOT_SELECTABLE = (
    f"(has({_SELECTOR}) ? {_SELECTOR}.map(k, k).filter(k, !(k in {LIST} || (k + '=' + {_SELECTOR}[k]) in {LIST}"
    f" || k == {quoted(SLICE)} && {_IN_SLICE} || k == {quoted(VIRTUAL)} || k.endsWith({quoted(_OPEN)})))"
    " : [])"
)
_NOT_ATTRACTED = (
    "variables.terms.map(t, (has(t.matchExpressions) ? t.matchExpressions : []).filter(e, !(e.key in"
    f" {LIST} || e.operator == 'In' && e.values.all(v, (e.key + '=' + v) in {LIST}))).map(e, e.key)"
    f" + ({_BY_DAEMON_SETS} || !has(t.matchFields) ? []"
    f" : t.matchFields.filter(e, !(e.key in {LIST})).map(e, e.key)))"
    ".filter(found, size(found) > 0).map(found, found.min())"
)
_AFFINITY = "variables.spec.affinity.nodeAffinity"
_TERMS = (
    "has(variables.spec.affinity) && has(variables.spec.affinity.nodeAffinity)"
    f" ? (has({_AFFINITY}.{_REQUIRED}) ? {_AFFINITY}.{_REQUIRED}.nodeSelectorTerms : [])"
    f" + (has({_AFFINITY}.{_PREFERRED}) ? {_AFFINITY}.{_PREFERRED}.map(t, t.preference) : []) : []"
)
"""CEL: the terms of a pod's node affinity."""


def _not_selectable(review: Review) -> list[str]:
    allowed = review.rules.allowed[NODE_SELECTORS].values
    selector = part(review.spec, "nodeSelector")
    return [k for k, v in selector.items() if not _is_added(review, k) and not covers(allowed, f"{k}={v}")]


def _not_attracted(review: Review) -> list[str]:
    allowed = review.rules.allowed[NODE_SELECTORS].values
    affinity = part(review.spec, "affinity", "nodeAffinity")
    terms = [*parts(affinity, _REQUIRED, "nodeSelectorTerms")]
    terms += [part(each, "preference") for each in parts(affinity, _PREFERRED)]
    by_daemon_sets = review.request.user == DAEMON_SETS
    found: list[str] = []
    for term in terms:
        found += [each["key"] for each in parts(term, "matchExpressions") if not _is_selectable(each, allowed)]
        fields = [] if by_daemon_sets else parts(term, "matchFields")
        found += [each["key"] for each in fields if each["key"] not in allowed]
    return found


def _is_selectable(expression: Mapping[str, Any], allowed: Sequence[str]) -> bool:
    key, values = expression["key"], texts(expression, "values")
    by_value = expression.get("operator") == "In" and all(f"{key}={value}" in allowed for value in values)
    return key in allowed or by_value


def _select_less(pod: Item, rules: Section) -> None:
    spec, allowed = part(pod, "spec"), rules.allowed[NODE_SELECTORS].values
    if "nodeSelector" in spec:
        selector = part(spec, "nodeSelector")
        spec["nodeSelector"] = {key: value for key, value in selector.items() if covers(allowed, f"{key}={value}")}
    affinity = part(spec, "affinity", "nodeAffinity")
    required = part(affinity, _REQUIRED)
    terms = [_term(each, allowed) for each in parts(required, "nodeSelectorTerms")]
    required["nodeSelectorTerms"] = [each for each in terms if each]
    if not required["nodeSelectorTerms"]:
        affinity.pop(_REQUIRED, None)
    if _PREFERRED in affinity:
        wishes = [{**each, "preference": _term(part(each, "preference"), allowed)} for each in affinity[_PREFERRED]]
        affinity[_PREFERRED] = [each for each in wishes if each["preference"]]


def _term(term: Json, allowed: Sequence[str]) -> Json:
    kept = [each for each in parts(term, "matchExpressions") if _is_selectable(each, allowed)]
    fields = [each for each in parts(term, "matchFields") if each["key"] in allowed]
    return {k: v for k, v in {"matchExpressions": kept, "matchFields": fields}.items() if v}


# -- other pods -----------------------------------------------------------------------------------

_KINDS = ("podAffinity", "podAntiAffinity")


def _terms_of(kind: str) -> str:
    """Return CEL: the terms of a pod's affinity of one kind."""
    affinity = f"variables.spec.affinity.{kind}"
    return (
        f"(has({affinity}) ? (has({affinity}.{_REQUIRED}) ? {affinity}.{_REQUIRED} : [])"
        f" + (has({affinity}.{_PREFERRED}) ? {affinity}.{_PREFERRED}.map(t, t.podAffinityTerm) : []) : [])"
    )


_NEIGHBOURS = f"has(variables.spec.affinity) ? {' + '.join(map(_terms_of, _KINDS))} : []"
# Anti-affinity is symmetric: the scheduler puts no pod that it selects on the node of a pod that has it. A Subtenant is
# as separate as another tenant, so the label of the zone decides and not that of the tenant.
_ZONED = f"'{ZONE}' in t.namespaceSelector.?matchLabels.orValue({{}})"
_IN_ZONE = f"t.namespaceSelector.matchLabels['{ZONE}'] == namespaceObject.metadata.labels[?'{ZONE}'].orValue('')"
_SELECTS_OTHER_NAMESPACES = (
    "variables.neighbours.exists(t, has(t.namespaces) && t.namespaces.exists(n, n != request.namespace)"
    f" || has(t.namespaceSelector) && !({_ZONED} && {_IN_ZONE}))"
)


def _neighbours(spec: Json) -> Iterator[Item]:
    """Yield the terms of a pod's affinity and anti-affinity."""
    for kind in _KINDS:
        affinity = part(spec, "affinity", kind)
        yield from parts(affinity, _REQUIRED)
        yield from (part(each, "podAffinityTerm") for each in parts(affinity, _PREFERRED))


def _selects_other_namespaces(spec: Json, review: Review) -> bool:
    zone = review.request.namespace_labels.get(ZONE, "")
    for term in _neighbours(spec):
        if any(each != review.request.namespace for each in texts(term, "namespaces")):
            return True
        selector: Json | None = term.get("namespaceSelector")
        if selector is not None and part(selector, "matchLabels").get(ZONE) != zone:
            return True
    return False


def _drop_namespaces(pod: Item, _: Section) -> None:
    for term in _neighbours(part(pod, "spec")):
        # Without both fields a term means the namespace of the pod.
        term.pop("namespaces", None)
        term.pop("namespaceSelector", None)


_OTHER_POD: Json = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": {}}
_ON_DISK = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}

CHECKS = (
    refuse(
        NODE_NAME,
        POD,
        # On an update the scheduler has set it. The mirror of a kubelet's static pod is created with it.
        bad="(request.operation == 'CREATE' || variables.isTemplate) && has(variables.spec.nodeName)"
        f" && variables.spec.nodeName != '' && {NOT_MIRRORED}",
        is_bad=lambda spec, review: (
            review.request.operation == "CREATE" and bool(spec.get("nodeName")) and not is_mirrored(review.request)
        ),
        what="names its node",
        fix="leave out nodeName, and let the scheduler choose",
        mend=drops("spec.nodeName"),
        example={"spec": {"nodeName": "node-1"}},
        note="A pod with a `nodeName` passes by the scheduler and by taints.",
    ),
    refuse(
        NODE_NAME,
        CLAIM,
        bad=NAMES_NODE,
        is_bad=lambda _, review: names_node(review.request),
        what="names the node of its volume",
        fix=f"leave out the annotation {CHOSEN_NODE}, and let the scheduler choose",
        mend=drop_chosen_node,
        example={"metadata": {"annotations": {CHOSEN_NODE: "node-1"}}},
    ),
    refuse(
        "scheduling.otherTenants",
        POD,
        bad=_SELECTS_OTHER_NAMESPACES,
        is_bad=_selects_other_namespaces,
        what="has affinity or anti-affinity to pods of other tenants",
        fix="leave out namespaces and namespaceSelector, or give namespaceSelector.matchLabels the"
        f" {ZONE} of the namespace",
        variables={"neighbours": _NEIGHBOURS},
        mend=_drop_namespaces,
        example={"spec": {"affinity": {"podAntiAffinity": {_REQUIRED: [_OTHER_POD]}}}},
        note="Affinity to pods in other namespaces of the tenant selects them by"
        f" `namespaceSelector: {{matchLabels: {{{ZONE}: …}}}}`, with the value of the label on the pod's own namespace;"
        " `namespaces` may name the pod's own.",
    ),
    refuse(
        "scheduling.controlPlaneTolerations",
        POD,
        bad=f"{_TOLERATED}.exists(t, {_FOR_CONTROL_PLANES.format(listed(CONTROL_PLANE_TAINTS))}) && {NOT_MIRRORED}",
        is_bad=lambda spec, review: (
            any(map(_is_for_control_planes, parts(spec, "tolerations"))) and not is_mirrored(review.request)
        ),
        what="tolerates the taint of a control plane, or every taint",
        fix="leave out tolerations without a key, and those of control planes",
        mend=_drop_control_plane_tolerations,
        example={"spec": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}},
        note=f"The keys are {', '.join(f'`{each}`' for each in CONTROL_PLANE_TAINTS)}. A toleration without a key"
        " tolerates every taint. Tolerations that the DaemonSet controller adds by itself have other keys.",
    ),
    _first_of(
        TOLERATIONS,
        _NOT_TOLERATED,
        _not_tolerated,
        what="tolerates",
        mend=_tolerate_less,
        example={"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    ),
    _first_of(
        NODE_SELECTORS,
        _NOT_SELECTABLE,
        _not_selectable,
        what="selects nodes by",
        mend=_select_less,
        example={"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}},
        note="Node labels that a RuntimeClass adds to the pod count as the pod's own: allow them, too.",
    ),
    _first_of(
        NODE_SELECTORS,
        _NOT_ATTRACTED,
        _not_attracted,
        what="is attracted to nodes by",
        variables={"terms": _TERMS},
        mend=_select_less,
        example={"spec": {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_ON_DISK]}}}}},
    ),
)

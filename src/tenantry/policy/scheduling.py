"""Where pods may ask to run, before whom, and in which runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tenantry.api.marks import PART_OPEN, PART_SUFFIX, PARTS, RUNTIME, SLICE, ZONE
from tenantry.policy.check import Check, one_of, quoted, told_one_of
from tenantry.policy.items import no_pod
from tenantry.policy.request import Finding, Json, Judged, part, parts, texts
from tenantry.world.rules import RUNTIME_CLASS, RUNTIME_CLASSES, covers

NODE_NAME = "scheduling.nodeName"
NODE_SELECTORS = "scheduling.nodeSelectors"
OTHER_TENANTS = "scheduling.otherTenants"
PRIORITY_CLASSES = "priorityClasses.allowed"
SYSTEM_CLASSES = "priorityClasses.system"
TOLERATIONS = "scheduling.tolerations"
SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")
"""What every cluster has. Source: Kubernetes, "Guaranteed Scheduling For Critical Add-On Pods"."""

DAEMON_SETS = "system:serviceaccount:kube-system:daemon-set-controller"
ALWAYS_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", PARTS)
"""Kubernetes itself puts the first two into every pod, and Tenantry the last; a policy of parts sees to that."""

NODE_TROUBLE = "node.kubernetes.io/"
"""What the keys begin with that its DaemonSet controller puts into pods besides."""

_BY_DAEMON_SETS = f"request.userInfo.username == '{DAEMON_SETS}'"


def _named_class(
    rule: str, field: str, *, is_given: str = "", was_given: Callable[[Judged], bool] = lambda _: False
) -> Check:
    """Return a check of a field of the pod's spec that may be empty or one of a list.

    Args:
        rule: Its path.
        field: As in a pod's spec.
        is_given: CEL: whether Tenantry itself has put it in; "" for never.
        was_given: The same in Python.
    """
    listed = f"variables.allowed[{quoted(rule)}]"
    is_other = f"!(variables.spec.{field} in {listed}.values)" + (f" && !({is_given})" if is_given else "")

    def find(judged: Judged) -> Iterator[Finding]:
        given, names = judged.spec.get(field) or "", judged.rules.allowed[rule]
        if given and given not in names.values and not was_given(judged):
            what = f"has {field} '{given}'"
            yield Finding(rule=rule, source=names.source, path="pod", what=what, fix=told_one_of(names.values))

    return Check(
        rule=rule,
        form="allowed",
        bad=f"has(variables.spec.{field}) && variables.spec.{field} != '' && {is_other}",
        usual=True,
        path="'pod'",
        what=f"'has {field} \\'' + variables.spec.{field} + '\\''",
        source=f"{listed}.source",
        fix=one_of(f"{listed}.values"),
        find=find,
    )


def _listed(rule: str, among: str, what: str, of: Callable[[Judged], list[str]]) -> Check:
    """Return a check that a list of strings is in the rule's.

    Args:
        rule: Its path.
        among: CEL: those that are not allowed, in any order: Go's maps have none.
        what: What the first of them by name is, as in "selects nodes by".
        of: The same as `among`, in Python.
    """
    listed = f"variables.allowed[{quoted(rule)}]"

    def find(judged: Judged) -> Iterator[Finding]:
        names = judged.rules.allowed[rule]
        for each in sorted(of(judged))[:1]:
            said = f"{what} '{each}'"
            yield Finding(rule=rule, source=names.source, path="pod", what=said, fix=told_one_of(names.values))

    return Check(
        rule=rule,
        form="allowed",
        bad=f"size({among}) > 0",
        usual=True,
        path="'pod'",
        what=f"'{what} \\'' + {among}.min() + '\\''",
        source=f"{listed}.source",
        fix=one_of(f"{listed}.values"),
        find=find,
    )


# -- runtimes -------------------------------------------------------------------------------------

_IS_SANDBOX = (
    f"{quoted(RUNTIME)} in namespaceObject.metadata.labels && {quoted(RUNTIME_CLASS)} in variables.chosen"
    f" && variables.spec.runtimeClassName == variables.chosen[{quoted(RUNTIME_CLASS)}].value"
)


def _is_sandbox(judged: Judged) -> bool:
    """Tell whether a pod runs in the sandbox that its namespace is to run in."""
    chosen = judged.rules.chosen.get(RUNTIME_CLASS)
    is_marked = RUNTIME in judged.request.namespace_labels
    return is_marked and chosen is not None and judged.spec.get("runtimeClassName") == chosen.value


# -- slices ---------------------------------------------------------------------------------------

_IN_SLICE = f"{quoted(SLICE)} in namespaceObject.metadata.labels"
"""CEL: Tenantry itself puts the slice into pods there; a policy of slices sees that it is the right one."""

_OPEN = f"{PART_SUFFIX}{PART_OPEN}"
"""The same for parts of nodes; who has none is kept away by the policies of parts."""


def _is_slices(judged: Judged, key: str) -> bool:
    """Tell whether Tenantry itself has put a node's label, or its toleration, into a pod."""
    return key.endswith(_OPEN) or (key == SLICE and SLICE in judged.request.namespace_labels)


# -- tolerations ----------------------------------------------------------------------------------

_KEY = "(has(t.key) ? t.key : '')"
_TOLERATED = f"variables.allowed['{TOLERATIONS}'].values"
_NOT_TOLERATED = (
    f"(has(variables.spec.tolerations) ? variables.spec.tolerations.map(t, {_KEY}).filter(k,"
    f" !(k in {_TOLERATED} || k in {list(ALWAYS_TOLERATED)}"
    f" || k == {quoted(SLICE)} && {_IN_SLICE} || k.startsWith('{NODE_TROUBLE}') && {_BY_DAEMON_SETS})) : [])"
)


def _not_tolerated(judged: Judged) -> list[str]:
    allowed = (*judged.rules.allowed[TOLERATIONS].values, *ALWAYS_TOLERATED)
    keys: list[str] = [each.get("key", "") for each in parts(judged.spec, "tolerations")]
    by_daemon_sets = judged.request.user == DAEMON_SETS
    others = [key for key in keys if key not in allowed and not _is_slices(judged, key)]
    return [key for key in others if not (by_daemon_sets and key.startswith(NODE_TROUBLE))]


# -- labels of nodes ------------------------------------------------------------------------------

_LABELS = f"variables.allowed['{NODE_SELECTORS}'].values"
_SELECTOR = "variables.spec.nodeSelector"
_AFFINITY = "variables.spec.affinity.nodeAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NOT_SELECTABLE = (
    f"(has({_SELECTOR}) ? {_SELECTOR}.map(k, k).filter(k, !(k in {_LABELS} || (k + '=' + {_SELECTOR}[k]) in {_LABELS}"
    f" || k == {quoted(SLICE)} && {_IN_SLICE} || k.endsWith({quoted(_OPEN)})))"
    " : [])"
)
_NOT_ATTRACTED = (
    "variables.terms.map(t, (has(t.matchExpressions) ? t.matchExpressions : []).filter(e, !(e.key in"
    f" {_LABELS} || e.operator == 'In' && e.values.all(v, (e.key + '=' + v) in {_LABELS}))).map(e, e.key)"
    f" + ({_BY_DAEMON_SETS} || !has(t.matchFields) ? []"
    f" : t.matchFields.filter(e, !(e.key in {_LABELS})).map(e, e.key)))"
    ".filter(found, size(found) > 0).map(found, found.min())"
)

TERMS = (
    "has(variables.spec.affinity) && has(variables.spec.affinity.nodeAffinity)"
    f" ? (has({_AFFINITY}.{_REQUIRED}) ? {_AFFINITY}.{_REQUIRED}.nodeSelectorTerms : [])"
    f" + (has({_AFFINITY}.{_PREFERRED}) ? {_AFFINITY}.{_PREFERRED}.map(t, t.preference) : []) : []"
)
"""CEL of the variable `terms`: what a pod's node affinity is made of."""


def _not_selectable(judged: Judged) -> list[str]:
    allowed = judged.rules.allowed[NODE_SELECTORS].values
    selector = part(judged.spec, "nodeSelector")
    given = {key: value for key, value in selector.items() if not _is_slices(judged, key)}
    return [key for key, value in given.items() if not covers(allowed, f"{key}={value}")]


def _not_attracted(judged: Judged) -> list[str]:
    allowed = judged.rules.allowed[NODE_SELECTORS].values
    affinity = part(judged.spec, "affinity", "nodeAffinity")
    terms = [*parts(affinity, _REQUIRED, "nodeSelectorTerms")]
    terms += [part(each, "preference") for each in parts(affinity, _PREFERRED)]
    by_daemon_sets = judged.request.user == DAEMON_SETS
    found: list[str] = []
    for term in terms:
        for each in parts(term, "matchExpressions"):
            named = [f"{each['key']}={value}" in allowed for value in texts(each, "values")]
            if each["key"] not in allowed and not (each["operator"] == "In" and all(named)):
                found.append(each["key"])
        fields = [] if by_daemon_sets else parts(term, "matchFields")
        found += [each["key"] for each in fields if each["key"] not in allowed]
    return found


# -- other pods -----------------------------------------------------------------------------------

_KINDS = ("podAffinity", "podAntiAffinity")


def _terms_of(kind: str) -> str:
    """Return CEL for what a pod's affinity of one kind is made of."""
    affinity = f"variables.spec.affinity.{kind}"
    return (
        f"(has({affinity}) ? (has({affinity}.{_REQUIRED}) ? {affinity}.{_REQUIRED} : [])"
        f" + (has({affinity}.{_PREFERRED}) ? {affinity}.{_PREFERRED}.map(t, t.podAffinityTerm) : []) : [])"
    )


NEIGHBOURS = f"has(variables.spec.affinity) ? {' + '.join(map(_terms_of, _KINDS))} : []"
"""CEL of the variable `neighbours`: to which other pods a pod wants to be near, or from which away."""

# Away from is away from it, too: where such a pod runs, the scheduler puts none of those that it names. A Subtenant is
# apart as another tenant is, so the label of the zone counts and not that of the tenant.
_ZONED = f"'{ZONE}' in t.namespaceSelector.?matchLabels.orValue({{}})"
_IN_ZONE = f"t.namespaceSelector.matchLabels['{ZONE}'] == namespaceObject.metadata.labels[?'{ZONE}'].orValue('')"
_LOOKS_ELSEWHERE = (
    "variables.neighbours.exists(t, has(t.namespaces) && t.namespaces.exists(n, n != request.namespace)"
    f" || has(t.namespaceSelector) && !({_ZONED} && {_IN_ZONE}))"
)


def neighbours(spec: Json) -> Iterator[dict[str, Any]]:
    """Yield the same in Python: the terms of a pod's affinity and anti-affinity, as they stand in its spec."""
    for kind in _KINDS:
        affinity = part(spec, "affinity", kind)
        yield from parts(affinity, _REQUIRED)
        yield from (part(each, "podAffinityTerm") for each in parts(affinity, _PREFERRED))


def _looks_elsewhere(judged: Judged) -> bool:
    zone = judged.request.namespace_labels.get(ZONE, "")
    for term in neighbours(judged.spec):
        if any(each != judged.request.namespace for each in texts(term, "namespaces")):
            return True
        selector: Json | None = term.get("namespaceSelector")
        if selector is not None and part(selector, "matchLabels").get(ZONE) != zone:
            return True
    return False


SCHEDULING = (
    no_pod(
        NODE_NAME,
        # It is there after the scheduler has said so; a kubelet's own pods, which it mirrors, are born with it.
        bad="(request.operation == 'CREATE' || variables.isTemplate) && has(variables.spec.nodeName)"
        " && variables.spec.nodeName != ''"
        " && !('system:nodes' in request.userInfo.groups)",
        what="names its node",
        fix="leave out nodeName, and let the scheduler choose",
        is_bad=lambda judged: (
            judged.request.operation == "CREATE"
            and bool(judged.spec.get("nodeName"))
            and "system:nodes" not in judged.request.groups
        ),
    ),
    no_pod(
        OTHER_TENANTS,
        bad=_LOOKS_ELSEWHERE,
        what="has affinity or anti-affinity to pods of other tenants",
        fix="leave out namespaces and namespaceSelector, or give namespaceSelector.matchLabels the"
        f" {ZONE} of the namespace",
        is_bad=_looks_elsewhere,
    ),
    _named_class(RUNTIME_CLASSES, "runtimeClassName", is_given=_IS_SANDBOX, was_given=_is_sandbox),
    _named_class(PRIORITY_CLASSES, "priorityClassName"),
    no_pod(
        SYSTEM_CLASSES,
        bad="has(variables.spec.priorityClassName) && variables.spec.priorityClassName in"
        f" [{', '.join(map(quoted, SYSTEM_PRIORITIES))}]",
        what="has a PriorityClass of the cluster's own, before which all others give way",
        fix="leave out priorityClassName",
        is_bad=lambda judged: judged.spec.get("priorityClassName") in SYSTEM_PRIORITIES,
    ),
    _listed(TOLERATIONS, _NOT_TOLERATED, "tolerates", _not_tolerated),
    _listed(NODE_SELECTORS, _NOT_SELECTABLE, "selects nodes by", _not_selectable),
    _listed(NODE_SELECTORS, _NOT_ATTRACTED, "is attracted to nodes by", _not_attracted),
)

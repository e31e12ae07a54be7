"""The policies by which parts of nodes hold: pods of a part keep within it, and nobody else comes near. Pure.

What a container may take at most, its limits, is written into it as resources of its namespace's part. So the scheduler
itself lets no more pods onto a node than the part holds, and the kubelet lets none take more than it said. Source:
Kubernetes, "Mutating Admission Policy", "Extended Resources", "Taints and Tolerations".
"""

from __future__ import annotations

from typing import Any

from tenantry.api.marks import CPU_MILLI, MEMORY_MIB, PART, PART_OPEN, PART_SUFFIX, PARTS
from tenantry.install.policy import ADMINISTER, binding, by, mutating, rule, says, validating
from tenantry.policy.sandbox import NOT_MIRRORED

Json = dict[str, Any]

PODS = "tenantry-part-pods"
RESIZES = "tenantry-part-resizes"
TOLERATIONS = "tenantry-part-tolerations"
NODES = "tenantry-part-nodes"

_IN_PARTS: Json = {"matchExpressions": [{"key": PART, "operator": "Exists"}]}
_NAME = f"namespaceObject.metadata.labels['{PART}']"
_MINE = {"name": "mine", "expression": f"{_NAME} + '{PART_SUFFIX}'"}
_POD: Json = {**rule("", ["pods"], "CREATE"), "apiVersions": ["v1"]}
_NOT_MIRROR = {"name": "not-a-mirror", "expression": NOT_MIRRORED}

# In whole units, rounded up; a double holds each of them exactly, and what it adds in the last digits must not count.
_AMOUNTS = {
    CPU_MILLI: ("cpu", "quantity(c.resources.limits.cpu).asApproximateFloat() * 1000.0 + 0.999"),
    MEMORY_MIB: ("memory", "(quantity(c.resources.limits.memory).asApproximateFloat() + 1048575.0) / 1048576.0"),
}


def everything(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [*_bound(), *_kept(), *_tolerations(), *_nodes(subject)]


def _bound() -> list[Json]:
    """Return what binds pods to their namespace's part (E20)."""
    selector = (
        f"[has(object.spec.nodeSelector) ? JSONPatch{{op: 'add', path: '/spec/nodeSelector/' +"
        f" jsonpatch.escapeKey(variables.mine + '{PART_OPEN}'), value: 'true'}}"
        f" : JSONPatch{{op: 'add', path: '/spec/nodeSelector', value: {{variables.mine + '{PART_OPEN}': 'true'}}}}]"
    )
    toleration = f"{{'key': '{PARTS}', 'operator': 'Exists', 'effect': 'NoSchedule'}}"
    tolerations = (
        f"!has(object.spec.tolerations) ? [JSONPatch{{op: 'add', path: '/spec/tolerations', value: [{toleration}]}}]"
        f" : object.spec.tolerations.exists(t, t.?key.orValue('') == '{PARTS}') ? []"
        f" : [JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {toleration}}}]"
    )
    takes = [_takes(among, what) for among in ("containers", "initContainers") for what in _AMOUNTS]
    policy = mutating(PODS, [_POD], [selector, tolerations, *takes], conditions=[_NOT_MIRROR], where=_IN_PARTS)
    policy["spec"]["variables"] = [_MINE]
    return [policy, binding(PODS, "Mutating")]


def _takes(among: str, what: str) -> str:
    """Return the patch by which containers take of the part what their limits are; requests follow from limits."""
    resource, amount = _AMOUNTS[what]
    path = f"'/spec/{among}/' + string(i) + '/resources/limits/' + jsonpatch.escapeKey(variables.mine + '{what}')"
    return (
        f"object.spec.?{among}.orValue([]).transformList(i, c, '{resource}' in c.?resources.limits.orValue({{}}),"
        f" JSONPatch{{op: 'add', path: {path}, value: string(int({amount}))}})"
    )


def _kept() -> list[Json]:
    """Return what sees that pods keep within their part, whatever came after it was put in (E20)."""
    containers = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    limits = "c.?resources.limits"
    some = f"quantity({limits}[k].orValue('0')).isGreaterThan(quantity('0'))"
    limited = f"{containers}.all(c, ['cpu', 'memory'].all(k, {some}))"
    counted = " && ".join(
        f"{limits}[variables.mine + '{what}'].orValue('') == string(int({amount}))"
        for what, (_, amount) in _AMOUNTS.items()
    )
    no_others = f"{limits}.orValue({{}}).all(k, !k.contains('{PART_SUFFIX}') || k.startsWith(variables.mine))"
    within = (
        f"object.?spec.nodeSelector[variables.mine + '{PART_OPEN}'].orValue('') == 'true'"
        f" && (!variables.limited || {containers}.all(c, {counted} && {no_others}))"
    )
    policy = validating(
        PODS,
        [_POD],
        [
            says(
                "variables.limited",
                "each container must have limits of cpu and memory: they are what it takes of the part of a node that"
                " pods of this namespace run in",
            ),
            says(
                "!has(object.spec.resources)",
                "spec.resources must not be given: what pods of this namespace take of their part of a node are the"
                " limits of their containers",
            ),
            says(
                within,
                "the pod must keep what it was given for its part of a node: something that changes pods after"
                f" {PODS} took it away",
            ),
        ],
        conditions=[_NOT_MIRROR],
        where=_IN_PARTS,
        variables=[_MINE, {"name": "limited", "expression": limited}],
    )
    resizes = validating(
        RESIZES,
        [rule("", ["pods/resize"], "UPDATE")],
        [says("false", "pods of a part of a node must not be resized: make the pod anew")],
        where=_IN_PARTS,
    )
    return [policy, binding(PODS), resizes, binding(RESIZES)]


def _tolerations() -> list[Json]:
    """Return what keeps pods of no part from tolerating nodes that are given out in parts (E20)."""
    is_new = (
        "(request.operation == 'CREATE' || !has(oldObject.spec.tolerations)"
        " || object.spec.tolerations != oldObject.spec.tolerations)"
    )
    tolerates = f"object.spec.tolerations.exists(t, t.?key.orValue('') == '{PARTS}')"
    policy = validating(
        TOLERATIONS,
        [rule("", ["pods"], "CREATE", "UPDATE")],
        [
            says(
                f"'{PART}' in namespaceObject.?metadata.labels.orValue({{}})",
                f"spec.tolerations must not tolerate {PARTS}: those nodes are given out in parts, and pods of a part"
                " get the toleration by themselves",
            )
        ],
        conditions=[
            {
                "name": "tolerates-parts",
                "expression": f"has(object.spec.tolerations) && {NOT_MIRRORED} && {is_new} && {tolerates}",
            }
        ],
    )
    return [policy, binding(TOLERATIONS)]


def _nodes(subject: Json) -> list[Json]:
    """Return what keeps the marks of parts on nodes from everybody but the operator and administrators (E20)."""

    def labels(what: str) -> str:
        ours = f"k == '{PARTS}' || k.contains('{PART_SUFFIX}')"
        return f"{what}.?metadata.labels.orValue({{}}).transformMap(k, v, {ours}, v)"

    def tainted(what: str) -> str:
        return f"{what}.?spec.taints.orValue([]).exists(t, t.key == '{PARTS}')"

    none = f"{labels('object')}.size() == 0 && !{tainted('object')}"
    same = f"{labels('object')} == {labels('oldObject')} && {tainted('object')} == {tainted('oldObject')}"
    unchanged = f"(request.operation == 'CREATE' ? {none} : {same})"
    changes = f"!({by(subject)}) && !{unchanged} && !{ADMINISTER}"
    policy = validating(
        NODES,
        [rule("", ["nodes", "nodes/status"], "CREATE", "UPDATE")],
        [
            says(
                "false",
                f"labels and taints that say who has a part of a node ({PARTS}, *{PART_SUFFIX}*) must not be changed:"
                " they come from administrators and SliceClaims",
            )
        ],
        conditions=[{"name": "changes-marks-of-parts", "expression": changes}],
    )
    return [policy, binding(NODES)]

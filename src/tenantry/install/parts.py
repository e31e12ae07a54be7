"""The policies that enforce parts of nodes: pods of a part stay within it, and no other pod runs there. Pure.

A mutating policy writes the limits of a container into it as resources of its namespace's part. So the scheduler puts
no more pods on a node than the part holds, and kubelet enforces the limits.

Source: Kubernetes, "Mutating Admission Policy", "Extended Resources", "Taints and Tolerations".
"""

from __future__ import annotations

from tenantry.api.marks import CPU_MILLI, MEMORY_MIB, PART, PART_OPEN, PART_SUFFIX, PARTS
from tenantry.api.model import Json
from tenantry.install.policy import (
    ADMINISTER,
    NEW_PODS,
    NODES,
    binding,
    bound,
    by,
    exists,
    items,
    mutating,
    refusing,
    rule,
    says,
    validating,
)
from tenantry.policy.users import NOT_MIRRORED

PODS = "tenantry-part-pods"
RESIZES = "tenantry-part-resizes"
MARKS = "tenantry-part-nodes"

_IN_PARTS: Json = exists(PART)
_NAME = f"namespaceObject.metadata.labels['{PART}']"
_MINE = {"mine": f"{_NAME} + '{PART_SUFFIX}'"}
_NOT_MIRROR = {"not-a-mirror": NOT_MIRRORED}

_CONTAINERS, _FIRST = "containers", "initContainers"
_RESOURCES = {CPU_MILLI: "cpu", MEMORY_MIB: "memory"}


def _amount(what: str, over: str) -> str:
    """Return CEL: how much of a part the container `c` takes: its limit, and the overhead of the sandbox.

    In whole units, rounded up; a double holds each of them exactly, and its rounding in the last digits must not count.

    Args:
        what: CPU_MILLI or MEMORY_MIB.
        over: CEL: whether the overhead counts for this container; "" for always.
    """
    resource = _RESOURCES[what]
    beside = f"({over} ? variables.over_{resource} : 0.0)" if over else f"variables.over_{resource}"
    whole = f"quantity(c.resources.limits.{resource}).asApproximateFloat() + {beside}"
    return f"({whole}) * 1000.0 + 0.999" if what == CPU_MILLI else f"({whole} + 1048575.0) / 1048576.0"


_OVERHEADS = {
    f"over_{resource}": f"quantity(object.?spec.overhead.{resource}.orValue('0')).asApproximateFloat()"
    for resource in _RESOURCES.values()
}


def everything(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [*_bound(), *_kept(), *_nodes(subject)]


def _bound() -> list[Json]:
    """Return the policy that binds pods to their namespace's part (E20)."""
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
    takes = [_takes(among, what) for among in (_CONTAINERS, _FIRST) for what in _RESOURCES]
    # Evaluated again after Kubernetes has added the overhead of a sandbox that another policy has chosen.
    policy = mutating(
        PODS,
        [NEW_PODS],
        [selector, tolerations, *takes],
        conditions=_NOT_MIRROR,
        where=_IN_PARTS,
        reinvoked="IfNeeded",
        variables={**_MINE, **_OVERHEADS},
    )
    return bound(policy)


def _takes(among: str, what: str) -> str:
    """Return the patch that writes the limits of containers as resources of the part."""
    # As the scheduler counts it: the overhead is added to the containers together, or to the largest init container.
    amount = _amount(what, "i == 0" if among == _CONTAINERS else "")
    limited = f"'{_RESOURCES[what]}' in c.?resources.limits.orValue({{}})"
    path = f"'/resources/' + jsonpatch.escapeKey(variables.mine + '{what}')"
    sides = (
        f"{items(f'object.spec.{among}')}.transformList(i, c, {limited}, JSONPatch{{op: 'add',"
        f" path: '/spec/{among}/' + string(i) + {path.replace('/resources/', f'/resources/{side}/')},"
        f" value: string(int({amount}))}})"
        for side in ("limits", "requests")
    )
    return " + ".join(sides)


def _kept() -> list[Json]:
    """Return the policies that refuse pods outside of their part, whatever other mutating policies do (E20)."""
    containers, first = f"object.spec.{_CONTAINERS}", f"object.spec.?{_FIRST}.orValue([])"
    limits = "c.?resources.limits"
    some = f"quantity({limits}[k].orValue('0')).isGreaterThan(quantity('0'))"
    limited = f"({containers} + {first}).all(c, ['cpu', 'memory'].all(k, {some}))"
    no_others = f"{limits}.orValue({{}}).all(k, !k.contains('{PART_SUFFIX}') || k.startsWith(variables.mine))"

    def counted(over: str) -> str:
        return " && ".join(
            f"{limits}[variables.mine + '{what}'].orValue('') == string(int({_amount(what, over)}))"
            for what in _RESOURCES
        )

    within = (
        f"object.?spec.nodeSelector[variables.mine + '{PART_OPEN}'].orValue('') == 'true' && (!variables.limited"
        f" || {containers}.all(i, c, {counted('i == 0')} && {no_others})"
        f" && {first}.all(c, {counted('')} && {no_others}))"
    )
    policy = validating(
        PODS,
        [NEW_PODS],
        [
            says(
                "variables.limited",
                "each container must have limits of cpu and memory: they are its share of the part of a node that"
                " pods of this namespace run in",
            ),
            says(
                "!has(object.spec.resources)",
                "spec.resources must not be given: what pods of this namespace take of their part of a node are the"
                " limits of their containers",
            ),
            says(
                within,
                "the pod must keep the resources of its part of a node: a policy or webhook that runs"
                f" after {PODS} removed them",
            ),
        ],
        conditions=_NOT_MIRROR,
        where=_IN_PARTS,
        variables={**_MINE, **_OVERHEADS, "limited": limited},
    )
    resizes = validating(
        RESIZES,
        [rule("", ["pods/resize"], "UPDATE")],
        [says("false", "pods of a part of a node must not be resized: create a new pod")],
        where=_IN_PARTS,
    )
    return [policy, binding(PODS), resizes, binding(RESIZES)]


def _nodes(subject: Json) -> list[Json]:
    """Return the policy that lets only the operator and administrators mark parts on nodes (E20)."""

    def labels(what: str) -> str:
        ours = f"k == '{PARTS}' || k.contains('{PART_SUFFIX}')"
        return f"{what}.?metadata.labels.orValue({{}}).transformMap(k, v, {ours}, v)"

    def tainted(what: str) -> str:
        return f"{what}.?spec.taints.orValue([]).exists(t, t.key == '{PARTS}')"

    none = f"{labels('object')}.size() == 0 && !{tainted('object')}"
    same = f"{labels('object')} == {labels('oldObject')} && {tainted('object')} == {tainted('oldObject')}"
    unchanged = f"(request.operation == 'CREATE' ? {none} : {same})"
    changes = f"!({by(subject)}) && !{unchanged} && !{ADMINISTER}"
    message = (
        f"labels and taints that assign parts of a node ({PARTS}, *{PART_SUFFIX}*) must not be changed: administrators"
        " and the operator set them"
    )
    return refusing(MARKS, [NODES], message, conditions={"changes-marks-of-parts": changes})

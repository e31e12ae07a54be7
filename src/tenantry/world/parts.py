"""Which nodes a slice gets parts of: pure.

    all nodes ─► why each one does not match ─► those that match, the fullest first ─► as many as the claim requests

A part is an amount of CPU and memory of one node. The labels of a node record the part of each slice, and their sum
never exceeds the capacity of the node. Among matching nodes, those with the least left over are taken, so that large
parts still fit elsewhere; then by name. The same input gives the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction
from math import ceil, floor

import msgspec

from tenantry.api.marks import CPU_MILLI, MEMORY_MIB, PART_OPEN, PART_SUFFIX, PARTS
from tenantry.api.slice import SliceClaimSpec
from tenantry.world.quantity import parse, write
from tenantry.world.slices.selection import CONTROL_PLANE, Choice, NodeState, unlike, why_no_more

MIB = 2**20


class Size(msgspec.Struct, frozen=True):
    """Of a part: thousandths of a CPU, and MiB of memory."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: Size) -> Size:
        """Return both together."""
        return Size(self.cpu + other.cpu, self.memory + other.memory)

    def __sub__(self, other: Size) -> Size:
        """Return the difference; negative if the other is larger."""
        return Size(self.cpu - other.cpu, self.memory - other.memory)

    def holds(self, other: Size) -> bool:
        """Return whether the other fits in it."""
        return self.cpu >= other.cpu and self.memory >= other.memory

    def __str__(self) -> str:
        """Return it as in a message."""
        cpu, memory = Fraction(max(0, self.cpu), 1000), Fraction(max(0, self.memory) * MIB)
        return f"cpu {write(cpu)}, memory {write(memory, binary=True)}"


class PartNode(NodeState, frozen=True, kw_only=True):
    """A node whose labels record the parts that it has given.

    Args:
        room: The capacity for pods.
        others: What pods outside of any part request.
        set_aside: A taint keeps other pods away.
    """

    room: Size = Size()
    others: Size = Size()
    set_aside: bool = True

    @property
    def left(self) -> Size:
        """Return what it can still give."""
        return self.room - self.others - sum(parts_of(self.labels).values(), Size())


# -- how a part is written down -------------------------------------------------------------------


def size_of(resources: Mapping[str, str | int]) -> Size:
    """Return the size of a part that holds these resources, in whole thousandths and MiB.

    Raises:
        InputError: One of them is not a quantity.
    """
    return rounded_up(parse(resources.get("cpu", "0")), parse(resources.get("memory", "0")))


def rounded_up(cpu: Fraction, memory: Fraction) -> Size:
    """Return the size that holds amounts of CPUs and bytes, in whole thousandths and MiB."""
    return Size(ceil(cpu * 1000), ceil(memory / MIB))


def room_of(allocatable: Mapping[str, str]) -> Size:
    """Return the capacity of a node for pods, in whole thousandths and MiB."""
    return Size(floor(parse(allocatable.get("cpu", "0")) * 1000), floor(parse(allocatable.get("memory", "0")) / MIB))


def key(name: str, what: str) -> str:
    """Return the label key that records a slice's part of a node.

    Args:
        name: Of the slice.
        what: CPU_MILLI, MEMORY_MIB or PART_OPEN.
    """
    return f"{name}{PART_SUFFIX}{what}"


def resources_of(name: str, size: Size) -> dict[str, str]:
    """Return the extended resources of a part, which are labels, too."""
    return {key(name, CPU_MILLI): str(size.cpu), key(name, MEMORY_MIB): str(size.memory)}


def parts_of(labels: Mapping[str, str]) -> dict[str, Size]:
    """Return the parts that a node has given: slice to size."""
    found: dict[str, Size] = {}
    for label, value in labels.items():
        name, suffix, what = label.partition(PART_SUFFIX)
        if suffix and value.isascii() and value.isdigit():
            if what == CPU_MILLI:
                found[name] = found.get(name, Size()) + Size(cpu=int(value))
            elif what == MEMORY_MIB:
                found[name] = found.get(name, Size()) + Size(memory=int(value))
    return found


def is_open(labels: Mapping[str, str], name: str) -> bool:
    """Return whether the scheduler may place pods of a slice on its part of a node."""
    return key(name, PART_OPEN) in labels


def is_shared(labels: Mapping[str, str]) -> bool:
    """Return whether an administrator has labelled a node to be given out in parts."""
    return labels.get(PARTS) == "true"


# -- selection ------------------------------------------------------------------------------------


def choose(spec: SliceClaimSpec, nodes: Iterable[PartNode], name: str) -> Choice:
    """Return the nodes that a claim gets parts of, in addition to those where it has one.

    Args:
        spec: Of the claim.
        nodes: All nodes of the cluster.
        name: Of the slice.
    """
    size = size_of(spec.per_node)
    held: set[str] = set()
    refused: dict[str, str] = {}
    fitting: list[PartNode] = []
    for node in nodes:
        if name in parts_of(node.labels):
            held.add(node.name)
            continue
        why = why_not(node, spec, size)
        if why:
            refused[node.name] = why
        else:
            fitting.append(node)
    fitting.sort(key=lambda node: _left_over(node, size))
    count = max(0, spec.count - len(held))
    if len(fitting) < count:
        there = {node.name for node in fitting} | held
        return Choice(nodes=(), refused=refused, short=_short(spec, there, refused))
    refused |= {node.name: "others have less left over" for node in fitting[count:]}
    return Choice(nodes=tuple(node.name for node in fitting[:count]), refused=refused)


def _left_over(node: PartNode, size: Size) -> tuple[int, int, str]:
    left = node.left - size
    return left.cpu, left.memory, node.name


def why_not(node: PartNode, spec: SliceClaimSpec, size: Size) -> str:
    """Return why a node does not match; "" if it does. A permanent reason comes before a temporary one."""
    if spec.node_names and node.name not in spec.node_names:
        return "not among spec.nodeNames"
    if any(label in node.labels for label in CONTROL_PLANE):
        return "runs the control plane"
    if not is_shared(node.labels):
        return f"not given out in parts: no label {PARTS}"
    return unlike(node.labels, spec.selector) or _not_now(node, size)


def _not_now(node: PartNode, size: Size) -> str:
    if node.not_now:
        return node.not_now
    if not node.set_aside:
        return "not set aside yet"
    return "" if node.left.holds(size) else f"has left {node.left}"


def _short(spec: SliceClaimSpec, fitting: AbstractSet[str], refused: Mapping[str, str]) -> str:
    """Return why there are too few parts: how many would fit, and what prevents more."""
    size, can_have = size_of(spec.per_node), len(fitting)
    parts = [
        f"{spec.count} parts of {size} are asked for, each on a node of its own, and {can_have} can be had"
        + (f": spec.count {can_have} would fit" if can_have else "")
    ]
    return "; ".join([*parts, *why_no_more(spec, fitting, refused)])

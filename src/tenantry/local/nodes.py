"""Simulated nodes: from flags or a file to Node objects; pure.

- name: web            # the group; nodes are web-1, web-2, web-3
  count: 3
  zone: [a, b]         # one zone, or several in turn
  labels: {disk: ssd}
  capacity: {cpu: "16", memory: 64Gi, pods: "110"}
  taints: [{key: dedicated, value: web, effect: NoSchedule}]
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.marks import HANDOVER_RECORD
from tenantry.api.model import Model, ObjectMeta
from tenantry.api.node import Node, NodeSpec, NodeStatus, Taint
from tenantry.hosting import simulation
from tenantry.world import quantity
from tenantry.world.labels import is_label_key, is_label_value

SELECTOR = "app.kubernetes.io/managed-by=tenantry-local"
ZONE = "topology.kubernetes.io/zone"
_DIGEST = "local.tenantry.dev/digest"
_MAX_NODES = 5000
_DEFAULT_CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "200Gi"}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,54}[a-z0-9])?")


class GroupTaint(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A taint of the nodes of a group."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeGroup(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of equal nodes.

    Args:
        name: The group's name; the nodes are named NAME-1, NAME-2, ...
        count: The number of nodes.
        labels: The labels of each.
        capacity: From a resource to a quantity (default: 8 CPUs, 32Gi, 110 pods and 200Gi of ephemeral storage).
        zone: The zone of all, or several zones that take turns.
        taints: The taints of each.
    """

    name: str = "node"
    count: Annotated[int, msgspec.Meta(ge=0, le=_MAX_NODES)] = 1
    labels: dict[str, str] = {}
    capacity: dict[str, str | int] = {}
    zone: str | tuple[str, ...] = ()
    taints: tuple[GroupTaint, ...] = ()


class NodePlan(Model, frozen=True, kw_only=True):
    """All simulated nodes of a cluster."""

    groups: tuple[NodeGroup, ...]


def is_late(node: Node) -> bool:
    """Return whether `up` waits for a node: one that serves the cluster of a tenant is Ready there, and not here."""
    return not node.is_ready and HANDOVER_RECORD not in node.metadata.annotations


def why_not_ready(node: Node) -> str:
    """Return the message of a node's condition Ready."""
    found = next((each for each in node.status.conditions if each.type == "Ready"), None)
    return found.message if found else "its kubelet has not reported a status yet"


def plan_from_flags(
    count: int, *, cpu: str = "", memory: str = "", labels: tuple[str, ...] = (), zones: str = ""
) -> NodePlan:
    """Return the plan of the flags of `tenantry up`.

    Args:
        count: --nodes.
        cpu: --node-cpu, a quantity.
        memory: --node-memory, a quantity.
        labels: --node-labels, each "key=value" or several of them between commas.
        zones: --zones, names between commas.

    Raises:
        InputError: A flag is invalid.
    """
    if not 0 <= count <= _MAX_NODES:
        raise InputError(f"--nodes {count} must be from 0 to {_MAX_NODES}")
    pairs: dict[str, str] = {}
    for item in (part for text in labels for part in text.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError(f'--node-labels "{item}" must be KEY=VALUE')
        pairs[key] = value
    capacity: dict[str, str | int] = {key: text for key, text in (("cpu", cpu), ("memory", memory)) if text}
    zone = tuple(part for part in zones.split(",") if part)
    group = NodeGroup(count=count, labels=pairs, capacity=capacity, zone=zone)
    return check(NodePlan(groups=(group,)), lambda _: "the flags of nodes")


def plan_from_yaml(text: str, file: str) -> NodePlan:
    """Return the plan in a file.

    Args:
        text: The text of the file, a list of groups.
        file: Its name, for errors.

    Raises:
        InputError: The file is invalid: the path in it, and what it must be.
    """
    import yaml  # only `up --nodes-file` needs it

    try:
        document: object = yaml.safe_load(text)
        groups = msgspec.convert(document, type=tuple[NodeGroup, ...])
    except yaml.YAMLError as error:
        raise InputError(f'--nodes-file "{file}" must be YAML: {" ".join(str(error).split())}') from error
    except msgspec.ValidationError as error:
        raise InputError(f'--nodes-file "{file}": {error}; it must be a list of groups of nodes') from error
    return check(NodePlan(groups=groups), lambda place: f'--nodes-file "{file}": $[{place}]')


def check(plan: NodePlan, where: Callable[[int], str]) -> NodePlan:
    """Return the plan if the API server accepts it.

    Args:
        plan: The plan.
        where: From the index of a group to its name in messages.

    Raises:
        InputError: A field of a group is invalid.
    """
    names: set[str] = set()
    for place, group in enumerate(plan.groups):
        if not _NAME.fullmatch(group.name):
            raise InputError(f'{where(place)}.name: "{group.name}" must be a DNS label of at most 56 characters')
        if group.name in names:
            raise InputError(f'{where(place)}.name: "{group.name}" must not be there twice')
        names.add(group.name)
        for key, value in group.labels.items():
            _check_label(key, value, f"{where(place)}.labels")
        for zone in _zones(group):
            _check_label(ZONE, zone, f"{where(place)}.zone")
        for resource, text in group.capacity.items():
            _check_quantity(text, f"{where(place)}.capacity.{resource}")
    if sum(group.count for group in plan.groups) > _MAX_NODES:
        raise InputError(f"there must be at most {_MAX_NODES} nodes in all")
    return plan


def _check_label(key: str, value: str, where: str) -> None:
    if not is_label_key(key):
        raise InputError(f'{where}: "{key}" must be a label key, such as "disk" or "example.com/disk"')
    if not is_label_value(value):
        raise InputError(f'{where}: the value "{value}" must be at most 63 letters, digits, "-", "_" and "."')


def _check_quantity(text: str | int, where: str) -> None:
    try:
        value = quantity.parse(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if value < 0:
        raise InputError(f'{where}: "{text}" must not be negative')


def _zones(group: NodeGroup) -> tuple[str, ...]:
    return (group.zone,) if isinstance(group.zone, str) else group.zone


def desired(plan: NodePlan) -> dict[str, Node]:
    """Return every Node of a plan by its name."""
    return {node.metadata.name: node for group in plan.groups for node in _nodes(group)}


def _nodes(group: NodeGroup) -> list[Node]:
    zones = _zones(group)
    given = {key: quantity.canonical(value) for key, value in group.capacity.items()}
    capacity = _DEFAULT_CAPACITY | given
    taints = tuple(Taint(key=each.key, effect=each.effect, value=each.value) for each in group.taints)
    made: list[Node] = []
    for number in range(1, group.count + 1):
        name = f"{group.name}-{number}"
        zone = {ZONE: zones[(number - 1) % len(zones)]} if zones else {}
        labels = {
            "app.kubernetes.io/managed-by": "tenantry-local",
            # Well-known labels that a kubelet would set.
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            **zone,
            **group.labels,
            simulation.MARK: simulation.MARKED,
        }
        node = Node(
            metadata=ObjectMeta(name=name, labels=labels, annotations={simulation.MARK: simulation.MARKED}),
            spec=NodeSpec(taints=taints),
            status=NodeStatus(capacity=capacity, allocatable=capacity),
        )
        # Digests are compared instead of nodes: the API server and kwok add fields.
        digest = hashlib.sha256(msgspec.json.encode(node, order="deterministic")).hexdigest()[:16]
        annotations = node.metadata.annotations | {_DIGEST: digest}
        metadata = msgspec.structs.replace(node.metadata, annotations=annotations)
        made.append(msgspec.structs.replace(node, metadata=metadata))
    return made


def difference(wanted: dict[str, Node], found: dict[str, Node]) -> tuple[list[Node], list[Node]]:
    """Return the nodes to delete and those to create; a node that changes is in both."""
    gone = [
        node
        for name, node in found.items()
        if name not in wanted
        or node.metadata.annotations.get(_DIGEST) != wanted[name].metadata.annotations.get(_DIGEST)
    ]
    names = {node.metadata.name for node in gone}
    return gone, [node for name, node in wanted.items() if name not in found or name in names]

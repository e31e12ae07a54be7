"""Records which range of pods each real node has, because its network is chosen on this machine and not by Kubernetes.

    a node whose certificate is issued here   Node.spec.podCIDRs, before its kubelet registers
    a contributed node                        the record of the contribution; the operator writes both into the Node

The operator keeps tenants' pods away from the addresses of nodes, and the first address of a range is its node's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from tenantry.api.contribution import (
    REGISTER,
    Contribution,
    EarlierRecord,
    change,
    earlier_record_of,
    read,
    recorded,
)
from tenantry.api.errors import Conflict, InputError, NotFound
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeSpec
from tenantry.api.policyparameters import PolicyParameters
from tenantry.kube.client import Client
from tenantry.local import bootstrap
from tenantry.local.real.network import NodeAddresses
from tenantry.local.spec import RealNode, RealNodes


async def record(path: Path, real: RealNodes, say: Callable[[str], None]) -> tuple[str, ...]:
    """Record the ranges of all real nodes; the caller repeats it after `Unreachable`.

    Args:
        path: The administrator's kubeconfig.
        real: The nodes.
        say: Called with a message about each node that does not come back.

    Returns:
        The names of the nodes that register: those that were not taken back.
    """
    coming: list[str] = []
    addresses = NodeAddresses(real.block)
    async with bootstrap.connected(path) as client:
        for each in real.nodes:
            if not each.token:
                await _give(client, each.name, addresses.pods_of(each.number), is_ours=True)
            elif not await _agree(client, each, addresses):
                say(_taken_back(each.name))
                continue
            coming.append(each.name)
    return tuple(coming)


async def check(path: Path, real: RealNodes, name: str) -> None:
    """Record the range of one node that is about to start again.

    Args:
        path: The administrator's kubeconfig.
        real: All nodes.
        name: The node.

    Raises:
        InputError: It was taken back, and so it does not register again.
    """
    only = msgspec.structs.replace(real, nodes=tuple(each for each in real.nodes if each.name == name))
    if not await record(path, only, lambda _: None):
        raise InputError(_taken_back(name))


def _taken_back(name: str) -> str:
    return f'node "{name}" was taken back: `tenantry node delete {name}` deletes its files'


async def _agree(client: Client, node: RealNode, addresses: NodeAddresses) -> bool:
    """Write the addresses of a contributed node into its record; return False if it has none, or was taken back."""
    try:
        register = await client.get(PolicyParameters, REGISTER, SYSTEM_NAMESPACE)
    except NotFound:
        # Tenantry is not installed, and so nothing was taken back.
        return True
    before = recorded(register, node.name) or await _earlier(client, node.name)
    if before is None or before.ended:
        return False
    own, pods = addresses.node(node.number), addresses.pods_of(node.number)
    after = msgspec.structs.replace(before, addresses=own, pod_cidrs=pods)
    if after != before:
        body = change(node.name, after, version=register.metadata.resource_version)
        try:
            await client.merge_patch(PolicyParameters.resource, SYSTEM_NAMESPACE, REGISTER, body)
        except Conflict:
            # It may have been taken back at this moment.
            return await _agree(client, node, addresses)
    await _give(client, node.name, pods, is_ours=False)
    return True


async def _earlier(client: Client, node: str) -> Contribution | None:
    """Return the record that an earlier version wrote, which the operator has not moved yet."""
    try:
        return read((await client.get(EarlierRecord, earlier_record_of(node), SYSTEM_NAMESPACE)).data)
    except (NotFound, msgspec.ValidationError):
        return None


async def _give(client: Client, name: str, cidr: str, *, is_ours: bool) -> None:
    """Give a node its range.

    Args:
        client: An administrator.
        name: The node.
        cidr: The range.
        is_ours: Whether the node is created if it does not exist; a contributed one registers itself.
    """
    spec = NodeSpec(pod_cidr=cidr, pod_cidrs=(cidr,))
    while True:
        try:
            node = await client.get(Node, name)
        except NotFound:
            if not is_ours:
                return
            node = Node(metadata=ObjectMeta(name=name))
        try:
            if not node.metadata.uid:
                await client.create(msgspec.structs.replace(node, spec=spec))
            elif not node.spec.pod_cidrs:
                patch = {"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}}
                await client.merge_patch(Node.resource, "", name, patch)
            elif node.spec.pod_cidrs != (cidr,):
                # Another network was free at this start, and Kubernetes allows no change of a range.
                await client.delete(Node.resource, "", name, uid=node.metadata.uid)
                about = ObjectMeta(name=name, labels=node.metadata.labels, annotations=node.metadata.annotations)
                kept = msgspec.structs.replace(node.spec, pod_cidr=cidr, pod_cidrs=(cidr,))
                await client.create(Node(metadata=about, spec=kept))
        except (Conflict, NotFound):
            # Its kubelet has registered it meanwhile, or another program has deleted it.
            continue
        return

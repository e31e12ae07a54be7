"""Records which range of pods each real node has, because its network is chosen on this machine and not by Kubernetes.

    a node whose certificate is issued here   Node.spec.podCIDRs, before its kubelet registers
    a contributed node                        the record of the contribution; the operator writes both into the Node

The operator keeps tenants' pods away from the addresses of nodes, and the first address of a range is its node's.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tenantry.api.contribution import Record, record_of
from tenantry.api.errors import Conflict, NotFound
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeSpec
from tenantry.kube.client import Client
from tenantry.local import bootstrap
from tenantry.local.real.network import NodeAddresses
from tenantry.local.spec import RealNode, RealNodes


async def record(path: Path, real: RealNodes) -> None:
    """Record the ranges of all real nodes; the caller repeats it after `Unreachable`.

    Args:
        path: The administrator's kubeconfig.
        real: The nodes.
    """
    async with bootstrap.connected(path) as client:
        for each in real.nodes:
            if each.token:
                await _agree(client, each, NodeAddresses(real.block))
            else:
                await _give(client, each.name, NodeAddresses(real.block).pods_of(each.number))


async def _agree(client: Client, node: RealNode, addresses: NodeAddresses) -> None:
    name = record_of(node.name)
    wanted = {"addresses": addresses.node(node.number), "podCidrs": addresses.pods_of(node.number)}
    try:
        found = await client.get(Record, name, SYSTEM_NAMESPACE)
        if not wanted.items() <= found.data.items():
            await client.merge_patch(Record.resource, SYSTEM_NAMESPACE, name, {"data": wanted})
    except NotFound:
        # It was taken back.
        return


async def _give(client: Client, name: str, cidr: str) -> None:
    spec = NodeSpec(pod_cidr=cidr, pod_cidrs=(cidr,))
    while True:
        try:
            node = await client.get(Node, name)
        except NotFound:
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

"""`tenantry peer allow-node`: lets the operator act as the Node of a peer without certificates of the Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.errors import InputError, NotFound
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding
from tenantry.api.peercluster import NodeIdentities, PeerCluster, PeerHost
from tenantry.cli import durations, kinds, output, session
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait_for_all
from tenantry.install import peers

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command(name="allow-node")
@takes_target
@click.argument("called", metavar="PEER")
@durations.timeout_option("60s", "Deadline, as in 30s or 5m.")
def allow_node(target: Target, *, called: str, timeout: int) -> None:
    r"""Let the operator act as the Node of PEER by impersonation, instead of with certificates of the Node.

    For a cluster that signs no certificates of nodes. You need the right to impersonate users, as administrators have
    it. The API server limits the operator as the Node to what a kubelet may do. Logs and exec of pods at PEER work if
    the API server does not verify the serving certificates of kubelets.

    \b
      tenantry peer allow-node berlin
    """
    session.run(target, lambda client: _allow(client, called, timeout))


async def _allow(client: Client, called: str, seconds: int) -> None:
    found = await client.get(PeerCluster, called)
    if not isinstance(found.spec.host, PeerHost):
        raise InputError(f"{kinds.told(PeerCluster, called)} has no spec.host: this cluster has no Node for it")
    try:
        operator = (await client.get(ClusterRoleBinding, peers.PEERING)).subjects
    except NotFound:
        raise InputError("this cluster has no operator: `tenantry install` sets it up") from None
    role, binding = peers.node_grant(found, [msgspec.to_builtins(each) for each in operator])
    for kind, value in ((ClusterRole, role), (ClusterRoleBinding, binding)):
        await client.apply(kind.resource, "", value["metadata"]["name"], value)
    body = {"spec": {"host": {"nodeIdentity": NodeIdentities.IMPERSONATION}}}
    await client.merge_patch(PeerCluster.resource, "", called, body)
    output.talk(f"{kinds.told(PeerCluster, called)}: the operator may act as its Node")
    await wait_for_all(client, [ObjectSelection(PeerCluster, (called,))], seconds=seconds, stalls=True)

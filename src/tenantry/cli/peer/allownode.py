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
    the API server does not verify the serving certificates of kubelets. To end it, set spec.host.nodeIdentity back to
    Certificate.

    \b
      tenantry peer allow-node berlin
    """
    session.run(target, lambda client: _allow(client, called, timeout))


async def _allow(client: Client, called: str, seconds: int) -> None:
    from tenantry.engine import request
    from tenantry.engine.writer import Writer

    found = await client.get(PeerCluster, called)
    if not isinstance(found.spec.host, PeerHost):
        raise InputError(f"{kinds.told(PeerCluster, called)} has no spec.host: this cluster has no Node for it")
    try:
        operator = (await client.get(ClusterRoleBinding, peers.PEERING)).subjects
    except NotFound:
        raise InputError("this cluster has no operator: `tenantry install` sets it up") from None
    role, binding = peers.node_grant(found, [msgspec.to_builtins(each) for each in operator])
    grant = [request.apply(ClusterRole.resource, role), request.apply(ClusterRoleBinding.resource, binding)]
    writer = Writer(client)
    # A user who may not grant it leaves the peer as it is.
    await writer.send(msgspec.structs.replace(grant[0], is_dry_run=True))
    # Before the grant, which the operator withdraws while the field does not ask for it.
    body = {"spec": {"host": {"nodeIdentity": NodeIdentities.IMPERSONATION}}}
    await client.merge_patch(PeerCluster.resource, "", called, body)
    for each in grant:
        await writer.send(each)
    output.talk(f"{kinds.told(PeerCluster, called)}: the operator may act as its Node")
    await wait_for_all(client, [ObjectSelection(PeerCluster, (called,))], seconds=seconds, stalls=True)

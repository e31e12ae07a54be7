"""Runs a machine from outside on this machine, for a hosted control plane of a local cluster.

    token of `tenantry node contribute --to` ─► machines/NAME.json, cluster.json ─► reload: machine@NAME starts

It is plugged into the bridge of its control plane as machines of the host are, and is never the host's: it has a token
in the spec of the local cluster. It runs the agent of the tunnel, through which the gate reaches it.
"""

from __future__ import annotations

import msgspec

from tenantry.api.errors import InputError
from tenantry.hosting import plane as hosting
from tenantry.local import hostedfolders
from tenantry.local.cluster import LocalCluster
from tenantry.local.components import MACHINE_PREFIX
from tenantry.local.machines import LocalMachines
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import kubelets, memberships
from tenantry.local.real.memberships import Membership
from tenantry.local.real.planebridges import PlaneBridge
from tenantry.local.spec import RealNode, RealNodes


async def join(
    cluster: LocalCluster, machine: RealNode, plane: str, bridge: PlaneBridge, *, version: str, seconds: float
) -> None:
    """Start a machine, and return when its kubelet has its certificate.

    Args:
        cluster: The local cluster.
        machine: The machine, with its token.
        plane: The uid of the control plane.
        bridge: Its network.
        version: Its minor version, as in "1.36"; "" for a kubelet of any version.
        seconds: The deadline.

    Raises:
        InputError: A machine has its name or its number already.
        LocalError: It does not start, or the kubelet for the version is not built.
    """
    kubelets.check(version)
    authorities = ClusterPaths(hostedfolders.of(cluster.paths, plane)).pki / hosting.TRUSTED
    membership = Membership(
        plane=plane,
        server=f"https://{bridge.addresses.bridge}:{bridge.port}",
        ca=authorities.read_text(),
        token=machine.token,
        version=version,
    )

    def change(real: RealNodes) -> RealNodes:
        if any(each.name == machine.name or each.number == machine.number for each in real.nodes):
            raise InputError(
                f'the machine "{machine.name}", or one with its address, is there: a token is for one machine'
            )
        # Before the spec: without it, the machine would be one of the host.
        memberships.write(cluster.paths, machine.name, membership)
        return msgspec.structs.replace(real, nodes=(*real.nodes, machine))

    await cluster.change_nodes(change, seconds)
    await LocalMachines(cluster.paths).started(f"{MACHINE_PREFIX}{machine.name}")

"""Nodes from outside that serve a DedicatedCluster: what its spec lists, and what its status reports of each.

    spec.contributed  ─► NodeHandover of the name, without a slice ─► a token for this name ─► the machine joins
    entry removed     ─► its Node inside is drained and deleted; no certificate of its name is renewed

The machine belongs to its owner: no claim has it, no quota counts it, and the operator dials no address of it. Streams
to it pass the tunnel that its agent opens (decision 89).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tenantry.api.model import Model

OUTSIDE_PREFIX = "outside-"
"""Begins the names of such nodes, so that none has the name of a node of the host."""

OUTSIDE_NAME = r"^outside-[a-z0-9]{6,20}$"

MOST_CONTRIBUTED = 50
MOST_MACHINE_ADDRESSES = 4

Address = Annotated[str, Meta(min_length=2, max_length=45, pattern=r"^[0-9a-f.:]+$")]
PodRange = Annotated[str, Meta(max_length=43, pattern=r"^[0-9a-f.:]+/[0-9]{1,3}$")]


class ContributedMachine(Model, frozen=True, kw_only=True):
    """The addresses that a machine from outside has, by its own account; streams to them pass its tunnel."""

    addresses: Annotated[
        tuple[Address, ...],
        Meta(
            min_length=1,
            max_length=MOST_MACHINE_ADDRESSES,
            description="The IP addresses of the node. Its kubelet gets a certificate for these, and for no others.",
        ),
    ]
    pod_range: Annotated[
        PodRange, Meta(description="The range of the pods of the node, as CIDR; at most a /16, or a /64 of IPv6.")
    ]


class ContributedNode(ContributedMachine, frozen=True, kw_only=True):
    """A machine from outside that serves the cluster."""

    name: Annotated[
        str,
        Meta(
            max_length=28,
            pattern=OUTSIDE_NAME,
            description=f"The name of the node: {OUTSIDE_PREFIX} and 6 to 20 lower-case letters and digits, which no"
            " other cluster has. `tenantry node contribute` chooses one.",
        ),
    ]


class ContributedNodeStatus(Model, frozen=True, kw_only=True):
    """Where a machine from outside is."""

    name: Annotated[str, Meta(max_length=28, description="The name of the node.")]
    stage: Annotated[
        str, Meta(max_length=16, description="Leaving, Wiped, Joining, Joined or Returning, as of its NodeHandover.")
    ] = ""
    token: Annotated[
        str,
        Meta(
            max_length=16,
            description="The id of the bootstrap token that it joins with: Secret kube-system/bootstrap-token-ID"
            " inside.",
        ),
    ] = ""
    server: Annotated[str, Meta(max_length=253, description="The URL at which it reaches the API server.")] = ""
    reason: Annotated[
        str,
        Meta(
            max_length=64,
            description="Why, in one word: InvalidSpec for an entry that must change, NoNodeEndpoint if no machine can"
            " reach the control plane, or the reason of a condition of its NodeHandover.",
        ),
    ] = ""
    message: Annotated[str, Meta(max_length=1024, description="What it waits for, or what keeps it out.")] = ""

"""Files by which administrators of two clusters connect them: no object of either cluster.

home  `tenantry peer request` ─► PeerRequest ─► peer  `tenantry peer invite -f`
peer  `tenantry peer invite`  ─► PeerInvitation ─► home  `tenantry peer accept -f`
home  `tenantry peer accept`  ─► PeerTunnel     ─► peer  `tenantry peer dial -f`      only if the peer connects
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.marks import VERSION
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.api.names import SERVER_PATTERN
from tenantry.api.peercluster import MAX_NAME, PREFIX
from tenantry.api.peertunnel import Dial
from tenantry.api.quota import Quota
from tenantry.api.times import Instant

MAX_FILE_BYTES = 128 * 1024
"""The longest file: authorities and a token take less."""

LIFE_SECONDS = 3600
"""The longest life of an invitation."""

ClusterIdentifier = Annotated[
    str, Meta(max_length=64, description="The uid of the namespace kube-system of a cluster.")
]


class PeerInvitationSpec(Model, frozen=True, kw_only=True):
    """The way to a cluster, and the token that admits one other cluster to it."""

    server: Annotated[
        str,
        Meta(max_length=512, pattern=SERVER_PATTERN, description="The URL of the peer's API server, without a path."),
    ]
    ca: Annotated[str, Meta(min_length=1, max_length=65536, description="The certificates of its authorities, in PEM.")]
    guest: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_NAME, description="The PeerCluster at the peer that serves the home."),
    ]
    cluster_id: Annotated[
        str, Meta(min_length=1, max_length=64, description="The uid of the namespace kube-system of the peer.")
    ]
    home_id: Annotated[
        ClusterIdentifier,
        Meta(description="The uid of the namespace kube-system of the home that is invited. Empty: any cluster."),
    ] = ""
    dial: Annotated[Dial, Meta(description="Which cluster connects to the other one.")] = Dial.HOME
    quota: Annotated[Quota, Meta(description="What the peer offers.")] = Quota()
    expires: Annotated[Instant, Meta(description="When the token ends.")]
    token: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=16384,
            description="A token of the ServiceAccount GUEST-invite of the peer. Keep it secret until it is used.",
        ),
    ]


class PeerInvitation(KubernetesObject, frozen=True, kw_only=True):
    """What a peer gives to one home. The name is that of the PeerCluster at home, unless the home chooses another."""

    resource: ClassVar[Resource] = Resource(PREFIX, VERSION, "peerinvitations", "PeerInvitation", namespaced=False)

    spec: PeerInvitationSpec


class PeerRequestSpec(Model, frozen=True, kw_only=True):
    """What a home asks of a peer."""

    home_id: Annotated[
        ClusterIdentifier,
        Meta(min_length=1, description="The uid of the namespace kube-system of the home."),
    ]
    dial: Annotated[Dial, Meta(description="Which cluster connects to the other one.")] = Dial.HOME
    quota: Annotated[Quota, Meta(description="What the home wants to use. The peer may give another quota.")] = Quota()


class PeerRequest(KubernetesObject, frozen=True, kw_only=True):
    """What a home sends to a peer. The name is that of the PeerCluster at the peer, unless the peer chooses another."""

    resource: ClassVar[Resource] = Resource(PREFIX, VERSION, "peerrequests", "PeerRequest", namespaced=False)

    spec: PeerRequestSpec


class PeerTunnelSpec(Model, frozen=True, kw_only=True):
    """The way to a home, and the token that opens the tunnel of one peer there."""

    server: Annotated[
        str,
        Meta(max_length=512, pattern=SERVER_PATTERN, description="The URL of the home's port for tunnels."),
    ]
    ca: Annotated[str, Meta(min_length=1, max_length=65536, description="The certificate of this port, in PEM.")]
    guest: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_NAME, description="The PeerCluster at the peer that serves the home."),
    ]
    cluster_id: Annotated[
        ClusterIdentifier, Meta(min_length=1, description="The uid of the namespace kube-system of the peer.")
    ]
    token: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=16384,
            description="A token of the ServiceAccount NAME-tunnel of the home. It opens the tunnel of this peer, and"
            " nothing else: keep it secret.",
        ),
    ]


class PeerTunnel(KubernetesObject, frozen=True, kw_only=True):
    """What a home gives to a peer that connects to it. The name is that of the PeerCluster at home."""

    resource: ClassVar[Resource] = Resource(PREFIX, VERSION, "peertunnels", "PeerTunnel", namespaced=False)

    spec: PeerTunnelSpec

"""PeerCluster: another cluster that runs pods of this one, or that this one runs pods for (L01, L05).

home                                      peer
PeerCluster "b", host half   ─ token ─►   PeerCluster "a", guest half ─► Tenant "peer-a"
─► Node "b", on which tenants' pods run   ─► the pods, as those of that Tenant
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import AGE, MESSAGE, READY, REASON, Column, Conditions, Names, ObservedGeneration, Rule, rules
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL, SERVER_PATTERN
from tenantry.api.peerdiscovery import PeerDiscovery
from tenantry.api.peertunnel import Dial, GuestTunnel
from tenantry.api.quota import Quota
from tenantry.api.times import Instant

MAX_NAME = 40
"""The longest name of a PeerCluster: Tenant, Secrets and certificates have it with a prefix or suffix."""

PEERS_NAMESPACE = "tenantry-peers"
"""The namespace of the credentials for peers, and of the identities of guests; no tenant has a role in it."""

PREFIX = f"federation.{GROUP}"
"""Of the marks of objects that are mirrored for another cluster, and of the labels and the taint of its Node."""

VIRTUAL = f"{PREFIX}/virtual"
"""The label of Nodes that stand for another cluster. Its value is always "true"."""

PEER = f"{PREFIX}/peer"
"""The label and the key of the taint of the Node of a peer. The value is the name of the PeerCluster."""

HOME_NAMESPACE = f"{PREFIX}/namespace"
HOME_TENANT = f"{PREFIX}/tenant"
HOME_ID = f"{PREFIX}/home"
"""Annotations of Subnamespaces at a peer: the namespace or Tenant of the home, and the home's cluster id."""

HOME_PATH = f"{PREFIX}/path"
"""The same, of a federated child: the uid of its Tenant, its parent and the name of its Subnamespace, as in a/b/c."""

FINALIZER = f"{PREFIX}/peering"
"""Keeps a PeerCluster until what was made for it on both sides is gone."""

AT_ONCE = f"{PREFIX}/remove-at-once"
"""An annotation of a PeerCluster: its deletion does not drain the Node. Its value is always "true"."""

GIVE_UP = f"{PREFIX}/give-up"
"""An annotation of a PeerCluster: while the peer is silent, its pods are let go here. Its value is the time at which an
administrator requested that, as RFC 3339; the operator removes it when the peer is back."""

NODE_PREFIX = "peer-"
"""Before the name of a PeerCluster: the name of its Node. Policies recognise the identity of such Nodes by it."""

MOST_LABELS = 64

MOST_AUDIENCES = 16
AUDIENCE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9:/._@-]*$"
AUDIENCES_ALLOWED_IN = "spec.host.tokenAudiences of the PeerCluster"

NEVER_LABELS = "(kubernetes[.]io/hostname|node-role([.]kubernetes[.]io)?(/.*)?|([^/]*[.])?tenantry[.]dev/.*)"
"""Labels that no Node of a peer gets from anyone: they name a node, its role, or are Tenantry's."""

OWN_LABELS = f"{PREFIX}/"
"""The prefix of labels of peers that Tenantry leaves to administrators, apart from `RESERVED_LABELS`."""

RESERVED_LABELS = tuple(f"{PREFIX}/{each}" for each in ("given-labels", "offload", "peer", "pod-strategy", "virtual"))

RENEWER_SUFFIX = "-renew"
INVITER_SUFFIX = "-invite"
_SUFFIXES = (RENEWER_SUFFIX, INVITER_SUFFIX, "-offer", "-tunnel")

MOST_CONTAINERS = 32
"""How many containers a pod of another cluster has at most."""

CONTENDER = f"{PREFIX}/contender"
"""An annotation of the Lease of a guest: another home that waits for it; see `peering/link/homelease.py`."""

MAX_INSTANCES = 8

MAX_REPORTED = 64
"""The longest text that is kept of what another cluster reports about itself: its id, its version."""

WORK_SECONDS = 3600
LEASE_SECONDS = 7 * 24 * 3600
"""The longest lives of the tokens with which a home works, and with which it requests these."""

MOST_LEASE_SECONDS = 366 * 24 * 3600


def is_name(name: str) -> bool:
    """Return whether a PeerCluster may have this name."""
    if len(name) > MAX_NAME or re.fullmatch(DNS_LABEL, name, re.ASCII) is None:
        return False
    return name != "default" and not name.endswith(_SUFFIXES)


def tenant_name(peer: str) -> str:
    """Return the name of the Tenant, and of its core namespace, that serves a home at a peer."""
    return f"peer-{peer}"


def renewer_name(peer: str) -> str:
    """Return the name of the ServiceAccount that may only request tokens of a home's two ServiceAccounts."""
    return f"{peer}{RENEWER_SUFFIX}"


def inviter_name(peer: str) -> str:
    """Return the name of the ServiceAccount of an invitation, and of the Secret with which its token ends."""
    return f"{peer}{INVITER_SUFFIX}"


def node_name(peer: str) -> str:
    """Return the name of the Node that stands for a peer."""
    return f"{NODE_PREFIX}{peer}"


_ARE_LABELS = Rule(
    "self.all(k, size(k) <= 317 && !format.qualifiedName().validate(k).hasValue()"
    " && !format.labelValue().validate(self[k]).hasValue())",
    "must have only labels as of Kubernetes, as in topology.kubernetes.io/region: eu-west",
)


class AcceptedOffer(Model, frozen=True, kw_only=True):
    """How much of the peer the home uses at most."""

    hard: Annotated[
        dict[str, Annotated[str, Meta(max_length=64)]],
        Meta(max_length=64, description="The capacity of the Node: cpu, memory, pods and extended resources."),
    ] = {}


class NodeIdentities(StrEnum):
    """As whom the operator acts for the Node of a peer at home."""

    CERTIFICATE = "Certificate"
    IMPERSONATION = "Impersonation"


class PeerHost(Model, frozen=True, kw_only=True):
    """The half by which this cluster uses the other one."""

    server: Annotated[
        str,
        Meta(max_length=512, pattern=SERVER_PATTERN, description="The URL of the peer's API server, without a path."),
    ]
    ca: Annotated[str, Meta(max_length=65536, description="The certificates of its authorities, in PEM.")]
    guest: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_NAME,
            description="The name of the PeerCluster there, whose guest half serves this cluster.",
        ),
    ]
    credentials_secret_name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="The Secret in the namespace tenantry-peers whose key `token` is a token of the ServiceAccount"
            " GUEST-renew of the peer. The operator replaces it before it expires.",
        ),
    ]
    labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(
            max_length=MOST_LABELS,
            description="Labels of the Node, by which namespaces select the peer. They take precedence over those that"
            " the peer proposes.",
            extra_json_schema=rules(
                _ARE_LABELS,
                Rule(
                    f"self.all(k, !k.matches('^{NEVER_LABELS}$') || k.startsWith('{OWN_LABELS}')"
                    f" && !(k in [{', '.join(repr(each) for each in RESERVED_LABELS)}]))",
                    "must not have kubernetes.io/hostname, labels of node-role.kubernetes.io, nor labels of Tenantry,"
                    f" apart from those of {PREFIX} that it does not set itself",
                ),
            ),
        ),
    ] = {}
    cluster_id: Annotated[
        str,
        Meta(
            max_length=64,
            description="The uid of the namespace kube-system of the peer; another cluster is refused. Empty: the first"
            " one that answers, which status.clusterId names from then on.",
        ),
    ] = ""
    dial: Annotated[
        Dial,
        Meta(
            description="Home: this cluster connects to the server. Peer: the peer connects to this cluster, and opens"
            " a tunnel to its API server; only the name in the URL of the server is used then, which must be in its"
            " certificate."
        ),
    ] = Dial.HOME
    invitation: Annotated[
        str,
        Meta(
            max_length=64,
            description="Which invitation the Secret has or had. Another value makes the operator use the one that it"
            " has now; without, it does so when it begins to connect.",
        ),
    ] = ""
    token_audiences: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253, pattern=AUDIENCE_PATTERN)], ...],
        Meta(
            max_length=MOST_AUDIENCES,
            description="Audiences for which pods may have tokens of ServiceAccounts of this cluster at the peer, as in"
            " vault.example.com. Those of this cluster's own API server never go there.",
        ),
    ] = ()
    accept: Annotated[
        AcceptedOffer,
        Meta(description="The capacity of the Node that stands for the peer; the Node has no other resources."),
    ] = AcceptedOffer()
    node_identity: Annotated[
        NodeIdentities,
        Meta(
            description="Certificate: the Node has certificates that this cluster signs, as a kubelet. Impersonation:"
            " the operator acts as the Node with its own credentials, for a cluster that signs none; `tenantry peer"
            " allow-node` lets it, and the API server must not verify the serving certificates of kubelets."
        ),
    ] = NodeIdentities.CERTIFICATE


class GuestInvitation(Model, frozen=True, kw_only=True):
    """An invitation: the other cluster may request its first token."""

    expires: Annotated[
        Instant, Meta(min_length=1, description="When the invitation ends. A later time is another invitation.")
    ]


class OfferAmounts(StrEnum):
    """How much a cluster offers to a home."""

    FIXED = "Fixed"
    SHARE = "Share"
    NONE = "None"


class GuestOffer(Model, frozen=True, kw_only=True):
    """What is offered to the other cluster; its Node has no larger capacity."""

    amounts: Annotated[
        OfferAmounts,
        Meta(
            description="Fixed: the quota. Share: a percentage of the resources that are free here, at most the quota."
            " None: nothing; pods that run stay."
        ),
    ] = OfferAmounts.FIXED
    percent: Annotated[int, Meta(ge=1, le=100, description="Of what is free, if amounts is Share.")] = 50
    expires: Annotated[Instant, Meta(description="When the offer ends. Empty: never.")] = ""


class GuestNames(StrEnum):
    """Which names the namespaces of a home may have here."""

    HASHED = "Hashed"
    SAME = "Same"


class PeerGuest(Model, frozen=True, kw_only=True):
    """The half by which this cluster serves the other one."""

    quota: Annotated[
        Quota, Meta(description="What all pods of the home may use here together: the quota of its Tenant.")
    ] = Quota()
    labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(
            max_length=MOST_LABELS,
            description="Labels that this cluster proposes for its Node at the other one, as in"
            " topology.kubernetes.io/region. What the other one does not allow is left out there.",
            extra_json_schema=rules(_ARE_LABELS),
        ),
    ] = {}
    max_namespaces: Annotated[
        int,
        Meta(
            ge=1,
            le=10000,
            description="How many namespaces the home may have here: those that it maps, and one for each of its"
            " tenants.",
        ),
    ] = 100
    names: Annotated[
        GuestNames,
        Meta(
            description="Hashed: their names end in 16 digits, which the home's cluster id is part of, so that they are"
            " those of no other cluster. Same: the home may also request the names that they have there, if these are"
            " free here; it takes them from all tenants of this cluster."
        ),
    ] = GuestNames.HASHED
    cluster_id: Annotated[
        str,
        Meta(
            max_length=64,
            description="The uid of the namespace kube-system of the home; another cluster is refused. Empty: the first"
            " one that is served, which status.guestId names from then on.",
        ),
    ] = ""
    offer: (
        Annotated[GuestOffer, Meta(description="How much of the quota is offered. Absent: all of it.")] | UnsetType
    ) = UNSET
    invitation: (
        Annotated[
            GuestInvitation,
            Meta(
                description="Make the ServiceAccount NAME-invite, which may request the first token of NAME-renew once,"
                " and the Secret NAME-invite, to which its token is bound."
            ),
        ]
        | UnsetType
    ) = UNSET
    tunnel: (
        Annotated[
            GuestTunnel,
            Meta(description="Open a tunnel to the home, which cannot connect to this cluster (its dial: Peer)."),
        ]
        | UnsetType
    ) = UNSET
    lease_seconds: Annotated[
        int,
        Meta(
            ge=60,
            le=MOST_LEASE_SECONDS,
            description="How long the home may be silent until its Tenant is suspended; that ends when the home is"
            " back.",
        ),
    ] = LEASE_SECONDS
    keep_seconds: Annotated[
        int,
        Meta(
            ge=60,
            le=MOST_LEASE_SECONDS,
            description="How long after that its Tenant is deleted, with everything in it.",
        ),
    ] = LEASE_SECONDS


class PeerClusterSpec(Model, frozen=True, kw_only=True):
    """What the two clusters do for each other."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.host) || has(self.guest) || has(self.discovered)",
            "must have host (to use the other cluster), guest (to serve it), or both; or discovered",
        ),
    )

    host: Annotated[PeerHost, Meta(description="Use the other cluster.")] | UnsetType = UNSET
    guest: Annotated[PeerGuest, Meta(description="Serve the other cluster.")] | UnsetType = UNSET
    discovered: (
        Annotated[PeerDiscovery, Meta(description="How the other cluster was found. It grants nothing.")] | UnsetType
    ) = UNSET


class InvitationPhase(StrEnum):
    """Where an invitation is."""

    OPEN = "Open"
    USED = "Used"
    EXPIRED = "Expired"


class InvitationStatus(Model, frozen=True, kw_only=True):
    """The invitation of the guest half."""

    expires: Annotated[Instant, Meta(description="`spec.guest.invitation.expires`.")]
    phase: Annotated[
        InvitationPhase,
        Meta(description="Open: a token can be requested. Used: another cluster has used it. Expired: none has."),
    ]


class OfferStatus(Model, frozen=True, kw_only=True):
    """An offer, as the home reads it."""

    hard: Annotated[
        dict[str, Annotated[str, Meta(max_length=64)]],
        Meta(max_length=64, description="Amounts by resource of a Node, as in cpu, memory and pods."),
    ] = {}
    expires: Annotated[Instant, Meta(description="When the offer ends. Empty: never.")] = ""


class PeerClusterStatus(Model, frozen=True, kw_only=True):
    """What is known of the other cluster."""

    observed_generation: ObservedGeneration = 0
    cluster_id: Annotated[
        str, Meta(description="The uid of the namespace kube-system of the peer, as it reports it itself.")
    ] = ""
    guest_id: Annotated[
        str, Meta(description="The id of the home that is served: the one in spec.guest.clusterId, or the first one.")
    ] = ""
    version: Annotated[str, Meta(description="Its version of Kubernetes.")] = ""
    labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(
            max_length=MOST_LABELS,
            description="The labels that the peer proposes for its Node, which gets those that are allowed.",
        ),
    ] = {}
    token_audiences: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MOST_AUDIENCES,
            description="The audiences in spec.host.tokenAudiences whose tokens go to the peer: not those of the API"
            " server of this cluster.",
        ),
    ] = ()
    invitation: Annotated[InvitationStatus, Meta(description="The state of the invitation.")] | UnsetType = UNSET
    offer: Annotated[OfferStatus, Meta(description="What the other cluster offers to this one.")] | UnsetType = UNSET
    offered: Annotated[OfferStatus, Meta(description="What this cluster offers to the other one.")] | UnsetType = UNSET
    instances: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_INSTANCES,
            description="The replicas of the operator here that may hold the Lease of this cluster at the peer.",
        ),
    ] = ()
    last_contact: Annotated[
        Instant, Meta(description="When the home was last seen to renew its Lease here, by the clock of this cluster.")
    ] = ""
    conditions: Conditions = ()


class PeerCluster(KubernetesObject, frozen=True, kw_only=True):
    """Another cluster: one that runs pods of this one (host), or whose pods run here (guest)."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "peerclusters", "PeerCluster", namespaced=False)
    names: ClassVar[Names] = Names(short=("peer",))
    access: ClassVar[KindAccess] = KindAccess(operator=(*READ, "patch", "delete"), updates=("status", "finalizers"))
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= {MAX_NAME}",
            f"must be a DNS label of at most {MAX_NAME} lower-case letters, digits and -, because the Node and the"
            " Tenant of a peer have this name in theirs",
            field="metadata.name",
        ),
        Rule(
            f"!self.metadata.name.matches('({'|'.join(_SUFFIXES)})$') && self.metadata.name != 'default'",
            "must not be default nor end in -renew, -invite, -offer or -tunnel, which are names of other objects in"
            " tenantry-peers",
            field="metadata.name",
        ),
        Rule(
            "!has(oldSelf.spec.host) || (has(self.spec.host) && self.spec.host.guest == oldSelf.spec.host.guest"
            " && self.spec.host.credentialsSecretName == oldSelf.spec.host.credentialsSecretName)",
            "must keep spec.host, and the guest and the Secret in it: delete the PeerCluster and create another one, so"
            " that nothing is left at the peer",
        ),
        Rule(
            "!has(self.spec.guest) || !has(oldSelf.spec.guest) || oldSelf.spec.guest.?clusterId.orValue('') == ''"
            " || self.spec.guest.?clusterId.orValue('') == oldSelf.spec.guest.clusterId",
            "must keep clusterId, which the names of the home's namespaces here are of: for another cluster, delete the"
            " PeerCluster and create another one",
            field="spec.guest",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Server", "string", ".spec.host.server"),
        Column("Found At", "string", ".spec.discovered.server", priority=1),
        Column("Version", "string", ".status.version"),
        Column("Offer Cpu", "string", ".status.offer.hard.cpu"),
        Column("Offer Memory", "string", ".status.offer.hard.memory"),
        Column("Offer Pods", "string", ".status.offer.hard.pods"),
        Column("Offer Ends", "string", ".status.offer.expires"),
        Column("Labels", "string", ".status.labels"),
        Column("Offered", "string", ".status.offered.hard", priority=1),
        Column("Invitation", "string", ".status.invitation.phase", priority=1),
        Column("Cluster Id", "string", ".status.clusterId", priority=1),
        MESSAGE,
        AGE,
    )

    spec: PeerClusterSpec
    status: PeerClusterStatus = PeerClusterStatus()

    @property
    def give_up(self) -> str:
        """Return when an administrator gave the peer up; "" if it is not given up."""
        return self.metadata.annotations.get(GIVE_UP, "")

    @property
    def ends_at_once(self) -> bool:
        """Return whether it is being deleted without draining its Node."""
        return bool(self.metadata.deletion_timestamp) and self.metadata.annotations.get(AT_ONCE) == "true"

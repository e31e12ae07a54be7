"""NodeHandover: a node of a slice that serves another cluster, a control plane with nodes of its own (decision 73).

    Leaving ──────► Joining ──────► Joined ──────► Returning ──────► Back
    its pods        the cluster     it is Ready    the cluster lets  the host has
    leave the host  gets a Node     inside         its Node go       it again

A real node has a machine, which is wiped on both ways (decision 76):

    Leaving ─► Cleaning ─► Wiped ─► Joining ─► Joined ─► Returning ─► Remaking ─► Back
               machine ends         it starts                         it is wiped
               and is wiped         in the cluster                    and starts for the host

A machine from outside, of `spec.contributed`, is never the host's, and nothing here starts or wipes it (decision 89):

    Leaving ─► Wiped ─► Joining ─► Joined ─► Returning ─► Back

At Wiped, `status.addresses` and `status.podRange` are known. The control plane answers with `status.join`, which names
a token for that machine only, and the machine starts with it.

The Node on the host stays, cordoned and tainted, so that its slice, its charge and its name stay, too. The operator
writes the object, and tenants have no access to it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.contributednode import ContributedMachine
from tenantry.api.crd import AGE, MESSAGE, READY, REASON, Column, Conditions, Names, ObservedGeneration, Rule
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import KEEP, KindAccess, KubernetesObject, Model, Resource

FINALIZER = f"{GROUP}/handover"
"""Keeps a NodeHandover until the host has the node again; what deletes the object asks for the return."""

PENDING = "pending"
"""The value of `status.inside` before the Node is created: a return waits for any Node that may be there."""

DEFAULT_DRAIN_SECONDS = 60
MOST_DRAIN_SECONDS = 86400

MOST_LABELS = 64
MOST_TAINTS = 32
MOST_ADDRESSES = 8
MOST_VERSION = 64
"""The longest version of a kubelet that is kept, in characters."""

MOST_CA = 65536
"""The longest bundle of authorities, in characters."""

JOIN_TOKEN = "token"  # noqa: S105 - the name of a key
"""The key of the Secret of `status.join` that has the bootstrap token, as in "abcdef.0123456789abcdef"."""


class HandoverStage(StrEnum):
    """How far a node is on its way to a cluster, or back."""

    LEAVING = "Leaving"
    CLEANING = "Cleaning"
    WIPED = "Wiped"
    JOINING = "Joining"
    JOINED = "Joined"
    RETURNING = "Returning"
    REMAKING = "Remaking"
    BACK = "Back"


class MachineKind(StrEnum):
    """What a node is."""

    SIMULATED = "Simulated"
    REAL = "Real"
    CONTRIBUTED = "Contributed"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it (Kubernetes: "Taints and Tolerations")."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class NodeTaint(Model, frozen=True, kw_only=True):
    """A taint that the Node gets inside."""

    key: Annotated[str, Meta(min_length=1, max_length=317, description="The key of the taint.")]
    value: Annotated[str, Meta(max_length=63, description="The value of the taint.")] = ""
    effect: Annotated[TaintEffect, Meta(description="NoSchedule, PreferNoSchedule or NoExecute.")]


class HandoverPlane(Model, frozen=True, kw_only=True):
    """The VirtualControlPlane that the node serves."""

    namespace: Annotated[str, Meta(min_length=1, max_length=63, description="The namespace of the control plane.")]
    name: Annotated[str, Meta(min_length=1, max_length=63, description="The name of the control plane.")]
    uid: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description="The uid of the control plane, which distinguishes it from a later one of the same name.",
        ),
    ]


class BootstrapConfig(Model, frozen=True, kw_only=True):
    """A KubeadmConfig of Cluster API."""

    namespace: Annotated[str, Meta(min_length=1, max_length=63, description="Its namespace.")]
    name: Annotated[str, Meta(min_length=1, max_length=253, description="Its name.")]


class NodeHandoverSpec(Model, frozen=True, kw_only=True):
    """The cluster that a node serves, and what the Node has there."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("self.plane == oldSelf.plane", "must not change: delete the NodeHandover and create another one", "plane"),
        Rule("self.slice == oldSelf.slice", "must not change: delete the NodeHandover and create another one", "slice"),
        Rule(
            "has(self.contributed) == has(oldSelf.contributed)"
            " && (!has(self.contributed) || self.contributed == oldSelf.contributed)",
            "must not change: delete the NodeHandover and create another one",
            "contributed",
        ),
    )

    plane: Annotated[HandoverPlane, Meta(description="The control plane.")]
    slice: Annotated[str, Meta(max_length=63, description="The Slice that has the node; empty for one from outside.")]
    contributed: (
        Annotated[ContributedMachine, Meta(description="Of a machine from outside, which the host never had.")]
        | UnsetType
    ) = UNSET
    labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(max_length=MOST_LABELS, description="Labels of the Node in the cluster."),
    ] = {}
    taints: Annotated[
        tuple[NodeTaint, ...], Meta(max_length=MOST_TAINTS, description="Taints of the Node in the cluster.")
    ] = ()
    drain_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_DRAIN_SECONDS,
            description="Seconds that pods get to stop, on the host and in the cluster, before they are deleted."
            " Default: 60.",
        ),
    ] = DEFAULT_DRAIN_SECONDS
    version: Annotated[
        str, Meta(max_length=7, description="The minor version of the kubelet in the cluster, as in 1.36.")
    ] = ""
    bootstrap: (
        Annotated[
            BootstrapConfig,
            Meta(
                description="The KubeadmConfig of Cluster API whose token the machine of a real node joins with."
                " Without it, or if the machine does not use it in time, the operator makes one."
            ),
        ]
        | UnsetType
    ) = UNSET


class JoinSecret(Model, frozen=True, kw_only=True):
    """The Secret on the host with the token of one machine; no role of a tenant reads it."""

    namespace: Annotated[str, Meta(min_length=1, max_length=63, description="The namespace of the Secret.")]
    name: Annotated[str, Meta(min_length=1, max_length=253, description="The name of the Secret; its key is `token`.")]


class NodeJoin(Model, frozen=True, kw_only=True):
    """How the machine of a real node joins its control plane."""

    server: Annotated[
        str,
        Meta(max_length=253, description="The URL of the endpoint for nodes; it never wakes the control plane."),
    ]
    ca: Annotated[str, Meta(max_length=MOST_CA, description="The authorities of the API server, as PEM.")]
    secret: Annotated[JoinSecret, Meta(description="The Secret with the bootstrap token of this node.")]


class KubeletCertificates(Model, frozen=True, kw_only=True):
    """Until when the certificates are valid that the kubelet of a real node has in the cluster."""

    client: Annotated[str, Meta(max_length=32, description="That of the kubelet at the API server, RFC 3339.")] = ""
    serving: Annotated[str, Meta(max_length=32, description="That of the server of the kubelet, RFC 3339.")] = ""


class NodeHandoverStatus(Model, frozen=True, kw_only=True):
    """Where a node is."""

    observed_generation: ObservedGeneration = 0
    stage: Annotated[
        HandoverStage,
        Meta(description="Leaving, Cleaning, Wiped, Joining, Joined, Returning, Remaking or Back."),
    ] = HandoverStage.LEAVING
    kind: (
        Annotated[MachineKind, Meta(description="Simulated, Real or Contributed; absent until it is known.")]
        | UnsetType
    ) = UNSET
    node: Annotated[str, Meta(max_length=64, description="The uid of the Node on the host.")] = ""
    inside: Annotated[
        str,
        Meta(
            max_length=64,
            description=f"The uid of the Node in the cluster; `{PENDING}` while it is created, and empty while there is"
            " none.",
        ),
    ] = ""
    addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=45)], ...],
        Meta(
            max_length=MOST_ADDRESSES,
            description="The addresses of the machine of a real node in the cluster; empty while it has none.",
        ),
    ] = ()
    pod_range: Annotated[
        str, Meta(max_length=43, description="The range of the pods of a real node in the cluster, as CIDR.")
    ] = ""
    join: Annotated[NodeJoin, Meta(description="How a machine that is wiped joins the cluster.")] | UnsetType = UNSET
    kubelet: Annotated[
        str,
        Meta(max_length=MOST_VERSION, description="The version that the Node in the cluster reports, as in v1.36.3."),
    ] = ""
    cordoned: Annotated[bool, Meta(description="Whether users have cordoned the Node in the cluster.")] = False
    certificates: Annotated[
        KubeletCertificates, Meta(description="Until when its certificates are valid; the kubelet renews them before.")
    ] = KubeletCertificates()
    conditions: Conditions = ()


class NodeHandover(KubernetesObject, frozen=True, kw_only=True):
    """A node of a slice that serves another cluster. It has the name of the node. Tenantry alone writes it.

    Deletion asks for the return of the node.
    """

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "nodehandovers", "NodeHandover", namespaced=False)
    names: ClassVar[Names] = Names(short=("nho",))
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, updates=("status",))
    validations: ClassVar[tuple[Rule, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Stage", "string", ".status.stage"),
        Column("Namespace", "string", ".spec.plane.namespace"),
        Column("Cluster", "string", ".spec.plane.name"),
        READY,
        REASON,
        Column("Kubelet", "string", ".status.kubelet", priority=1),
        Column("Slice", "string", ".spec.slice", priority=1),
        MESSAGE,
        AGE,
    )

    spec: NodeHandoverSpec
    status: NodeHandoverStatus = NodeHandoverStatus()

"""DedicatedCluster: a Kubernetes cluster of one tenant's own, with its control plane and its nodes (H04).

DedicatedCluster "prod" in namespace "acme"
─► VirtualControlPlane "prod"        an API server with a scheduler; `nodes: Own`
─► SliceClaim "prod-POOL"            the nodes of each pool, charged to the tenant's quota
─► NodeHandover "NODE"               of each node that a claim has: it leaves the host and joins the cluster;
                                       and of each machine from outside

Users and Git write the spec; the operator writes the children and the status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.clusteraddons import AddOns
from tenantry.api.clustertemplate import NAME_PATTERN, TakenTemplate
from tenantry.api.contributednode import MOST_CONTRIBUTED, ContributedNode, ContributedNodeStatus
from tenantry.api.crd import (
    AGE,
    MESSAGE,
    READY,
    REASON,
    Column,
    Conditions,
    Names,
    ObservedGeneration,
    Rule,
    Scale,
    list_map,
)
from tenantry.api.marks import GROUP, REQUESTED_PHASE, VERSION
from tenantry.api.model import EDIT, KEEP, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.nodehandover import DEFAULT_DRAIN_SECONDS, MOST_DRAIN_SECONDS, NodeTaint
from tenantry.api.owner import MOST_INNER_OWNERS, InnerOwner
from tenantry.api.planecredentials import PlaneRotation
from tenantry.api.planeendpoint import ENDPOINT_RULE, Endpoint, PlaneEndpoint
from tenantry.api.planenetwork import NETWORK_RULE, Network, PlaneNetwork
from tenantry.api.planeserver import ClusterApiServer
from tenantry.api.planesnapshots import ClusterUpgrade, PlaneSnapshots
from tenantry.api.planeversions import VERSION_PATTERN, VERSION_RULES
from tenantry.api.quota import Quantity
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import MAX_NAME as MAX_CLAIM
from tenantry.api.slice import MAX_NODES, NodeSelector
from tenantry.api.times import Instant
from tenantry.api.virtualcontrolplane import (
    IDLE_RULE,
    MAX_REQUEST,
    MOST_IDLE,
    MOST_REPLICAS,
    PlaneDatastore,
    PlaneResources,
)

MAX_NAME = 30
"""The longest name of a cluster: a claim has this name with a hyphen and the name of a pool behind it."""

MAX_POOL_NAME = MAX_CLAIM - MAX_NAME - 1

MOST_POOLS = 16
MOST_POOLS_SHOWN = 2 * (MOST_POOLS + 1)
"""In the status: those that leave the cluster, too."""

MOST_POOL_LABELS = 16
MOST_POOL_TAINTS = 8

DEFAULT_POOL = "default"
"""The name of the pool that `spec.nodes` and `spec.defaultPool` are about."""

CLUSTER_FINALIZER = f"{GROUP}/dedicated-cluster"
"""Keeps a DedicatedCluster until its nodes are back on the host, and its claims and its control plane are gone."""


def claim_name(cluster: str, pool: str) -> str:
    """Return the name of the SliceClaim of a pool."""
    return f"{cluster}-{pool}"


class ClusterProvider(StrEnum):
    """What builds a cluster."""

    AUTO = "Auto"
    HOSTED = "Hosted"
    CLUSTER_API = "ClusterApi"


class ClusterControlPlane(Model, frozen=True, kw_only=True):
    """The control plane of a cluster. What is left out is that of the template, or has the default of the field."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The datastore of a template is checked by the operator.
            "!has(self.replicas) || self.replicas == 1 || !has(self.datastore) || !has(self.datastore.kind)"
            " || self.datastore.kind != 'SQLite'",
            "must be 1, unless the datastore is SharedEtcd, External or, on a local cluster, OwnEtcd",
            field="replicas",
        ),
    )

    # Unset, without a default in the schema: the template decides, and Git does not differ from what is stored.
    replicas: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MOST_REPLICAS,
                description="How many processes it has; see spec.replicas of VirtualControlPlane. Default: that of the"
                " template, or 1.",
            ),
        ]
        | UnsetType
    ) = UNSET
    datastore: (
        Annotated[
            PlaneDatastore,
            Meta(
                description="Where it keeps its objects. Only administrators choose External, as for a"
                " VirtualControlPlane. Default: that of the template, or OwnEtcd."
            ),
        ]
        | UnsetType
    ) = UNSET
    runtime: (
        Annotated[
            RuntimeChoice,
            Meta(
                description="Sandboxed: its Pods are in the sandbox of the host; see spec.runtime of"
                " VirtualControlPlane. A template with Sandboxed decides this for its clusters. Default: Shared."
            ),
        ]
        | UnsetType
    ) = UNSET
    resources: (
        Annotated[
            PlaneResources,
            Meta(
                description="What it takes of the tenant's quota while its process exists: the keys requests.cpu,"
                " requests.memory and limits.memory, if the quota has them. Default: that of the template, or the"
                " defaults of its fields."
            ),
        ]
        | UnsetType
    ) = UNSET


class PoolSettings(Model, frozen=True, kw_only=True):
    """Which nodes a pool takes, and what they have in the cluster."""

    selector: Annotated[NodeSelector, Meta(description="Labels that the nodes have on the host.")] = NodeSelector()
    per_node: Annotated[
        dict[str, Quantity],
        Meta(max_length=8, description="The least capacity of each node, for example cpu: 8."),
    ] = {}
    node_names: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...],
        Meta(max_length=MAX_NODES, description="Only these nodes are considered. Default: every node."),
    ] = ()
    labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(
            max_length=MOST_POOL_LABELS,
            description="Labels of the Nodes in the cluster, besides those that Kubernetes sets.",
        ),
    ] = {}
    taints: Annotated[
        tuple[NodeTaint, ...], Meta(max_length=MOST_POOL_TAINTS, description="Taints of the Nodes in the cluster.")
    ] = ()
    drain_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_DRAIN_SECONDS,
            description="Seconds that pods get to stop when a node joins or leaves the cluster. Default: 60.",
        ),
    ] = DEFAULT_DRAIN_SECONDS
    max_unavailable: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_NODES,
            description="How many nodes are rebuilt at one time after the control plane has another version: each"
            " leaves the cluster, is wiped and joins again. The operator takes no more from the nodes that are Ready."
            " Default: 1.",
        ),
    ] = 1
    version: Annotated[
        str,
        Meta(
            max_length=7,
            pattern=VERSION_PATTERN,
            description="The minor version of the kubelets, as in 1.35: at most three minor versions before that of the"
            " control plane, and not after it. Default: that of the control plane. Real nodes of a local cluster have"
            " the kubelets that were built.",
        ),
    ] = ""


class NodePool(PoolSettings, frozen=True, kw_only=True):
    """Nodes of a cluster with the same settings."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=MAX_POOL_NAME, pattern=DNS_LABEL, description="The name of the pool."),
    ]
    count: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_NODES,
            description=f"How many nodes it has, from 0 to {MAX_NODES}.",
            extra_json_schema={"default": 1},
        ),
    ] = 1


class SleepingNodes(StrEnum):
    """What becomes of the nodes of a cluster while its control plane sleeps."""

    KEEP = "Keep"
    RELEASE = "Release"


class ClusterSleep(Model, frozen=True, kw_only=True):
    """When the control plane of a cluster sleeps: its process ends, and its objects stay."""

    validations: ClassVar[tuple[Rule, ...]] = (IDLE_RULE,)

    after_idle_seconds: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=MOST_IDLE,
                description="Seconds without a request or a watch of a user or a program inside after which it sleeps."
                " Default: that of the template, or 0, for never.",
            ),
        ]
        | UnsetType
    ) = UNSET
    nodes: Annotated[
        SleepingNodes,
        Meta(
            description="Keep: its nodes stay, and their pods run on while it sleeps. Release: they are drained and"
            " return to the host first, and their quota returns; a cluster that wakes claims nodes again."
        ),
    ] = SleepingNodes.KEEP


class SleepStage(StrEnum):
    """Where the nodes of a cluster that sleeps are."""

    NONE = ""
    RELEASING = "Releasing"
    SLEEPING = "Sleeping"
    RELEASED = "Released"


class HandledRequests(Model, frozen=True, kw_only=True):
    """Requests of the spec that the operator has brought to the VirtualControlPlane, each once."""

    snapshot: Annotated[str, Meta(max_length=64, description="Of spec.snapshots.request.")] = ""
    restore: Annotated[str, Meta(max_length=128, description="Of spec.snapshots.restore.")] = ""
    rotation: Annotated[str, Meta(max_length=64, description="Of spec.rotation.request.")] = ""
    phase: Annotated[str, Meta(max_length=MAX_REQUEST, description=f"Of the annotation {REQUESTED_PHASE}.")] = ""
    sleep: Annotated[
        str, Meta(max_length=MAX_REQUEST, description="The request to sleep once its nodes have returned.")
    ] = ""


class DedicatedClusterSpec(Model, frozen=True, kw_only=True):
    """The control plane and the nodes of a cluster."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.pools) || self.pools.all(p, p.name != '{DEFAULT_POOL}')",
            f"must not have a pool {DEFAULT_POOL!r}: spec.nodes and spec.defaultPool are about it",
            field="pools",
        ),
        Rule(
            # The API server checks this of the default, too, which is {} before the field has its own.
            "(has(self.provider) ? self.provider : 'Auto') == (has(oldSelf.provider) ? oldSelf.provider : 'Auto')",
            "must not change: create another DedicatedCluster",
            field="provider",
        ),
        NETWORK_RULE,
        ENDPOINT_RULE,
    )

    provider: Annotated[
        ClusterProvider,
        Meta(
            description="Hosted: Tenantry runs the control plane, and nodes of this cluster join. ClusterApi: Cluster"
            " API builds the cluster, from the ClusterClass that spec.clusterApi of the template names. Auto, the"
            " default: ClusterApi if the template has that field and Cluster API is installed when the cluster is"
            " created, else Hosted."
        ),
    ] = ClusterProvider.AUTO
    template: Annotated[
        str,
        Meta(
            max_length=63,
            pattern=NAME_PATTERN,
            description="The ClusterTemplate with the offered versions, the defaults and the limits of the cluster."
            " Without it, a new cluster has the one that spec.dedicatedClusters.template of TenancyDefaults names, and"
            " keeps it. Its defaults are taken when the cluster is created, and again when this field names another"
            " template; see status.template.",
        ),
    ] = ""
    version: Annotated[
        str,
        Meta(
            max_length=7,
            pattern=VERSION_PATTERN,
            description="The minor version of Kubernetes, as in 1.36. Without it, the cluster keeps the version that"
            " was the latest of its template, or the default, when it was created. A later version upgrades it, one"
            " minor version at a time, after a snapshot of all objects. An earlier one needs a restore of a snapshot of"
            " that version in the same change.",
        ),
    ] = ""
    control_plane: Annotated[ClusterControlPlane, Meta(description="Its control plane.")] = ClusterControlPlane()
    nodes: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_NODES,
            description=f"How many nodes the default pool has, from 0 to {MAX_NODES}.",
            # In the schema, because the subresource `scale` reads it.
            extra_json_schema={"default": 1},
        ),
    ] = 1
    default_pool: Annotated[PoolSettings, Meta(description="The settings of the default pool.")] = PoolSettings()
    pools: Annotated[
        tuple[NodePool, ...],
        Meta(max_length=MOST_POOLS, description="Further pools.", extra_json_schema=list_map("name")),
    ] = ()
    endpoint: Endpoint = PlaneEndpoint()
    network: Network = PlaneNetwork()
    owners: Annotated[
        tuple[InnerOwner, ...],
        Meta(
            max_length=MOST_INNER_OWNERS,
            description="Users and groups inside that are administrators there, besides the user of the kubeconfig,"
            " which owners of the tenant read. If one is removed, the credentials of all users are replaced.",
        ),
    ] = ()
    api_server: Annotated[ClusterApiServer, Meta(description="Its API server.")] = ClusterApiServer()
    add_ons: AddOns = ()
    sleep: Annotated[ClusterSleep, Meta(description="When its control plane ends while it is not used.")] = (
        ClusterSleep()
    )
    snapshots: Annotated[
        PlaneSnapshots,
        Meta(
            description="Snapshots of all objects inside, and requests for one and for a restore, whose outcomes are in"
            " the status of the VirtualControlPlane of the same name."
        ),
    ] = PlaneSnapshots()
    rotation: Annotated[
        PlaneRotation,
        Meta(
            description="When its credentials are replaced; the outcome is in the status of the VirtualControlPlane of"
            " the same name."
        ),
    ] = PlaneRotation()
    upgrade: Annotated[
        ClusterUpgrade, Meta(description="How its control plane comes to another version of Kubernetes.")
    ] = ClusterUpgrade()
    contributed: Annotated[
        tuple[ContributedNode, ...],
        Meta(
            max_length=MOST_CONTRIBUTED,
            description="Machines from outside that serve the cluster, besides its pools; no quota counts them."
            " `tenantry node contribute --to` adds one, and an entry that is removed ends it. A changed entry ends it,"
            " too, and the machine joins anew.",
            extra_json_schema=list_map("name"),
        ),
    ] = ()
    expires_at: Annotated[
        Instant,
        Meta(
            description="When the operator deletes the cluster with all objects inside, and its nodes return. A later"
            " time renews it."
        ),
    ] = ""
    paused: Annotated[
        bool,
        Meta(
            description="Whether the operator leaves its control plane, its claims and its nodes as they are. A"
            " deletion is carried out all the same."
        ),
    ] = False


class PoolStatus(Model, frozen=True, kw_only=True):
    """The nodes of a pool."""

    name: Annotated[str, Meta(max_length=63, description="The name of the pool.")]
    want: Annotated[int, Meta(description="How many nodes it is to have.")] = 0
    ready: Annotated[int, Meta(description="Nodes that are Ready in the cluster.")] = 0
    joining: Annotated[int, Meta(description="Nodes on their way from the host to the cluster.")] = 0
    leaving: Annotated[int, Meta(description="Nodes on their way from the cluster to the host.")] = 0


class ClusterVersions(Model, frozen=True, kw_only=True):
    """The versions of Kubernetes that run in a cluster, as in 1.36.3; they differ while nodes are rebuilt."""

    control_plane: Annotated[str, Meta(max_length=16, description="Of its control plane.")] = ""
    oldest_node: Annotated[str, Meta(max_length=16, description="Of the oldest kubelet that its nodes report.")] = ""
    newest_node: Annotated[str, Meta(max_length=16, description="Of the newest kubelet that its nodes report.")] = ""


class DedicatedClusterStatus(Model, frozen=True, kw_only=True):
    """Where a cluster is."""

    observed_generation: ObservedGeneration = 0
    version: Annotated[str, Meta(max_length=16, description="The version of Kubernetes of its control plane.")] = ""
    versions: Annotated[
        ClusterVersions,
        Meta(
            description="The versions that run in it, while nodes of an earlier one are rebuilt, too. Users inside can"
            " change what nodes report."
        ),
    ] = ClusterVersions()
    template: (
        Annotated[
            TakenTemplate,
            Meta(description="What it has taken of its template, before its control plane was created."),
        ]
        | UnsetType
    ) = UNSET
    provider: (
        Annotated[ClusterProvider, Meta(description="Hosted or ClusterApi, once that is decided.")] | UnsetType
    ) = UNSET
    endpoint: Annotated[str, Meta(description="The URL of its API server.")] = ""
    kubeconfig_secret: Annotated[
        str,
        Meta(description="The Secret that has a kubeconfig under the key `value`, as clusters of Cluster API have."),
    ] = ""
    kubeconfig_namespace: Annotated[
        str, Meta(description="The namespace of this Secret; without it, that of the cluster.")
    ] = ""
    nodes: Annotated[
        int, Meta(description="How many nodes of the default pool are Ready in the cluster; see the subresource scale.")
    ] = 0
    ready_nodes: Annotated[
        str, Meta(max_length=16, description="Nodes of all pools: those that are Ready, and those that it is to have.")
    ] = ""
    pools: Annotated[
        tuple[PoolStatus, ...],
        Meta(
            max_length=MOST_POOLS_SHOWN,
            description="Its pools, and those that are leaving it.",
            extra_json_schema=list_map("name"),
        ),
    ] = ()
    contributed: Annotated[
        tuple[ContributedNodeStatus, ...],
        Meta(
            max_length=2 * MOST_CONTRIBUTED,
            description="Its machines from outside, and those that are leaving it.",
            extra_json_schema=list_map("name"),
        ),
    ] = ()
    allowed_nodes: Annotated[
        int,
        Meta(
            description="How many nodes of all pools the template allowed last; a lower limit, which comes later, does"
            " not count for them."
        ),
    ] = 0
    sleep: Annotated[
        SleepStage,
        Meta(
            description="With spec.sleep.nodes: Release. Releasing: its nodes return to the host. Sleeping: they have,"
            " and its control plane is about to sleep. Released: it sleeps without nodes."
        ),
    ] = SleepStage.NONE
    requests: Annotated[
        HandledRequests, Meta(description="Requests that the VirtualControlPlane has; each is brought there once.")
    ] = HandledRequests()
    charged: Annotated[
        dict[str, str],
        Meta(
            max_length=8,
            description="What the tenant's quota has granted to its control plane, by quota key; nodes are charged by"
            " their SliceClaims.",
        ),
    ] = {}
    last_backup: Annotated[
        str, Meta(max_length=32, description="When the newest snapshot that is kept was taken, as RFC 3339.")
    ] = ""
    conditions: Conditions = ()


class DedicatedCluster(KubernetesObject, frozen=True, kw_only=True):
    """A Kubernetes cluster of a tenant's own: a hosted control plane, and nodes that leave the host for it."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "dedicatedclusters", "DedicatedCluster")
    names: ClassVar[Names] = Names(short=("dcl",))
    scale: ClassVar[Scale] = Scale(".spec.nodes", ".status.nodes")
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, updates=("status",), owners=EDIT)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= {MAX_NAME}",
            f"must be a DNS label of at most {MAX_NAME} lower-case letters, digits and -, because the SliceClaim of"
            " each pool has this name with that of the pool behind it",
            field="metadata.name",
        ),
        *VERSION_RULES,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Version", "string", ".status.version"),
        Column("Template", "string", ".status.template.name"),
        Column("Nodes", "string", ".status.readyNodes"),
        Column("Endpoint", "string", ".status.endpoint"),
        Column("Asleep", "string", '.status.conditions[?(@.type=="Sleeping")].status'),
        MESSAGE,
        AGE,
    )

    spec: DedicatedClusterSpec = DedicatedClusterSpec()
    status: DedicatedClusterStatus = DedicatedClusterStatus()

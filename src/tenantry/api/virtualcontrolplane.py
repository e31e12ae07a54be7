"""VirtualControlPlane: an API server and controllers of a tenant's own, whose pods run in the tenant's namespace (H01).

VirtualControlPlane "web" in namespace "acme"
─► a hosted control plane: users are administrators inside
─► each Pod inside is mirrored: a Pod in "acme", under acme's quota, rules and NetworkPolicies
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.clusteraddons import AddOns
from tenantry.api.clusterguards import Guards
from tenantry.api.crd import AGE, MESSAGE, READY, REASON, Column, Conditions, Names, ObservedGeneration, Rule, rules
from tenantry.api.marks import GROUP, REQUESTED_PHASE, VERSION
from tenantry.api.model import EDIT, READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.owner import MOST_INNER_OWNERS, InnerOwner
from tenantry.api.planecredentials import PlaneCredentials, PlaneEncryption, PlaneRotation, PlaneRotationOutcome
from tenantry.api.planeegress import PlaneEgress
from tenantry.api.planeendpoint import ENDPOINT_RULE, Endpoint, PlaneEndpoint
from tenantry.api.planehosting import HostedIn, PlaneHosting, PlaneRuntime
from tenantry.api.planenetwork import NETWORK_RULE, NO_NETWORK, Network, PlaneNetwork
from tenantry.api.planeserver import (
    FeatureGates,
    PlaneAudit,
    PlaneAuthentication,
    PlaneFairness,
    PlaneTokens,
)
from tenantry.api.planesnapshots import (
    MOST_LISTED,
    PlaneOutcome,
    PlaneSnapshot,
    PlaneSnapshots,
    PlaneUpgrade,
    UpgradeSettings,
)
from tenantry.api.planeversions import VERSION_PATTERN, VERSION_RULES
from tenantry.api.quota import Quantity
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.snapshotdestinations import MOST_DESTINATIONS

MAX_NAME = 40
"""The longest name: its process and its kubeconfig have this name with the namespace's before it."""

PREFIX = f"vcp.{GROUP}"
"""Of the marks of mirrored objects; the marks of Tenantry, which users cannot write, include them."""

MIRROR = "tenantry-mirror"
"""The ClusterRole, and the start of the RoleBindings, by which mirrored objects are written in one namespace.

Earlier versions had a ServiceAccount of this name in each namespace with control planes.
"""

MIRRORS_NAMESPACE = "tenantry-mirrors"
"""The namespace of the identities of mirrors: a ServiceAccount with the name of each namespace with control planes.

No tenant has a role in this namespace. Owners may impersonate each ServiceAccount of their own namespaces.
"""

PLANE = f"{PREFIX}/control-plane"
"""The label of what the operator itself keeps on the host for one control plane: its name."""

OWNERS_INSIDE = "tenantry:owners"
"""The ClusterRoleBinding inside a control plane by which its users are administrators there."""

KUBECONFIG_KEY = "kubeconfig"
"""The key of the kubeconfig in the Secret that `status.kubeconfigSecret` names."""


def kubeconfig_secret_name(name: str) -> str:
    """Return the name of the Secret with the kubeconfig of a control plane."""
    return f"{name}-kubeconfig"


PROCESS_NAMESPACE = "tenantry-vcp"
"""The namespace of the Pods of control planes, on clusters where they run in Pods."""

PROCESS_FINALIZER = f"{PREFIX}/process"
"""Keeps a VirtualControlPlane until its process, its data and its keys are gone; until then, it is charged."""

CPU_FLOOR, CPU_CEILING = "10m", "64"
"""Without requests, a process uses about 15 thousandths of a CPU."""

MEMORY_FLOOR = "96Mi"
"""The least request: the memory that its API server and its controllers hold without any objects of users."""

LIMIT_FLOOR = "192Mi"
"""The least limit: a process that has just started holds about 170 MB (decision 27), and would be killed below."""

LEAST_IDLE, MOST_IDLE = 10, 7 * 24 * 3600
"""Of `spec.sleep.afterIdleSeconds`: a start takes seconds, so that a shorter time would only cost CPU."""

MAX_REQUEST = 64
"""The longest value of the annotation REQUESTED_PHASE that is read."""

MEMORY_CEILING = "64Gi"
"""Bounds the sums of the quota; a control plane that needs more is a typing error."""


MOST_REPLICAS = 5


class DatastoreKind(StrEnum):
    """Where a control plane keeps its objects."""

    SQLITE = "SQLite"
    SHARED_ETCD = "SharedEtcd"
    OWN_ETCD = "OwnEtcd"
    EXTERNAL = "External"


RESTRICTED_DATASTORES = (DatastoreKind.EXTERNAL,)
"""Kinds that only administrators choose: a connection out of the host."""


class DatastoreSecret(Model, frozen=True, kw_only=True):
    """A Secret in the namespace of the operator."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="Its name.")]


class PlaneDatastore(Model, frozen=True, kw_only=True):
    """The datastore of a control plane."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("self == oldSelf", "must not change: create another VirtualControlPlane"),
        Rule(
            # The API server checks this of the default, too, which has no kind yet.
            "has(self.secretRef) == (has(self.kind) && self.kind == 'External')",
            "must be set for the kind External, and for no other kind",
            field="secretRef",
        ),
    )

    kind: Annotated[
        DatastoreKind,
        Meta(
            description="SQLite, in the process of the control plane: 512 MiB at most, one replica. SharedEtcd: an etcd"
            " for all control planes, with a prefix and a user for each, 512 MiB at most. OwnEtcd: an etcd for this"
            " one, 512 MiB at most, which is charged, too. External: a database in PostgreSQL or MySQL, which only"
            " administrators choose."
        ),
    ] = DatastoreKind.SQLITE
    secret_ref: (
        Annotated[
            DatastoreSecret,
            Meta(
                description="For External: the Secret in the operator's namespace with the keys `driver` (postgres or"
                " mysql), `address` (the path of a Unix socket, or HOST:PORT, with TLS), `database`, `user`,"
                " `password`, and for HOST:PORT `ca` and `allowed`, if they are needed."
            ),
        ]
        | UnsetType
    ) = UNSET


def _amount(about: str, floor: str, ceiling: str) -> Meta:
    """Return the description and the bounds of an amount; another rule refuses what is no quantity."""
    amount = "quantity(string(self))"
    return Meta(
        description=f"{about}, from {floor} to {ceiling}.",
        extra_json_schema=rules(
            Rule(
                f"!isQuantity(string(self)) || !{amount}.isLessThan(quantity('{floor}'))",
                f"must be at least {floor}, without which the process does not start",
            ),
            Rule(
                f"!isQuantity(string(self)) || !{amount}.isGreaterThan(quantity('{ceiling}'))",
                f"must be at most {ceiling}",
            ),
        ),
    )


class PlaneRequests(Model, frozen=True, kw_only=True):
    """What is charged to the tenant's quota as requests."""

    cpu: Annotated[Quantity, _amount("CPU that its process requests", CPU_FLOOR, CPU_CEILING)] = "50m"
    memory: Annotated[Quantity, _amount("Memory that its process requests", MEMORY_FLOOR, MEMORY_CEILING)] = "96Mi"


class PlaneLimits(Model, frozen=True, kw_only=True):
    """What is charged to the tenant's quota as limits."""

    memory: Annotated[Quantity, _amount("The memory limit of its process", LIMIT_FLOOR, MEMORY_CEILING)] = "256Mi"


_REQUESTED = "quantity(string(self.requests.memory))"
_FOUR_TIMES = f"{_REQUESTED}.add({_REQUESTED}).add({_REQUESTED}).add({_REQUESTED})"


class PlaneResources(Model, frozen=True, kw_only=True):
    """The share of the tenant's quota that a control plane takes, for the keys that the quota has."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The API server checks this of the default, too, which is {} before the fields have theirs.
            "!has(self.requests) || !has(self.limits) || !isQuantity(string(self.requests.memory))"
            " || !isQuantity(string(self.limits.memory))"
            " || !quantity(string(self.requests.memory)).isGreaterThan(quantity(string(self.limits.memory)))",
            "must not be more than limits.memory",
            field="requests.memory",
        ),
        Rule(
            # A quota may have the key requests.memory alone: it bounds the limit, too.
            "!has(self.requests) || !has(self.limits) || !isQuantity(string(self.requests.memory))"
            " || !isQuantity(string(self.limits.memory))"
            f" || !quantity(string(self.limits.memory)).isGreaterThan({_FOUR_TIMES})",
            "must be at most four times requests.memory",
            field="limits.memory",
        ),
    )

    requests: Annotated[PlaneRequests, Meta(description="What its process requests.")] = PlaneRequests()
    limits: Annotated[PlaneLimits, Meta(description="What its process may use.")] = PlaneLimits()


class SleepWorkloads(StrEnum):
    """What becomes of the pods on the host while a control plane sleeps."""

    KEEP = "Keep"
    DELETE = "Delete"


IDLE_RULE = Rule(
    f"!has(self.afterIdleSeconds) || self.afterIdleSeconds == 0 || self.afterIdleSeconds >= {LEAST_IDLE}",
    f"must be 0, for never, or at least {LEAST_IDLE}",
    field="afterIdleSeconds",
)


class PlaneSleep(Model, frozen=True, kw_only=True):
    """When a control plane sleeps: its process ends, and its objects stay."""

    validations: ClassVar[tuple[Rule, ...]] = (IDLE_RULE,)

    after_idle_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_IDLE,
            description=f"Seconds without a request or a watch of a user or a program inside after which it sleeps: 0"
            f" for never, or {LEAST_IDLE} to {MOST_IDLE}.",
        ),
    ] = 600
    workloads: Annotated[
        SleepWorkloads,
        Meta(
            description="Keep: its pods run on while it sleeps. Delete: its pods on the host are deleted; after waking,"
            " those of a Deployment or another controller start again."
        ),
    ] = SleepWorkloads.KEEP


class PlanePhase(StrEnum):
    """Whether a control plane has a process."""

    STARTING = "Starting"
    UPGRADING = "Upgrading"
    AWAKE = "Awake"
    ASLEEP = "Asleep"


class PlaneNodes(StrEnum):
    """Which nodes a control plane has."""

    USED = "Used"
    SLICE = "Slice"
    OWN = "Own"


REPLICAS_RULE = Rule(
    "!has(self.replicas) || self.replicas == 1 || (has(self.datastore) && has(self.datastore.kind)"
    " && self.datastore.kind != 'SQLite')",
    "must be 1, unless the datastore is SharedEtcd, External or, on a local cluster, OwnEtcd",
    field="replicas",
)
"""Of what has `replicas` and `datastore`."""


class VirtualControlPlaneSpec(Model, frozen=True, kw_only=True):
    """How a control plane runs."""

    validations: ClassVar[tuple[Rule, ...]] = (
        REPLICAS_RULE,
        Rule(
            "(has(self.nodes) && self.nodes == 'Own') == (has(oldSelf.nodes) && oldSelf.nodes == 'Own')",
            "must not change from or to Own: create another VirtualControlPlane",
            field="nodes",
        ),
        Rule(
            "!has(self.addOns) || size(self.addOns) == 0 || (has(self.nodes) && self.nodes == 'Own')",
            "must be empty unless nodes is Own: only nodes of its own need them",
            field="addOns",
        ),
        NETWORK_RULE,
        ENDPOINT_RULE,
        Rule(
            f"(has(self.nodes) && self.nodes == 'Own') || ({NO_NETWORK})",
            "must be empty unless nodes is Own: pods and Services on the host have addresses of the host",
            field="network",
        ),
    )

    version: Annotated[
        str,
        Meta(
            max_length=7,
            pattern=VERSION_PATTERN,
            description="The minor version of Kubernetes, as in 1.36. Without it, the control plane keeps the version"
            " that was the default when it was created. A later version upgrades it, one minor version at a time, after"
            " a snapshot of all objects. An earlier one needs a restore of a snapshot of that version in the same"
            " change.",
        ),
    ] = ""
    replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_REPLICAS,
            description="How many processes it has. Clients reach any of them, and the controllers run in one. Several"
            " need the datastore SharedEtcd or External, or OwnEtcd on a local cluster: in Pods, the etcd of OwnEtcd is"
            " in the Pod of its only process. Each takes spec.resources. A control plane with several processes sleeps"
            " by request only.",
        ),
    ] = 1
    datastore: Annotated[PlaneDatastore, Meta(description="Where it keeps its objects.")] = PlaneDatastore()
    resources: Annotated[
        PlaneResources,
        Meta(
            description="What it takes of the tenant's quota while its process exists: the keys requests.cpu,"
            " requests.memory and limits.memory, if the quota has them. The etcd of OwnEtcd is added. Its process"
            " starts when there is room."
        ),
    ] = PlaneResources()
    nodes: Annotated[
        PlaneNodes,
        Meta(
            description="Used: one Node from the start, and one for each other node of the host from its first pod on."
            " Slice: all nodes of the slice that the namespace has, so that a DaemonSet reaches each. Without a slice,"
            " Slice is the same as Used. Own: those that join it; its own scheduler places its pods there, and nothing"
            " is mirrored. Own must not change."
        ),
    ] = PlaneNodes.USED
    endpoint: Endpoint = PlaneEndpoint()
    network: Network = PlaneNetwork()
    owners: Annotated[
        tuple[InnerOwner, ...],
        Meta(
            max_length=MOST_INNER_OWNERS,
            description="Users and groups inside that are administrators there, besides the user of the kubeconfig. If"
            " one is removed, the credentials of all users are replaced.",
        ),
    ] = ()
    add_ons: AddOns = ()
    guards: Guards = ()
    hosting: HostedIn = PlaneHosting.AUTO
    runtime: PlaneRuntime = RuntimeChoice.SHARED
    sleep: Annotated[PlaneSleep, Meta(description="When its process ends while it is not used.")] = PlaneSleep()
    egress: Annotated[
        PlaneEgress,
        Meta(description="Where its API server may connect to besides its own pods; only administrators set it."),
    ] = PlaneEgress()
    snapshots: Annotated[
        PlaneSnapshots, Meta(description="Snapshots of all objects inside, which a restore brings back.")
    ] = PlaneSnapshots()
    rotation: Annotated[PlaneRotation, Meta(description="When its credentials are replaced.")] = PlaneRotation()
    upgrade: Annotated[UpgradeSettings, Meta(description="How it comes to another version of Kubernetes.")] = (
        UpgradeSettings()
    )
    authentication: Annotated[PlaneAuthentication, Meta(description="How its users prove who they are.")] = (
        PlaneAuthentication()
    )
    feature_gates: FeatureGates = ()
    tokens: Annotated[PlaneTokens, Meta(description="The tokens of its ServiceAccounts.")] = PlaneTokens()
    audit: Annotated[PlaneAudit, Meta(description="The audit log of its API server.")] = PlaneAudit()
    fairness: Annotated[PlaneFairness, Meta(description="How many requests its API server serves at once.")] = (
        PlaneFairness()
    )


class VirtualControlPlaneStatus(Model, frozen=True, kw_only=True):
    """Where a control plane is."""

    observed_generation: ObservedGeneration = 0
    version: Annotated[
        str,
        Meta(
            max_length=16,
            description="The version of Kubernetes of its process and its objects. It changes before the process of"
            " another version starts.",
        ),
    ] = ""
    endpoint: Annotated[str, Meta(description="The URL of its API server.")] = ""
    kubeconfig_secret: Annotated[
        str, Meta(description="The Secret that has a kubeconfig under the key `kubeconfig`.")
    ] = ""
    kubeconfig_namespace: Annotated[
        str, Meta(description="The namespace of this Secret; without it, that of the control plane.")
    ] = ""
    charged: Annotated[
        dict[str, str],
        Meta(
            max_length=8,
            description="What the tenant's quota has granted, by quota key. It is written before the process starts.",
        ),
    ] = {}
    snapshots: Annotated[
        tuple[PlaneSnapshot, ...],
        Meta(max_length=MOST_LISTED, description="Those that are kept, the oldest first."),
    ] = ()
    snapshot_destinations: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MOST_DESTINATIONS,
            description="Destinations that may have snapshots of it, which are deleted with it. Each is written before"
            " its first snapshot.",
        ),
    ] = ()
    last_snapshot: Annotated[PlaneOutcome, Meta(description="The last snapshot that was to be taken.")] = PlaneOutcome()
    last_restore: Annotated[PlaneOutcome, Meta(description="The last restore.")] = PlaneOutcome()
    last_upgrade: Annotated[PlaneUpgrade, Meta(description="The last upgrade.")] = PlaneUpgrade()
    credentials: Annotated[PlaneCredentials, Meta(description="Which credentials are to be in force.")] = (
        PlaneCredentials()
    )
    last_rotation: Annotated[
        PlaneRotationOutcome, Meta(description="The last replacement of credentials that is done.")
    ] = PlaneRotationOutcome()
    encryption: Annotated[PlaneEncryption, Meta(description="How its Secrets and ConfigMaps are stored.")] = (
        PlaneEncryption()
    )
    phase: Annotated[
        PlanePhase,
        Meta(
            description="Starting: it has no process yet, or waits for room in the quota. Upgrading: the process of"
            " another version starts; see status.lastUpgrade. Awake: its process runs."
            " Asleep: it has no process and is charged nothing; its pods run on, and the next event starts it."
        ),
    ] = PlanePhase.STARTING
    next_wake: Annotated[
        str, Meta(max_length=32, description="When it wakes at the latest, as RFC 3339; only while it sleeps.")
    ] = ""
    wakes: Annotated[int, Meta(ge=0, description="How often it woke.")] = 0
    handled_request: Annotated[
        str,
        Meta(
            max_length=MAX_REQUEST, description=f"The value of the annotation {REQUESTED_PHASE} that was handled last."
        ),
    ] = ""
    pods_at_sleep: Annotated[
        str, Meta(max_length=64, description="A digest of its pods on the host when it fell asleep: a change wakes it.")
    ] = ""
    conditions: Conditions = ()


class VirtualControlPlane(KubernetesObject, frozen=True, kw_only=True):
    """An API server and controllers of a tenant's own; its pods run in the namespace of this object."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "virtualcontrolplanes", "VirtualControlPlane")
    names: ClassVar[Names] = Names(short=("vcp",))
    access: ClassVar[KindAccess] = KindAccess(
        operator=(*READ, "create", "patch", "delete"), updates=("status",), owners=EDIT
    )
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= {MAX_NAME}",
            f"must be a DNS label of at most {MAX_NAME} lower-case letters, digits and -",
            field="metadata.name",
        ),
        *VERSION_RULES,
        Rule(
            # Here, because a rule of the field is not evaluated when the field is removed.
            "!has(oldSelf.spec) || !has(oldSelf.spec.tokens) || !has(oldSelf.spec.tokens.issuer)"
            " || oldSelf.spec.tokens.issuer == ''"
            " || (has(self.spec) && has(self.spec.tokens) && has(self.spec.tokens.issuer)"
            " && self.spec.tokens.issuer == oldSelf.spec.tokens.issuer)",
            "must not change once it is set: tokens of pods that run would be refused",
            field="spec.tokens.issuer",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Phase", "string", ".status.phase"),
        Column("Version", "string", ".status.version"),
        Column("Endpoint", "string", ".status.endpoint"),
        MESSAGE,
        AGE,
    )

    spec: VirtualControlPlaneSpec = VirtualControlPlaneSpec()
    status: VirtualControlPlaneStatus = VirtualControlPlaneStatus()

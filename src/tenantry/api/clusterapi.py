"""The kinds by which Cluster API builds clusters out of nodes of this cluster, under contract v1beta2 (opt-in).

Cluster API                       Tenantry
Cluster ─► TenantryControlPlane   ─► VirtualControlPlane with `nodes: Own`
       └─► TenantryCluster        nothing: the host has the network already
Machine ─► TenantryMachine        ─► SliceClaim of one node ─► NodeHandover

`tenantry install --cluster-api-provider` installs them; without it, nothing of them is watched. The operator writes the
fields that the contract puts into a spec: `controlPlaneEndpoint` and `providerID`. Owners get no rights on these kinds.
What Cluster API creates in the namespace of a tenant is charged to that tenant.

Source: The Cluster API Book, "Provider contracts" (v1beta2).
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import AGE, MESSAGE, READY, REASON, Column, Conditions, Names, ObservedGeneration, Rule, list_map
from tenantry.api.dedicatedcluster import PoolSettings
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import MAX_NAME as MAX_CLAIM
from tenantry.api.virtualcontrolplane import MAX_NAME as MAX_PLANE
from tenantry.api.virtualcontrolplane import PlaneResources

CORE_GROUP = "cluster.x-k8s.io"
INFRASTRUCTURE_GROUP = f"infrastructure.{CORE_GROUP}"
CONTROL_PLANE_GROUP = f"controlplane.{CORE_GROUP}"

CLUSTERS = Resource(CORE_GROUP, "v1beta2", "clusters", "Cluster")
"""Cluster API's own objects, one for each cluster."""

CLUSTER_CLASSES = Resource(CORE_GROUP, "v1beta2", "clusterclasses", "ClusterClass")
"""Cluster API's patterns of clusters."""

MACHINES = Resource(CORE_GROUP, "v1beta2", "machines", "Machine")
"""Cluster API's own objects, one for each node."""

BOOTSTRAP_GROUP = f"bootstrap.{CORE_GROUP}"
KUBEADM_CONFIGS = Resource(BOOTSTRAP_GROUP, "v1beta2", "kubeadmconfigs", "KubeadmConfig")
"""Objects of the kubeadm bootstrap provider, which makes a token for each Machine."""

CONTRACT = f"{CORE_GROUP}/v1beta2"
"""The label of a CRD whose versions follow the contract: the value is their names."""

CLUSTER_NAME = f"{CORE_GROUP}/cluster-name"
"""The label of what belongs to a Cluster: its name."""

PAUSED = f"{CORE_GROUP}/paused"
"""The annotation of an object that no controller changes."""

CLONED_FROM = f"{CORE_GROUP}/cloned-from-name"
"""The annotation of an object that Cluster API has made of a template: the name of that."""

SECRET_TYPE = f"{CORE_GROUP}/secret"
KUBECONFIG_VALUE = "value"
"""The key of the kubeconfig in the Secret `CLUSTER-kubeconfig`."""

CLUSTER_API_FINALIZER = f"{GROUP}/cluster-api"
"""Keeps a TenantryControlPlane until its control plane is gone, and a TenantryMachine until the host has its node."""

_ACCESS = KindAccess(operator=(*READ, "patch"), updates=("status",))
_SEMVER = r"^v?[0-9]+[.][0-9]+[.][0-9]+([-+].*)?$"
_NOT_A_LABEL = re.compile(r"[^a-z0-9-]")
_DIGITS = 8


def kubeconfig_name(cluster: str) -> str:
    """Return the name of the Secret with the kubeconfig of a Cluster."""
    return f"{cluster}-kubeconfig"


def authority_name(cluster: str) -> str:
    """Return the name of the Secret with the certificate of the CA of a Cluster."""
    return f"{cluster}-ca"


def plane_name(name: str) -> str:
    """Return the name of the VirtualControlPlane of a TenantryControlPlane.

    It is another one than that of the Cluster, because both have a Secret `NAME-kubeconfig`.
    """
    return _fitting(f"{name}-capi", MAX_PLANE)


def machine_claim_name(name: str) -> str:
    """Return the name of the SliceClaim of a TenantryMachine."""
    return _fitting(name, MAX_CLAIM)


def _fitting(name: str, longest: int) -> str:
    """Return a name as a DNS label of a length; a digest makes one that is changed unique."""
    plain = _NOT_A_LABEL.sub("-", name)
    if plain == name and len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{plain[: longest - _DIGITS - 1].rstrip('-')}-{digest}"


def provider_id(found: NodeHandover) -> str:
    """Return `spec.providerID` of the Node inside: another one each time that the node serves a cluster."""
    return f"tenantry://{found.metadata.uid}/{found.metadata.name}"


class ApiEndpoint(Model, frozen=True, kw_only=True):
    """Where clients reach an API server."""

    host: Annotated[str, Meta(max_length=512, description="The host name or address.")] = ""
    port: Annotated[int, Meta(ge=0, le=65535, description="The port.")] = 0


class TemplateMetadata(Model, frozen=True, kw_only=True):
    """What objects made of a template have besides their spec."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Provisioned(Model, frozen=True, kw_only=True):
    """How far an object has got the first time."""

    provisioned: Annotated[bool, Meta(description="Whether Cluster API may go on.")] = False


class TenantryClusterSpec(Model, frozen=True, kw_only=True):
    """What Cluster API calls infrastructure of a cluster; there is nothing to choose."""

    control_plane_endpoint: Annotated[
        ApiEndpoint, Meta(description="Not used: the TenantryControlPlane has the endpoint.")
    ] = ApiEndpoint()


class TenantryClusterStatus(Model, frozen=True, kw_only=True):
    """Where a cluster is."""

    observed_generation: ObservedGeneration = 0
    initialization: Annotated[Provisioned, Meta(description="For Cluster API.")] = Provisioned()
    conditions: Conditions = ()


class TenantryCluster(KubernetesObject, frozen=True, kw_only=True):
    """The infrastructure of a Cluster of Cluster API on this cluster: nodes and network of the host."""

    resource: ClassVar[Resource] = Resource(INFRASTRUCTURE_GROUP, VERSION, "tenantryclusters", "TenantryCluster")
    names: ClassVar[Names] = Names(categories=("cluster-api",))
    access: ClassVar[KindAccess] = _ACCESS
    columns: ClassVar[tuple[Column, ...]] = (READY, REASON, MESSAGE, AGE)

    spec: TenantryClusterSpec = TenantryClusterSpec()
    status: TenantryClusterStatus = TenantryClusterStatus()


class TenantryControlPlaneSpec(Model, frozen=True, kw_only=True):
    """The control plane of a Cluster."""

    version: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=_SEMVER,
            description="The version of Kubernetes, as in v1.36.3. Only its minor version counts: there is one patch"
            " release of each.",
        ),
    ]
    replicas: (
        Annotated[int, Meta(ge=1, le=1, description="How many processes it has. Only 1: the datastore is SQLite.")]
        | UnsetType
    ) = UNSET
    resources: Annotated[
        PlaneResources,
        Meta(
            description="What it takes of the tenant's quota while its process exists: the keys requests.cpu,"
            " requests.memory and limits.memory, if the quota has them."
        ),
    ] = PlaneResources()
    control_plane_endpoint: Annotated[
        ApiEndpoint, Meta(description="Where its API server is reached. The operator sets it.")
    ] = ApiEndpoint()


class ControlPlaneInitialization(Model, frozen=True, kw_only=True):
    """How far a control plane has got the first time."""

    control_plane_initialized: Annotated[
        bool, Meta(description="Whether its API server has answered requests once.")
    ] = False


class ControlPlaneVersion(Model, frozen=True, kw_only=True):
    """A version of Kubernetes that processes of a control plane have."""

    version: Annotated[str, Meta(min_length=1, max_length=256, description="The version, as in v1.36.3.")]
    replicas: Annotated[int, Meta(description="How many processes have it.")] = 0


class TenantryControlPlaneStatus(Model, frozen=True, kw_only=True):
    """Where a control plane is."""

    observed_generation: ObservedGeneration = 0
    initialization: Annotated[ControlPlaneInitialization, Meta(description="For Cluster API.")] = (
        ControlPlaneInitialization()
    )
    versions: Annotated[
        tuple[ControlPlaneVersion, ...],
        Meta(max_length=2, description="Its versions, the oldest first.", extra_json_schema=list_map("version")),
    ] = ()
    external_managed_control_plane: Annotated[
        bool, Meta(description="Whether no Machine of the Cluster runs its control plane: always true.")
    ] = False
    replicas: Annotated[int, Meta(description="How many processes it has.")] = 0
    ready_replicas: Annotated[int, Meta(description="How many of them answer.")] = 0
    available_replicas: Annotated[int, Meta(description="As readyReplicas.")] = 0
    up_to_date_replicas: Annotated[int, Meta(description="How many have the version of the spec.")] = 0
    conditions: Conditions = ()


class TenantryControlPlane(KubernetesObject, frozen=True, kw_only=True):
    """The control plane of a Cluster of Cluster API: a VirtualControlPlane with nodes of its own."""

    resource: ClassVar[Resource] = Resource(
        CONTROL_PLANE_GROUP, VERSION, "tenantrycontrolplanes", "TenantryControlPlane"
    )
    names: ClassVar[Names] = Names(categories=("cluster-api",))
    access: ClassVar[KindAccess] = _ACCESS
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Version", "string", ".spec.version"),
        Column("Endpoint", "string", ".spec.controlPlaneEndpoint.host"),
        MESSAGE,
        AGE,
    )

    spec: TenantryControlPlaneSpec
    status: TenantryControlPlaneStatus = TenantryControlPlaneStatus()


class TenantryMachineSpec(PoolSettings, frozen=True, kw_only=True):
    """Which node of the host a Machine is."""

    provider_id: Annotated[
        str, Meta(max_length=512, description="The providerID of its Node in the cluster. The operator sets it.")
    ] = msgspec.field(default="", name="providerID")


class MachineAddress(Model, frozen=True, kw_only=True):
    """A name or an address of a Machine."""

    type: Annotated[str, Meta(description="Hostname.")]
    address: Annotated[str, Meta(min_length=1, max_length=256, description="The name or the address.")]


class TenantryMachineStatus(Model, frozen=True, kw_only=True):
    """Where a Machine is."""

    observed_generation: ObservedGeneration = 0
    initialization: Annotated[Provisioned, Meta(description="For Cluster API.")] = Provisioned()
    node: Annotated[str, Meta(max_length=253, description="The node of the host.")] = ""
    addresses: Annotated[tuple[MachineAddress, ...], Meta(max_length=32, description="Its name.")] = ()
    conditions: Conditions = ()


class TenantryMachine(KubernetesObject, frozen=True, kw_only=True):
    """A Machine of Cluster API: a node that leaves the host and joins the cluster."""

    resource: ClassVar[Resource] = Resource(INFRASTRUCTURE_GROUP, VERSION, "tenantrymachines", "TenantryMachine")
    names: ClassVar[Names] = Names(categories=("cluster-api",))
    access: ClassVar[KindAccess] = _ACCESS
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(oldSelf.spec.providerID) || has(self.spec.providerID)"
            " && self.spec.providerID == oldSelf.spec.providerID",
            "must not change: create another Machine",
            field="spec.providerID",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Node", "string", ".status.node"),
        MESSAGE,
        AGE,
    )

    spec: TenantryMachineSpec = TenantryMachineSpec()
    status: TenantryMachineStatus = TenantryMachineStatus()


class ClusterTemplateResource(Model, frozen=True, kw_only=True):
    """The TenantryCluster that is made."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: TenantryClusterSpec = TenantryClusterSpec()


class TenantryClusterTemplateSpec(Model, frozen=True, kw_only=True):
    """What a ClusterClass makes TenantryClusters of."""

    template: Annotated[ClusterTemplateResource, Meta(description="The TenantryCluster.")] = ClusterTemplateResource()


class TenantryClusterTemplate(KubernetesObject, frozen=True, kw_only=True):
    """The infrastructure of the Clusters of a ClusterClass."""

    resource: ClassVar[Resource] = Resource(
        INFRASTRUCTURE_GROUP, VERSION, "tenantryclustertemplates", "TenantryClusterTemplate"
    )
    names: ClassVar[Names] = Names(categories=("cluster-api",))
    access: ClassVar[KindAccess] = KindAccess()
    columns: ClassVar[tuple[Column, ...]] = (AGE,)

    spec: TenantryClusterTemplateSpec = TenantryClusterTemplateSpec()


class ControlPlaneTemplateFields(Model, frozen=True, kw_only=True):
    """The fields of a TenantryControlPlane that a ClusterClass decides."""

    resources: Annotated[PlaneResources, Meta(description="As spec.resources of a TenantryControlPlane.")] = (
        PlaneResources()
    )


class ControlPlaneTemplateResource(Model, frozen=True, kw_only=True):
    """The TenantryControlPlane that is made."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[
        ControlPlaneTemplateFields, Meta(description="Its spec, of which the Cluster gives version and replicas.")
    ] = ControlPlaneTemplateFields()


class TenantryControlPlaneTemplateSpec(Model, frozen=True, kw_only=True):
    """What a ClusterClass makes TenantryControlPlanes of."""

    template: Annotated[ControlPlaneTemplateResource, Meta(description="The TenantryControlPlane.")] = (
        ControlPlaneTemplateResource()
    )


class TenantryControlPlaneTemplate(KubernetesObject, frozen=True, kw_only=True):
    """The control planes of the Clusters of a ClusterClass."""

    resource: ClassVar[Resource] = Resource(
        CONTROL_PLANE_GROUP, VERSION, "tenantrycontrolplanetemplates", "TenantryControlPlaneTemplate"
    )
    names: ClassVar[Names] = Names(categories=("cluster-api",))
    access: ClassVar[KindAccess] = KindAccess()
    columns: ClassVar[tuple[Column, ...]] = (AGE,)

    spec: TenantryControlPlaneTemplateSpec = TenantryControlPlaneTemplateSpec()


class MachineTemplateResource(Model, frozen=True, kw_only=True):
    """The TenantryMachine that is made."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[TenantryMachineSpec, Meta(description="Its spec.")] = TenantryMachineSpec()


class TenantryMachineTemplateSpec(Model, frozen=True, kw_only=True):
    """What a MachineDeployment or a ClusterClass makes TenantryMachines of."""

    template: Annotated[MachineTemplateResource, Meta(description="The TenantryMachine.")] = MachineTemplateResource()


class TenantryMachineTemplate(KubernetesObject, frozen=True, kw_only=True):
    """The Machines of a MachineDeployment."""

    resource: ClassVar[Resource] = Resource(
        INFRASTRUCTURE_GROUP, VERSION, "tenantrymachinetemplates", "TenantryMachineTemplate"
    )
    names: ClassVar[Names] = Names(categories=("cluster-api",))
    access: ClassVar[KindAccess] = KindAccess()
    columns: ClassVar[tuple[Column, ...]] = (AGE,)

    spec: TenantryMachineTemplateSpec = TenantryMachineTemplateSpec()


CLUSTER_API_KINDS = (
    TenantryCluster,
    TenantryClusterTemplate,
    TenantryControlPlane,
    TenantryControlPlaneTemplate,
    TenantryMachine,
    TenantryMachineTemplate,
)
"""Those that only `tenantry install --cluster-api-provider` installs."""

"""ClusterTemplate: which DedicatedClusters administrators offer: versions, defaults and limits.

    DedicatedCluster spec.template, or spec.dedicatedClusters.template of TenancyDefaults
    ─► ClusterTemplate ─► status.template of the cluster: the defaults that it has taken, once

Only administrators write it; the operator reads it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.clusteraddons import AddOns
from tenantry.api.clusterguards import Guards
from tenantry.api.crd import AGE, Column, Names, Rule, list_map
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.planehosting import HostedIn, PlaneHosting, PlaneRuntime
from tenantry.api.planeserver import ISSUER_PATTERN, MOST_ISSUERS, FeatureGate
from tenantry.api.planeversions import MINOR_PATTERN
from tenantry.api.quota import Quantity
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import MAX_NODES
from tenantry.api.virtualcontrolplane import (
    LEAST_IDLE,
    MOST_IDLE,
    MOST_REPLICAS,
    REPLICAS_RULE,
    DatastoreKind,
    PlaneResources,
)

MOST_VERSIONS = 8
MOST_NETWORKS = 16

NAME_PATTERN = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"
"""Of the name of a template, and of the fields that name one; "" for none."""

MOST_CLUSTER_NODES = 17 * MAX_NODES
"""All pools of a cluster with the most nodes."""


class OfferedDatastore(Model, frozen=True, kw_only=True):
    """The datastore of clusters that choose none."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.kind) || self.kind != 'External'",
            "must not be External, which needs a Secret for each cluster: administrators set it in the cluster",
            field="kind",
        ),
    )

    kind: Annotated[
        DatastoreKind, Meta(description="The kind; see spec.datastore of VirtualControlPlane. Default: OwnEtcd.")
    ] = DatastoreKind.OWN_ETCD


class TemplateDefaults(Model, frozen=True, kw_only=True):
    """What a cluster has if its spec sets nothing else, from its creation on."""

    validations: ClassVar[tuple[Rule, ...]] = (REPLICAS_RULE,)

    replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_REPLICAS,
            description="How many processes the control plane has; see spec.replicas of VirtualControlPlane."
            " Default: 1.",
        ),
    ] = 1
    datastore: Annotated[
        OfferedDatastore,
        Meta(description="Where the control plane keeps its objects."),
    ] = OfferedDatastore()
    resources: Annotated[
        PlaneResources, Meta(description="What the control plane takes of the tenant's quota while its process exists.")
    ] = PlaneResources()
    after_idle_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_IDLE,
            description=f"Seconds without a request after which the control plane sleeps: 0 for never, or {LEAST_IDLE}"
            f" to {MOST_IDLE}. Default: 0.",
        ),
    ] = 0
    add_ons: AddOns = ()


class ResourceLimits(Model, frozen=True, kw_only=True):
    """The most that a control plane may take; a field that is left out limits nothing."""

    requests_cpu: Annotated[Quantity, Meta(description="The most resources.requests.cpu.")] | UnsetType = UNSET
    requests_memory: Annotated[Quantity, Meta(description="The most resources.requests.memory.")] | UnsetType = UNSET
    limits_memory: Annotated[Quantity, Meta(description="The most resources.limits.memory.")] | UnsetType = UNSET


class TemplateLimits(Model, frozen=True, kw_only=True):
    """What a cluster may have at most; a field that is left out limits nothing."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.networks) || self.networks.all(c, isCIDR(c) && string(cidr(c).masked()) == c)",
            "must be CIDRs in their shortest form without host bits, as in 10.64.0.0/12",
            field="networks",
        ),
    )

    nodes: (
        Annotated[int, Meta(ge=0, le=MOST_CLUSTER_NODES, description="The most nodes of all pools together.")]
        | UnsetType
    ) = UNSET
    replicas: (
        Annotated[int, Meta(ge=1, le=MOST_REPLICAS, description="The most spec.controlPlane.replicas.")] | UnsetType
    ) = UNSET
    resources: Annotated[ResourceLimits, Meta(description="The most spec.controlPlane.resources.")] = ResourceLimits()
    datastores: Annotated[
        tuple[DatastoreKind, ...],
        Meta(
            max_length=len(DatastoreKind),
            description="The kinds that a cluster may have. Default: all kinds. Only administrators choose External in"
            " a cluster, whatever the list says.",
        ),
    ] = ()
    after_idle_seconds: (
        Annotated[
            int,
            Meta(
                ge=LEAST_IDLE,
                le=MOST_IDLE,
                description="The most spec.sleep.afterIdleSeconds; 0, for never, is refused then.",
            ),
        ]
        | UnsetType
    ) = UNSET
    networks: (
        Annotated[
            tuple[Annotated[str, Meta(max_length=18)], ...],
            Meta(
                max_length=MOST_NETWORKS,
                description="Ranges that must contain spec.network.podRange and spec.network.serviceRange, if the"
                " cluster sets them. An empty list: it must not set them.",
            ),
        ]
        | UnsetType
    ) = UNSET
    oidc_issuers: (
        Annotated[
            tuple[Annotated[str, Meta(max_length=512, pattern=ISSUER_PATTERN)], ...],
            Meta(
                max_length=MOST_ISSUERS,
                description="The issuers that spec.apiServer.oidc may have, which the API server of such a cluster"
                " then reaches. An empty list: none. Without the field, an issuer is reached if an administrator allows"
                " its host in spec.egress of the VirtualControlPlane.",
            ),
        ]
        | UnsetType
    ) = UNSET
    feature_gates: (
        Annotated[
            tuple[FeatureGate, ...],
            Meta(
                max_length=len(FeatureGate),
                description="The features that spec.apiServer.featureGates may have. An empty list: none.",
                extra_json_schema={"x-kubernetes-list-type": "set"},
            ),
        ]
        | UnsetType
    ) = UNSET


class ClassReference(Model, frozen=True, kw_only=True):
    """A ClusterClass of Cluster API."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="Its name.")]
    namespace: Annotated[
        str, Meta(max_length=63, description="Its namespace; without it, that of the DedicatedCluster.")
    ] = ""


class ClassVariable(Model, frozen=True, kw_only=True):
    """A variable of a ClusterClass."""

    name: Annotated[str, Meta(min_length=1, max_length=256, description="Its name.")]
    value: Annotated[
        int | str,
        Meta(description="Its value, a number or a text.", extra_json_schema={"x-kubernetes-int-or-string": True}),
    ]


class ClusterApiClass(Model, frozen=True, kw_only=True):
    """What Cluster API builds clusters of."""

    class_ref: Annotated[ClassReference, Meta(description="The ClusterClass.")]
    worker_class: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=256,
            description="Its class of spec.workers.machineDeployments that all pools of a cluster have.",
        ),
    ]
    variables: Annotated[
        tuple[ClassVariable, ...],
        Meta(
            max_length=64,
            description="Variables of the ClusterClass.",
            extra_json_schema=list_map("name"),
        ),
    ] = ()


_MAX, _OWN = "self.limits", "self.defaults"


class ClusterTemplateSpec(Model, frozen=True, kw_only=True):
    """Which clusters it offers."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has({_MAX}) || !has({_MAX}.replicas) || !has({_OWN}) || !has({_OWN}.replicas)"
            f" || {_OWN}.replicas <= {_MAX}.replicas",
            "must be at most limits.replicas",
            field="defaults.replicas",
        ),
        Rule(
            f"!has({_MAX}) || !has({_MAX}.afterIdleSeconds) || (has({_OWN}) && has({_OWN}.afterIdleSeconds) &&"
            f" {_OWN}.afterIdleSeconds > 0 && {_OWN}.afterIdleSeconds <= {_MAX}.afterIdleSeconds)",
            "must be more than 0, and at most limits.afterIdleSeconds",
            field="defaults.afterIdleSeconds",
        ),
        Rule(
            f"!has({_MAX}) || size({_MAX}.?datastores.orValue([])) == 0"
            f" || self.?defaults.?datastore.?kind.orValue('OwnEtcd') in {_MAX}.datastores",
            "must be one of limits.datastores",
            field="defaults.datastore.kind",
        ),
    )

    versions: Annotated[
        tuple[Annotated[str, Meta(max_length=7, pattern=MINOR_PATTERN)], ...],
        Meta(
            max_length=MOST_VERSIONS,
            description="The minor versions of Kubernetes that a cluster may have, as in 1.36. A new cluster gets the"
            " latest of them. Default: every version that control planes can have, and the default one of these.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    defaults: Annotated[
        TemplateDefaults, Meta(description="What a cluster has if its spec sets nothing else, from its creation on.")
    ] = TemplateDefaults()
    limits: Annotated[TemplateLimits, Meta(description="What a cluster may have at most.")] = TemplateLimits()
    guards: Guards = ()
    hosting: HostedIn = PlaneHosting.AUTO
    runtime: PlaneRuntime = RuntimeChoice.SHARED
    cluster_api: (
        Annotated[
            ClusterApiClass,
            Meta(
                description="With it, clusters whose spec.provider is Auto are built by Cluster API, if that is"
                " installed when they are created. Then spec.defaults has no effect."
            ),
        ]
        | UnsetType
    ) = UNSET


class ClusterTemplate(KubernetesObject, frozen=True, kw_only=True):
    """Which DedicatedClusters administrators offer to tenants: versions, defaults and limits."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "clustertemplates", "ClusterTemplate", namespaced=False)
    names: ClassVar[Names] = Names(short=("ctpl",))
    access: ClassVar[KindAccess] = KindAccess(operator=READ)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{NAME_PATTERN}')",
            "must be a DNS label of at most 63 lower-case letters, digits and -",
            field="metadata.name",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Versions", "string", ".spec.versions"),
        Column("Nodes", "integer", ".spec.limits.nodes"),
        Column("Replicas", "integer", ".spec.defaults.replicas"),
        Column("Datastore", "string", ".spec.defaults.datastore.kind"),
        AGE,
    )

    spec: ClusterTemplateSpec = ClusterTemplateSpec()


class TakenTemplate(Model, frozen=True, kw_only=True):
    """What a cluster has taken of a template: changes of the template do not reach it."""

    name: Annotated[str, Meta(max_length=63, description="The ClusterTemplate; empty for none.")] = ""
    generation: Annotated[int, Meta(description="The generation of its spec that this is of.")] = 0
    version: Annotated[
        str, Meta(max_length=7, description="The minor version of Kubernetes that the cluster was created with.")
    ] = ""
    replicas: Annotated[int, Meta(description="spec.controlPlane.replicas, if the cluster sets none.")] = 1
    # Not the default of new clusters: earlier versions of Tenantry stored this one by leaving it out.
    datastore: Annotated[
        DatastoreKind, Meta(description="spec.controlPlane.datastore.kind, if the cluster sets none.")
    ] = DatastoreKind.SQLITE
    resources: Annotated[PlaneResources, Meta(description="spec.controlPlane.resources, if the cluster sets none.")] = (
        PlaneResources()
    )
    after_idle_seconds: Annotated[int, Meta(description="spec.sleep.afterIdleSeconds, if the cluster sets none.")] = 0
    add_ons: AddOns = ()
    guards: Guards = ()
    former_guards: Guards = ()
    hosting: HostedIn = PlaneHosting.AUTO
    runtime: PlaneRuntime = RuntimeChoice.SHARED

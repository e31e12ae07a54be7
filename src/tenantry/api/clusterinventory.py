"""The kinds by which other programs know clusters: ClusterProperty and ClusterProfile. Kubernetes SIG Multicluster's.

    ClusterProperty   cluster.clusterset.k8s.io: the id of this cluster
    ClusterProfile    one for each peer that runs pods of this cluster

Sources: KEP-2149 (About API, v1beta1), KEP-4322 and KEP-5339 (Cluster Inventory API, v1alpha1; v1alpha2 has the same
fields). Only the fields that Tenantry writes are here.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType, field

from tenantry.api.marks import MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Condition, KubernetesObject, Model, Resource

CLUSTER_ID = "cluster.clusterset.k8s.io"
"""The property, and the ClusterProperty, with the id of a cluster."""

CLUSTER_MANAGER = "x-k8s.io/cluster-manager"
"""The label of ClusterProfiles with the name of the program that keeps them."""

PROFILES_NAMESPACE = SYSTEM_NAMESPACE
"""The namespace of the ClusterProfiles; no tenant has a role in it."""

CONTROL_PLANE_HEALTHY = "ControlPlaneHealthy"
"""The condition of a ClusterProfile."""

ACCESS_PROVIDER = MANAGER
"""The name under which programs find the address of a peer. They have credentials of their own."""

MOST_NAME = 253
MOST_VALUE = 1024
"""The longest name and value of a property of a ClusterProfile."""


class ClusterPropertySpec(Model, frozen=True, kw_only=True):
    """The value of a property of this cluster."""

    value: str = ""


class ClusterProperty(KubernetesObject, frozen=True, kw_only=True):
    """A property of this cluster, by its name."""

    resource: ClassVar[Resource] = Resource(
        "about.k8s.io", "v1beta1", "clusterproperties", "ClusterProperty", namespaced=False
    )

    spec: ClusterPropertySpec = ClusterPropertySpec()


class ProfileManager(Model, frozen=True, kw_only=True):
    """The program that keeps a ClusterProfile. The API server never changes it."""

    name: str = ""


class ClusterProfileSpec(Model, frozen=True, kw_only=True):
    """What a ClusterProfile is about."""

    display_name: str = ""
    cluster_manager: ProfileManager = ProfileManager()


class ClusterVersion(Model, frozen=True, kw_only=True):
    """The versions of a cluster."""

    kubernetes: str = ""


class ProfileProperty(Model, frozen=True, kw_only=True):
    """A property of a cluster."""

    name: str
    value: str
    last_observed_time: str = ""


class ProfileServer(Model, frozen=True, kw_only=True):
    """Where the API server of a cluster is, as in a kubeconfig."""

    server: str = ""
    certificate_authority_data: str | UnsetType = field(default=UNSET, name="certificate-authority-data")


class AccessProvider(Model, frozen=True, kw_only=True):
    """A way to a cluster, without credentials."""

    name: str
    cluster: ProfileServer = ProfileServer()


class ClusterProfileStatus(Model, frozen=True, kw_only=True):
    """What is known of a cluster."""

    conditions: tuple[Condition, ...] = ()
    version: ClusterVersion = ClusterVersion()
    properties: tuple[ProfileProperty, ...] = ()
    access_providers: tuple[AccessProvider, ...] = ()


class ClusterProfile(KubernetesObject, frozen=True, kw_only=True):
    """A cluster, as one program shows it to others."""

    resource: ClassVar[Resource] = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile")

    spec: ClusterProfileSpec = ClusterProfileSpec()
    status: ClusterProfileStatus = ClusterProfileStatus()

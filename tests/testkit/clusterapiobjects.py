"""Objects of Cluster API for tests: what a user of it creates, and what is left of it."""

from __future__ import annotations

from typing import Any

from tenantry.api.clusterapi import (
    CLUSTER_CLASSES,
    CLUSTERS,
    CONTROL_PLANE_GROUP,
    INFRASTRUCTURE_GROUP,
    KUBEADM_CONFIGS,
    MACHINES,
    TenantryCluster,
    TenantryClusterTemplate,
    TenantryControlPlane,
    TenantryControlPlaneTemplate,
    TenantryMachine,
    TenantryMachineTemplate,
)
from tenantry.api.model import Resource
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from testkit.api import Api

Json = dict[str, Any]
VERSION = "v1.36.3"
DEPLOYMENTS = Resource("cluster.x-k8s.io", "v1beta2", "machinedeployments", "MachineDeployment")
CONFIG_TEMPLATES = Resource(KUBEADM_CONFIGS.group, "v1beta2", "kubeadmconfigtemplates", "KubeadmConfigTemplate")
KUBEADM_PLANES = Resource(CONTROL_PLANE_GROUP, "v1beta2", "kubeadmcontrolplanes", "KubeadmControlPlane")
KUBEADM_PLANE_TEMPLATES = Resource(
    CONTROL_PLANE_GROUP, "v1beta2", "kubeadmcontrolplanetemplates", "KubeadmControlPlaneTemplate"
)


def told(found: Json) -> list[str]:
    """Return the conditions of an object that are not true, with their messages."""
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    return [f"{each['type']}: {each['message']}" for each in conditions if each["status"] != "True"]


def reference(group: str, kind: str, name: str) -> Json:
    """Return a reference of contract v1beta2."""
    return {"apiGroup": group, "kind": kind, "name": name}


async def remains(host: Api) -> list[str]:
    """Return what is there of clusters, and of their nodes."""
    kinds = (
        *(CLUSTERS, MACHINES, TenantryCluster.resource, TenantryControlPlane.resource, TenantryMachine.resource),
        *(VirtualControlPlane.resource, SliceClaim.resource, NodeHandover.resource, KUBEADM_CONFIGS, KUBEADM_PLANES),
    )
    return [f"{kind.kind} {each['metadata']['name']}" for kind in kinds for each in await host.list(kind)]


async def make_config_template(host: Api, name: str, namespace: str) -> None:
    """Create the template by which the kubeadm bootstrap provider makes a token for each Machine."""
    joining: Json = {"template": {"spec": {"joinConfiguration": {"nodeRegistration": {"imagePullPolicy": "Never"}}}}}
    await host.create(CONFIG_TEMPLATES, {"metadata": {"name": name}, "spec": joining}, namespace)


async def make_cluster(host: Api, name: str, namespace: str, bootstrap: Json, count: int) -> None:
    """Create a Cluster of the provider with a MachineDeployment.

    Args:
        host: An administrator.
        name: The name of all of its objects.
        namespace: Of a tenant.
        bootstrap: Where its Machines have their bootstrap data.
        count: How many Machines it has.
    """
    spec: Json = {
        "controlPlaneRef": reference(CONTROL_PLANE_GROUP, "TenantryControlPlane", name),
        "infrastructureRef": reference(INFRASTRUCTURE_GROUP, "TenantryCluster", name),
    }
    meta: Json = {"metadata": {"name": name}}
    await host.create(TenantryCluster.resource, {**meta}, namespace)
    await host.create(TenantryControlPlane.resource, {**meta, "spec": {"version": VERSION}}, namespace)
    await host.create(TenantryMachineTemplate.resource, {**meta, "spec": {"template": {"spec": {}}}}, namespace)
    await host.create(CLUSTERS, {**meta, "spec": spec}, namespace)
    machine: Json = {
        "clusterName": name,
        "version": VERSION,
        "bootstrap": bootstrap,
        "infrastructureRef": reference(INFRASTRUCTURE_GROUP, "TenantryMachineTemplate", name),
    }
    labels: Json = {"labels": {"pool": name}}
    deployment: Json = {
        "clusterName": name,
        "replicas": count,
        "selector": {"matchLabels": {"pool": name}},
        "template": {"metadata": labels, "spec": machine},
    }
    await host.create(DEPLOYMENTS, {"metadata": {"name": name, **labels}, "spec": deployment}, namespace)


def _template(group: str, kind: str, name: str) -> Json:
    version = "v1alpha1" if kind.startswith("Tenantry") else "v1beta2"
    return {"templateRef": {"apiVersion": f"{group}/{version}", "kind": kind, "name": name}}


async def make_class(host: Api, name: str, namespace: str, **more: Any) -> None:  # noqa: ANN401 - fields of a ClusterClass
    """Create a ClusterClass of the provider's templates, with the kubeadm bootstrap provider; its workers are `node`.

    Args:
        host: An administrator.
        name: The name of it and of its templates.
        namespace: Their namespace.
        more: Further fields of its spec.
    """
    meta: Json = {"metadata": {"name": name}}
    await host.create(TenantryClusterTemplate.resource, {**meta, "spec": {"template": {}}}, namespace)
    empty: Json = {**meta, "spec": {"template": {"spec": {}}}}
    await host.create(TenantryControlPlaneTemplate.resource, empty, namespace)
    await host.create(TenantryMachineTemplate.resource, empty, namespace)
    await make_config_template(host, name, namespace)
    worker: Json = {
        "class": "node",
        "bootstrap": _template(CONFIG_TEMPLATES.group, CONFIG_TEMPLATES.kind, name),
        "infrastructure": _template(INFRASTRUCTURE_GROUP, "TenantryMachineTemplate", name),
    }
    spec: Json = {
        "infrastructure": _template(INFRASTRUCTURE_GROUP, "TenantryClusterTemplate", name),
        "controlPlane": _template(CONTROL_PLANE_GROUP, "TenantryControlPlaneTemplate", name),
        "workers": {"machineDeployments": [worker]},
        **more,
    }
    await host.create(CLUSTER_CLASSES, {**meta, "spec": spec}, namespace)


async def make_kubeadm_class(host: Api, name: str, namespace: str) -> None:
    """Create a ClusterClass as `make_class`, whose control planes are of the kubeadm control plane provider."""
    initial: Json = {"initConfiguration": {"nodeRegistration": {"imagePullPolicy": "Never"}}}
    spec: Json = {"template": {"spec": {"kubeadmConfigSpec": initial}}}
    await host.create(KUBEADM_PLANE_TEMPLATES, {"metadata": {"name": name}, "spec": spec}, namespace)
    plane = {
        **_template(CONTROL_PLANE_GROUP, KUBEADM_PLANE_TEMPLATES.kind, name),
        "machineInfrastructure": _template(INFRASTRUCTURE_GROUP, "TenantryMachineTemplate", name),
    }
    await make_class(host, name, namespace, controlPlane=plane)

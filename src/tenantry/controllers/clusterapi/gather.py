"""Reads what belongs to the objects of Cluster API: the glue."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
import yaml

from tenantry.api.clusterapi import (
    CLUSTER_NAME,
    CLUSTERS,
    MACHINES,
    TenantryCluster,
    TenantryControlPlane,
    TenantryMachine,
    authority_name,
    kubeconfig_name,
    machine_claim_name,
    plane_name,
)
from tenantry.api.errors import Forbidden
from tenantry.api.model import Json, KubernetesObject, Resource, object_key
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.clusterapi.children import is_child
from tenantry.controllers.clusterapi.machines import MachineInputs, machine_name
from tenantry.controllers.clusterapi.planes import PlaneInputs
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.world.inheritance import SECRETS

K = TypeVar("K", bound=KubernetesObject)

BY_CLUSTER_NAME = "cluster-name"
"""Index of TenantryControlPlanes by the namespace and the name of their Cluster."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


def watch(
    kind: type[KubernetesObject], keys: Callable[[Change[KubernetesObject]], Iterable[str]] = watched.own_key
) -> Watch:
    """Return the watch of one of the kinds that are installed by an option: they can come at any time."""
    return Watch(
        resource=kind.resource,
        decode=watched.decoder(kind),
        keys=keys,
        indexes={BY_CLUSTER_NAME: _cluster_key},
        optional=True,
    )


def _cluster_key(found: KubernetesObject) -> list[str]:
    name = found.metadata.labels.get(CLUSTER_NAME)
    return [object_key(found.metadata.namespace, name)] if name else []


async def cluster_of(cluster: Cluster, found: KubernetesObject) -> Json | None:
    """Return the Cluster that an object belongs to, as it is now; None if there is none.

    It is read, not watched: the operator needs no cache of another project's kind for one field.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    name = found.metadata.labels.get(CLUSTER_NAME)
    return await _find(cluster, CLUSTERS, found.metadata.namespace, name) if name else None


async def _find(cluster: Cluster, resource: Resource, namespace: str, name: str) -> Json | None:
    data = await cluster.live.find(resource, namespace, name)
    return _json.decode(data) if data is not None else None


def infrastructure(cluster: Cluster, key: str) -> TenantryCluster | None:
    """Return a TenantryCluster; None if there is none, or the kind is not installed."""
    cache: Cache[TenantryCluster] | None = cluster.cache_of(TenantryCluster.resource)
    return cache.get(key) if cache is not None else None


def control_plane(cluster: Cluster, key: str) -> TenantryControlPlane | None:
    """Return a TenantryControlPlane; None if there is none, or the kind is not installed."""
    cache: Cache[TenantryControlPlane] | None = cluster.cache_of(TenantryControlPlane.resource)
    return cache.get(key) if cache is not None else None


def control_planes(cluster: Cluster, found: KubernetesObject) -> list[TenantryControlPlane]:
    """Return the TenantryControlPlanes of the Cluster that an object belongs to."""
    known: Cache[TenantryControlPlane] | None = cluster.cache_of(TenantryControlPlane.resource)
    return _of_same_cluster(known, found)


def infrastructures(cluster: Cluster, found: KubernetesObject) -> list[TenantryCluster]:
    """Return the TenantryClusters of the Cluster that an object belongs to."""
    known: Cache[TenantryCluster] | None = cluster.cache_of(TenantryCluster.resource)
    return _of_same_cluster(known, found)


def _of_same_cluster(known: Cache[K] | None, found: KubernetesObject) -> list[K]:
    if known is None:
        return []
    return [each for key in _cluster_key(found) for each in known.by_index(BY_CLUSTER_NAME, key)]


def machine(cluster: Cluster, key: str) -> TenantryMachine | None:
    """Return a TenantryMachine; None if there is none, or the kind is not installed."""
    cache: Cache[TenantryMachine] | None = cluster.cache_of(TenantryMachine.resource)
    return cache.get(key) if cache is not None else None


async def plane_inputs(cluster: Cluster, found: TenantryControlPlane) -> PlaneInputs:
    """Return the inputs of a TenantryControlPlane.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    meta, name = found.metadata, found.metadata.labels.get(CLUSTER_NAME, "")
    plane: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(
        object_key(meta.namespace, plane_name(meta.name))
    )
    if meta.deletion_timestamp or not name:
        return PlaneInputs(found=found, plane=plane)
    own = plane if plane is not None and is_child(found, plane) else None
    text = await _kubeconfig(cluster, own) if own is not None else ""
    secrets: dict[str, Json] = {}
    if text:
        for each in (authority_name(name), kubeconfig_name(name)):
            seen = await _find(cluster, SECRETS, meta.namespace, each)
            if seen is not None:
                secrets[each] = seen
    return PlaneInputs(
        found=found,
        cluster=await cluster_of(cluster, found),
        plane=plane,
        kubeconfig=text,
        authority=_authority(text) if text else b"",
        secrets=secrets,
    )


async def _kubeconfig(cluster: Cluster, of: VirtualControlPlane) -> str:
    status = of.status
    if not status.kubeconfig_secret:
        return ""
    place = status.kubeconfig_namespace or of.metadata.namespace
    seen = await _find(cluster, SECRETS, place, status.kubeconfig_secret)
    content: Json = seen.get("data", {}) if seen is not None else {}
    value = str(content.get(KUBECONFIG_KEY, ""))
    return base64.b64decode(value).decode() if value else ""


def _authority(text: str) -> bytes:
    """Return the certificate of the CA in a kubeconfig that the operator has written; b"" without one."""
    content: Json = yaml.safe_load(text)
    entry: Json = content["clusters"][0]["cluster"]
    return base64.b64decode(entry.get("certificate-authority-data", ""))


async def machine_inputs(cluster: Cluster, found: TenantryMachine) -> MachineInputs:
    """Return the inputs of a TenantryMachine.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    meta = found.metadata
    claims: Cache[SliceClaim] = cluster.cache(SliceClaim.resource)
    claim = claims.get(object_key(meta.namespace, machine_claim_name(meta.name)))
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    inputs = MachineInputs(
        found=found,
        cluster=None if meta.deletion_timestamp else await cluster_of(cluster, found),
        plane=_plane_of(cluster, found),
        claim=claim,
        machine=await _machine_of(cluster, found),
        defaults=defaults.spec.slices if defaults is not None else SliceDefaults(),
    )
    return msgspec.structs.replace(inputs, handover=_handover_of(cluster, inputs))


async def _machine_of(cluster: Cluster, found: TenantryMachine) -> Json | None:
    """Return the Machine that controls a TenantryMachine which has no node yet; None for none.

    Raises:
        ApiError: The API server does not answer.
    """
    meta = found.metadata
    if meta.deletion_timestamp or found.spec.provider_id:
        return None
    name = machine_name(found)
    if not name:
        return None
    try:
        return await _find(cluster, MACHINES, meta.namespace, name)
    except Forbidden:
        # The rights are of an earlier installation: the node joins without Cluster API's token.
        return None


def _plane_of(cluster: Cluster, found: TenantryMachine) -> VirtualControlPlane | None:
    """Return the VirtualControlPlane of the Cluster that a Machine belongs to."""
    planes: Cache[VirtualControlPlane] = cluster.cache(VirtualControlPlane.resource)
    for each in control_planes(cluster, found):
        plane = planes.get(object_key(each.metadata.namespace, plane_name(each.metadata.name)))
        if plane is not None and is_child(each, plane):
            return plane
    return None


def _handover_of(cluster: Cluster, inputs: MachineInputs) -> NodeHandover | None:
    """Return the NodeHandover of the node of a Machine; its own also when its slice does not list the node any more."""
    own, known = inputs.own_claim, cluster.cache(NodeHandover.resource)
    names = [*(own.status.nodes[:1] if own is not None else ()), inputs.found.status.node]
    found: list[NodeHandover] = [each for name in names if name and (each := known.get(name)) is not None]
    of_slice = (each for each in found if each.spec.slice == inputs.slice)
    return next(of_slice, None) or next(iter(found if not inputs.found.spec.provider_id else ()), None)

"""The objects that the operator would create for tenants in files, without a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from tenantry.api import reasons
from tenantry.api.clusterapi import CLUSTERS
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import TENANT
from tenantry.api.model import Json, KubernetesObject, Resource
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Adoption, Subnamespace
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine.plan import DirectWrite
from tenantry.views.drift.planners import UNKNOWN_DIGITS, Planned, cluster_plan, plans
from tenantry.views.drift.state import UNKNOWN_UID, DriftInputs, empty
from tenantry.views.manifests import Manifests
from tenantry.world.naming import DIGITS

K = TypeVar("K", bound=KubernetesObject)

_ANY_UID = re.compile(re.escape(UNKNOWN_UID.encode()) + rb'[^"]*')

_KEPT_ELSEWHERE = (VirtualControlPlane, DedicatedCluster, SliceClaim)
"""Kinds that controllers of their own carry out, so that their creations are no steps of a plan."""


def render(manifests: Manifests) -> list[KubernetesObject]:
    """Return the objects of each tenant, of its children and of its clusters, with the fields that hold uids empty.

    Raises:
        InputError: One of them cannot be created, or the files do not have its parent.
    """
    subnamespaces = [_with_uid(_without_adoption(each)) for each in manifests.subnamespaces]
    state = empty([_with_uid(tenant) for tenant in manifests.tenants], subnamespaces)
    names = _names(manifests.subnamespaces)
    found: dict[tuple[Resource, str], KubernetesObject] = {}
    for template in manifests.templates:
        state.templates.put(template, listed=0)
    for tenant in state.tenants:
        try:
            planned = list(plans(state, tenant, names))
        except InputError as error:
            raise InputError(f"Tenant {tenant.metadata.name!r}: {error}") from error
        for each in planned:
            found.update(_created(each))
    lost = next((each for each in state.subnamespaces if state.namespaces.get(each.metadata.namespace) is None), None)
    if lost is not None:
        raise InputError(
            f"Subnamespace {lost.key!r}: its parent {lost.metadata.namespace!r} is neither a Tenant nor the namespace"
            " of a Subnamespace in these files: add that, or ask the cluster with `tenantry diff -f`"
        )
    made = [each for each in found.values() if isinstance(each, DedicatedCluster)]
    for cluster in (*made, *manifests.clusters):
        found.update(_of_cluster(state, _with_uid(cluster)))
    # The plans of one namespace come in several steps; readers want its objects together.
    order = {each.metadata.name: at for at, each in enumerate(found.values()) if isinstance(each, Namespace)}
    return [_without_uids(each) for each in sorted(found.values(), key=lambda each: _place(each, order))]


def render_clusters(manifests: Manifests) -> list[Json]:
    """Return the Clusters of Cluster API of the DedicatedClusters in files that it builds, as if it were installed.

    Those that the operator makes of Tenants are hosted: without a cluster, they have no template.

    Raises:
        InputError: One of them cannot be created.
    """
    state = empty([], [])
    for template in manifests.templates:
        state.templates.put(template, listed=0)
    asked = [each for cluster in manifests.clusters for each in _bodies(state, _with_uid(cluster))]
    whole = [msgspec.json.encode(each) for each in asked if isinstance(each, dict) and each["kind"] == CLUSTERS.kind]
    return [msgspec.json.decode(_ANY_UID.sub(b"", each), type=Json) for each in whole]


def _created(planned: Planned) -> dict[tuple[Resource, str], KubernetesObject]:
    """Return the objects of a plan by kind and key.

    Raises:
        InputError: The Subnamespace cannot be created.
    """
    if planned.plan.blocked:
        key = planned.subnamespace.key if planned.subnamespace is not None else ""
        raise InputError(f"Subnamespace {key!r}: {planned.plan.blocked[0].message}")
    steps = [step for wave in planned.plan.waves for step in wave]
    found = {(step.resource, step.key): step.child.object for step in steps if step.child is not None}
    asked = [write.request.body for write in planned.plan.writes if isinstance(write, DirectWrite)]
    return found | {(each.resource, each.key): each for each in asked if isinstance(each, _KEPT_ELSEWHERE)}


def _of_cluster(state: DriftInputs, cluster: DedicatedCluster) -> dict[tuple[Resource, str], KubernetesObject]:
    """Return the children of a DedicatedCluster that the operator creates before nodes are chosen, by kind and key.

    Raises:
        InputError: They cannot be created.
    """
    asked = _bodies(state, cluster)
    return {(each.resource, each.key): each for each in asked if isinstance(each, KubernetesObject)}


def _bodies(state: DriftInputs, cluster: DedicatedCluster) -> list[KubernetesObject | bytes | Json | None]:
    """Return what the operator would send for a DedicatedCluster at first.

    Raises:
        InputError: They cannot be created.
    """
    told = f"DedicatedCluster {cluster.key!r}"
    plan = cluster_plan(state, cluster)
    for each in plan.blocked:
        hint = ": add it to these files, or ask the cluster with `tenantry diff -f`"
        raise InputError(f"{told}: {each.message}{hint if each.reason == reasons.UNKNOWN_TEMPLATE else ''}")
    return [write.request.body for write in plan.writes if isinstance(write, DirectWrite)]


def _place(value: KubernetesObject, order: Mapping[str, int]) -> tuple[int, int]:
    """Return the place of an object in the output: by namespace, there the namespace and its quota first."""
    meta = value.metadata
    own = meta.name if isinstance(value, Namespace) else meta.labels.get(TENANT, "")
    rank = 0 if isinstance(value, Namespace) else 1 if isinstance(value, ResourceQuota) else 2
    return order.get(meta.namespace or own, 0), rank


def _with_uid(value: K) -> K:
    """Return an object with a uid: the division and the namespaces below find each other by uid."""
    metadata = msgspec.structs.replace(value.metadata, uid=f"{UNKNOWN_UID}: {value.resource.kind} {value.key}")
    return msgspec.structs.replace(value, metadata=metadata)


def _without_uids(value: K) -> K:
    return msgspec.json.decode(_ANY_UID.sub(b"", msgspec.json.encode(value)), type=type(value))


def _without_adoption(subnamespace: Subnamespace) -> Subnamespace:
    """Return a Subnamespace that creates its namespace: only a cluster has one to adopt."""
    spec = msgspec.structs.replace(subnamespace.spec, adopt=Adoption())
    return msgspec.structs.replace(subnamespace, spec=spec)


def _names(subnamespaces: Sequence[Subnamespace]) -> dict[str, str]:
    """Return the names of the children's namespaces by key, from the files if a Subnamespace there is in one."""
    parents = {each.metadata.namespace for each in subnamespaces}
    names = [each.metadata.name for each in subnamespaces]
    found: dict[str, str] = {}
    for each in subnamespaces:
        name = each.metadata.name
        pattern = re.compile(f"{re.escape(name)}-[0-9a-f]{{{DIGITS}}}")
        matching = [parent for parent in parents if pattern.fullmatch(parent)]
        known = matching[0] if len(matching) == 1 and names.count(name) == 1 else ""
        found[each.key] = each.spec.adopt.namespace or known or f"{name}-{UNKNOWN_DIGITS}"
    return found

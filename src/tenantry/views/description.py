"""Everything about one object on one page: the object, the contents of its namespace, and its events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import LimitRange, RoleBinding
from tenantry.api.marks import TENANT_UID
from tenantry.api.model import KubernetesObject, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.tenant import clusternetworkpolicy
from tenantry.controllers.tenantnamespace import COUNTS
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import first_error
from tenantry.views import owned
from tenantry.views.objects import (
    ClusterNetworkPolicyTier,
    NamespaceWithPhase,
    NetworkPolicyTypes,
    ReportedEvent,
    ResourceQuotaWithUsage,
)
from tenantry.views.permitted import list_permitted

K = TypeVar("K", bound=KubernetesObject)

PODS = Resource("", "v1", "pods", "Pod")
EVENTS = 10
"""How many events a description has."""


class ObjectDescription(msgspec.Struct, frozen=True, kw_only=True):
    """An object and its latest events; None if the user may not read events."""

    value: KubernetesObject
    events: Sequence[ReportedEvent] | None


class TenantDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one tenant; None stands for objects that the user may not read.

    Args:
        is_partial: The tenant is from the summary for its owners.
    """

    tenant: Tenant
    namespace: NamespaceWithPhase | None
    quotas: Sequence[ResourceQuotaWithUsage] | None
    limits: Sequence[LimitRange] | None
    policies: Sequence[NetworkPolicyTypes] | None
    cluster_policies: Sequence[ClusterNetworkPolicyTier] | None
    bindings: Sequence[RoleBinding] | None
    pods: int | None
    subnamespaces: Sequence[Subnamespace] | None
    events: Sequence[ReportedEvent] | None
    is_partial: bool = False

    @property
    def owns_namespace(self) -> bool:
        """Return whether the namespace of the tenant's name belongs to the tenant."""
        labels = self.namespace.metadata.labels if self.namespace is not None else {}
        return labels.get(TENANT_UID) == self.tenant.metadata.uid


async def read_tenant(reader: ObjectReader, name: str) -> TenantDescription:
    """Read everything about a tenant.

    Raises:
        NotFound: There is no such tenant.
        Forbidden: The user may read neither the tenant nor its namespace.
    """
    try:
        tenant, is_partial = await reader.get(Tenant, name), False
    except Forbidden as error:
        tenant, is_partial = await owned.tenant(reader, name, error), True
    with first_error():
        async with asyncio.TaskGroup() as group:
            start = group.create_task
            namespace = start(_namespace(reader, name))
            quotas = start(_list(reader, ResourceQuotaWithUsage, namespace=name))
            limits = start(_list(reader, LimitRange, namespace=name))
            policies = start(_list(reader, NetworkPolicyTypes, namespace=name))
            cluster_policies = start(
                _list(reader, ClusterNetworkPolicyTier, selectors=_named(clusternetworkpolicy.name_of(name)))
            )
            bindings = start(_list(reader, RoleBinding, namespace=name))
            pods = start(count_pods(reader, name))
            subnamespaces = start(_list(reader, Subnamespace, namespace=name))
            events = start(_events(reader, tenant))
    return TenantDescription(
        tenant=tenant,
        namespace=namespace.result(),
        # Counts have a limit for every kind, most of which are not used.
        quotas=[each for each in quotas.result() or () if each.metadata.name != COUNTS]
        if quotas.result() is not None
        else None,
        limits=limits.result(),
        policies=policies.result(),
        cluster_policies=cluster_policies.result(),
        bindings=bindings.result(),
        pods=pods.result(),
        subnamespaces=subnamespaces.result(),
        events=events.result(),
        is_partial=is_partial,
    )


async def _namespace(reader: ObjectReader, name: str) -> NamespaceWithPhase | None:
    try:
        return await reader.get(NamespaceWithPhase, name)
    except (Forbidden, NotFound):
        return None


async def read_object(
    reader: ObjectReader, kind: type[KubernetesObject], name: str, namespace: str
) -> ObjectDescription:
    """Read an object and its events.

    Raises:
        NotFound: There is no such object.
    """
    value = await reader.get(kind, name, namespace)
    return ObjectDescription(value=value, events=await _events(reader, value))


async def _events(reader: ObjectReader, value: KubernetesObject) -> list[ReportedEvent] | None:
    """Return the latest events about an object, oldest first; None if the user may not read them."""
    meta = value.metadata
    # With the uid: events of an earlier object of the same name live for an hour.
    about = {
        "fieldSelector": f"regarding.kind={value.resource.kind},regarding.name={meta.name},regarding.uid={meta.uid}"
    }
    found = await _list(reader, ReportedEvent, namespace=meta.namespace, selectors=about)
    # The API server returns events by name, not by time.
    return None if found is None else sorted(found, key=lambda event: event.last)[-EVENTS:]


async def count_pods(reader: ObjectReader, namespace: str) -> int | None:
    """Return the number of pods in a namespace; None if the user may not list pods."""
    try:
        return await reader.count(PODS, namespace)
    except Forbidden:
        return None


async def limited_keys(reader: ObjectReader, namespace: str) -> set[str] | None:
    """Return the keys that the quotas of a namespace limit, without counts; None if the user may not list them."""
    found = await list_permitted(reader, ResourceQuotaWithUsage, namespace=namespace)
    if found is None:
        return None
    return {key for each in found if each.metadata.name != COUNTS for key in each.status.hard}


async def plane_names(reader: ObjectReader, namespace: str) -> list[str]:
    """Return the names of the control planes in a namespace, sorted; [] also if the user may not list them."""
    return sorted(each.metadata.name for each in await _list(reader, VirtualControlPlane, namespace=namespace) or ())


async def subnamespace_names(reader: ObjectReader, namespace: str) -> list[str] | None:
    """Return the names of the Subnamespaces in a namespace, sorted; None if the user may not list them."""
    found = await list_permitted(reader, Subnamespace, namespace=namespace)
    return None if found is None else sorted(each.metadata.name for each in found)


def _named(name: str) -> dict[str, str]:
    return {"fieldSelector": f"metadata.name={name}"}


async def _list(
    reader: ObjectReader, kind: type[K], *, namespace: str = "", selectors: dict[str, str] | None = None
) -> list[K] | None:
    try:
        return await list_permitted(reader, kind, namespace=namespace, selectors=selectors)
    except NotFound:
        return []  # the cluster does not have the kind

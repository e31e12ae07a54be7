"""What a cluster has around objects that change: the namespaces, pods and nodes that the consequences are about."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.offloading import NamespaceMap
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine.plan import StepAction
from tenantry.engine.preview import Preview
from tenantry.engine.tasks import all_of
from tenantry.hostedpods.objects import CLAIMS
from tenantry.views.description import PODS
from tenantry.views.drift.steps import PlanSurroundings
from tenantry.views.objects import ResourceQuotaWithUsage
from tenantry.views.pods import PodRequests
from tenantry.views.snapshot import MANAGED, SHARES

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_AT_ONCE = 16


async def read(client: Client, changes: Sequence[Preview]) -> PlanSurroundings:
    """Read what the consequences of changes are about.

    Args:
        client: Of the cluster.
        changes: All changes, those of the operator included.
    """
    listed = await all_of(
        client.list(kind)
        for kind in (Subnamespace, SliceClaim, Slice, VirtualControlPlane, DedicatedCluster, NamespaceMap)
    )
    found: list[Sequence[Any]] = list(listed)
    namespaces = await client.list(Namespace, selectors=MANAGED)
    around = PlanSurroundings(
        namespaces={each.metadata.name: each.metadata.labels for each in namespaces},
        subnamespaces={each.key: each for each in found[0]},
        claims={each.key: each for each in found[1]},
        slices={each.key: each for each in found[2]},
        planes={each.key: each for each in found[3]},
        clusters={each.key: each for each in found[4]},
        maps={each.key: each for each in found[5]},
    )
    ending = {name for each in changes for name in around.ending(each)}
    shrinking = {each.namespace for each in changes if each.kind == ResourceQuotaWithUsage.resource.kind}
    planes = {each.namespace for each in changes if each.kind == VirtualControlPlane.resource.kind}
    nodes = {node for each in changes if each.action is not StepAction.CREATE for node in around.nodes_of(each)}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def pods(namespace: str, selectors: dict[str, str] | None = None) -> list[PodRequests]:
        async with slots:
            items = client.items(PODS, PodRequests, namespace=namespace, selectors=selectors)
            return [each async for each in items]

    async def bindings(namespace: str) -> list[RoleBinding]:
        async with slots:
            return await client.list(RoleBinding, namespace=namespace)

    async def volumes(namespace: str) -> tuple[str, int]:
        async with slots:
            return namespace, await client.count(CLAIMS, namespace)

    within = sorted(ending | shrinking | planes)
    there = [each for each in within if each in around.namespaces]
    by_namespace = await all_of(pods(each) for each in there)
    by_node = await all_of(pods("", {"fieldSelector": f"spec.nodeName={each}"}) for each in sorted(nodes))
    quotas = await client.list(ResourceQuotaWithUsage, selectors=SHARES) if shrinking else []
    return around.with_contents(
        pods=_flat(by_namespace),
        on_nodes=_flat(by_node),
        volumes=dict(await all_of(volumes(each) for each in sorted(ending & around.namespaces.keys()))),
        bindings=_flat(await all_of(bindings(each) for each in sorted(ending & around.namespaces.keys()))),
        used={each.key: each.status.used for each in quotas},
    )


def _flat(many: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(each for few in many for each in few)

"""Slices among simulated nodes with real pods: nodes are drained, contended, lost, and claimed all at once.

`make test-release` has 100 claims of 500 nodes.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.watch import watch
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.views.explain import slices
from tenantry.world.leases import instant
from testkit.api import EVENTS, PODS, SECONDS, Api, until
from testkit.installation import install
from testkit.pool import is_let_in
from testkit.refusals import refusal
from testkit.slices import SliceAuditor

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CONTAINER: Json = {"name": "main", "image": "example.com/app:1"}
TENANTS = 10
CLAIMS = int(os.environ.get("TENANTRY_TEST_CLAIMS", "20")) // TENANTS
"""Of each tenant."""
PACE = {"minGracePeriodSeconds": 4, "disruptionBudgetSeconds": 4, "cooldownSeconds": 0}
"""Of TenancyDefaults."""
COUNTS = [3 + number % 5 for number in range(CLAIMS)]
NODES = TENANTS * sum(COUNTS)


@pytest_asyncio.fixture(scope="module")
async def farm(tenantry_home: Path) -> AsyncGenerator[Api]:
    """An administrator of a cluster of its own with simulated nodes and the operator."""
    groups = (
        NodeGroup(name="many", count=NODES, labels={"pool": "many"}),
        *(NodeGroup(name=f"few{n}", count=3, labels={"pool": f"few{n}"}) for n in range(6)),
    )
    local = LocalCluster("farm", root=tenantry_home)
    await local.up(
        UpOptions(throwaway=True, install=install, operator=True, nodes=NodePlan(groups=groups), timeout_seconds=180.0)
    )
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        api = Api(client)
        gate = asyncio.Semaphore(32)

        async def free(node: str) -> None:
            # Not all at once: the last ones would wait for a connection for longer than a request may take.
            async with gate:
                await api.patch(Node.resource, node, {"spec": {"taints": None}})

        async def ready() -> bool:
            # Kubernetes taints nodes that are made, and takes that back ten times a second only.
            tainted = [node["metadata"]["name"] for node in await api.list(Node.resource) if node["spec"].get("taints")]
            await asyncio.gather(*(free(each) for each in tainted))
            return not tainted

        await until(ready, "the nodes are ready", seconds=2 * SECONDS)
        defaults = {"metadata": {"name": "default"}, "spec": {"slices": PACE}}
        await api.create(TenancyDefaults.resource, defaults)
        yield api
    await local.down(purge=True)


# -- what a person does ---------------------------------------------------------------------------


async def claim(api: Api, namespace: str, called: str, pool: str, **spec: object) -> Json:
    """Claim nodes of a pool."""
    asked = {"selector": {"matchLabels": {"pool": pool}}, "users": "Everybody", **spec}
    return await api.create(SliceClaim.resource, {"metadata": {"name": called}, "spec": asked}, namespace)


async def state(api: Api, namespace: str, called: str, wanted: str, *, seconds: float = SECONDS) -> Json:
    """Wait until a claim is in a state, and return it."""
    status: Json = {}

    async def so() -> Json | None:
        nonlocal status
        found = await api.get(SliceClaim.resource, called, namespace)
        status = found.get("status", {})
        # Pending is what it is before the operator has looked at it, too.
        return found if status.get("conditions") and status["state"] == wanted else None

    try:
        return await until(so, f"claim {namespace}/{called} is {wanted}", seconds=seconds)
    except AssertionError as error:
        error.add_note(f"its status: {status}")
        raise


async def passed(api: Api, made: Json, state: str) -> Json:
    """Return a claim as it was in a state that it has been in since it was made, however short that was."""
    version = made["metadata"]["resourceVersion"]
    async with asyncio.timeout(SECONDS):
        async for events in watch(api.client, SliceClaim.resource, resource_version=version):
            for event in events:
                found: Json = msgspec.json.decode(event.object)
                is_it = found["metadata"].get("uid") == made["metadata"]["uid"]
                if is_it and found.get("status", {}).get("state") == state:
                    return found
    raise AssertionError(f"it was never {state}")


def condition(found: Json, type_: str) -> Json:
    """Return a condition; {} where there is none."""
    told: list[Json] = [each for each in found["status"].get("conditions", []) if each["type"] == type_]
    return told[0] if told else {}


async def deploy(api: Api, namespace: str, called: str, pool: str, replicas: int) -> None:
    """Run pods on the nodes of a pool, and wait until they run."""
    labels = {"app": called}
    selector = {"pool": pool} if pool else {}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER], "nodeSelector": selector}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    await api.create(DEPLOYMENTS, {"metadata": {"name": called}, "spec": spec}, namespace)

    async def runs() -> bool:
        found = await api.get(DEPLOYMENTS, called, namespace)
        return found.get("status", {}).get("readyReplicas", 0) == replicas

    await until(runs, f"{replicas} pods of {called} run")


async def nodes_of_pods(api: Api, namespace: str) -> list[str]:
    """Return where the pods of a namespace run."""
    return sorted(pod["spec"].get("nodeName", "") for pod in await api.list(PODS, namespace))


async def foreign(api: Api, called: str) -> None:
    """Create a namespace without a tenant."""
    await api.create(Namespace.resource, {"metadata": {"name": called}})


async def all_of(*checks: Callable[[], Awaitable[bool]]) -> bool:
    """Tell whether all of them hold."""
    return all([await each() for each in checks])


async def states_of(api: Api, namespaces: list[str]) -> Counter[str]:
    """Return how many claims of these namespaces are in each state."""
    found = [each for each in await api.list(SliceClaim.resource) if each["metadata"]["namespace"] in namespaces]
    return Counter(each.get("status", {}).get("state", "") for each in found)


# -- tests ----------------------------------------------------------------------------------------


async def test_others_leave_and_the_tenants_pods_come(farm: Api, name: str) -> None:
    """E12, E13: others' pods are evicted, and told why; the tenant's are bound to it at admission; nodes come back."""
    other = f"{name}-o"
    await foreign(farm, other)
    await deploy(farm, other, "theirs", "few0", 4)
    await farm.make_tenant(name)
    await claim(farm, name, "web", "few0", count=3, gracePeriodSeconds=30)
    bound = await state(farm, name, "web", "Bound")
    slice_ = bound["status"]["slice"]

    async def empty() -> bool:
        return not set(await nodes_of_pods(farm, other)) & set(bound["status"]["nodes"])

    assert await empty()

    async def is_told() -> bool:
        return any(each["reason"] == reasons.PODS_LEAVING for each in await farm.list(EVENTS, other))

    await until(is_told, "whose pods leave is told why")
    probe: Json = {"metadata": {"name": "probe"}, "spec": {"containers": [CONTAINER]}}
    await is_let_in(farm, name, slice_, probe)
    await deploy(farm, name, "mine", "", 3)
    assert set(await nodes_of_pods(farm, name)) <= set(bound["status"]["nodes"])
    pods = await farm.list(PODS, name)
    assert all(pod["spec"]["nodeSelector"][marks.SLICE] == slice_ for pod in pods)
    await farm.delete(SliceClaim.resource, "web", name)

    async def back() -> bool:
        found = [await farm.get(Node.resource, each) for each in bound["status"]["nodes"]]
        return not any(marks.SLICE in str(node["metadata"].get("labels")) + str(node["spec"]) for node in found)

    await until(back, "the nodes are shared again")
    await farm.gone(Slice.resource, slice_)


async def test_budgets_are_kept_and_lonely_pods_are_named_until_the_grace_period_is_over(farm: Api, name: str) -> None:
    """E12: a PodDisruptionBudget holds a pod to the end of the grace period, and then it is deleted."""
    other = f"{name}-o"
    await foreign(farm, other)
    await deploy(farm, other, "kept", "few1", 1)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    await farm.create(BUDGETS, {"metadata": {"name": "kept"}, "spec": budget}, other)
    alone = {"containers": [CONTAINER], "nodeSelector": {"pool": "few1"}}
    await farm.create(PODS, {"metadata": {"name": "alone"}, "spec": alone}, other)

    async def runs() -> bool:
        return all(await nodes_of_pods(farm, other))

    await until(runs, "both have nodes")
    await farm.make_tenant(name)
    kept = {pod["metadata"]["uid"] for pod in await farm.list(PODS, other)}
    made = await claim(farm, name, "web", "few1", count=3, gracePeriodSeconds=4)
    # Two things take their time, one after the other: that pods are told to leave, and that they have left.
    bound = await state(farm, name, "web", "Bound", seconds=2 * SECONDS)
    told = condition(await passed(farm, made, "Draining"), reasons.READY)
    assert told["reason"] == reasons.PODS_LEAVING
    assert f"'{other}/alone'" in told["message"]
    end = told["message"].partition("at the latest at ")[2].partition(";")[0]
    assert instant(end) - instant(made["metadata"]["creationTimestamp"]) >= dt.timedelta(seconds=4)
    assert instant(condition(bound, reasons.READY)["lastTransitionTime"]) >= instant(end)
    there = {pod["metadata"]["uid"] for pod in await farm.list(PODS, other) if pod["spec"].get("nodeName")}
    assert not kept & there
    assert bound["status"]["nodes"] == ["few1-1", "few1-2", "few1-3"]


async def test_a_tenant_does_not_empty_the_cluster_node_by_node(farm: Api, name: str) -> None:
    """E12: no grace period below the minimum, no pod of the cluster itself, and no second node in the cool-down."""
    other = f"{name}-o"
    await foreign(farm, other)
    await deploy(farm, other, "theirs", "few4", 3)
    system = {"containers": [CONTAINER], "nodeName": "few4-1", "tolerations": [{"operator": "Exists"}]}
    await farm.create(PODS, {"metadata": {"name": f"dns-{name}"}, "spec": system}, "kube-system")
    await farm.make_tenant(name)

    async def told() -> str:
        pool = {"matchLabels": {"pool": "few4"}}
        spec = {"selector": pool, "users": "Everybody", "gracePeriodSeconds": 0, "count": 9}
        return await refusal(farm, SliceClaim.resource, {"metadata": {"name": "none"}, "spec": spec}, name)

    least = "spec.gracePeriodSeconds must be at least 4, which is spec.slices.minGracePeriodSeconds of TenancyDefaults"
    assert least in await until(told, "a short grace period is refused")
    await farm.patch(TenancyDefaults.resource, "default", {"spec": {"slices": {"cooldownSeconds": 600}}})
    try:
        await claim(farm, name, "dns", "few4", nodeNames=["few4-1"], gracePeriodSeconds=4)
        waits = await state(farm, name, "dns", "Pending")
        assert "1 runs pods of the cluster itself" in condition(waits, reasons.READY)["message"]
        await farm.delete(SliceClaim.resource, "dns", name)
        first, second = await nodes_with_pods(farm, other, without="few4-1")
        await claim(farm, name, "first", "few4", nodeNames=[first], gracePeriodSeconds=4)
        await state(farm, name, "first", "Bound", seconds=2 * SECONDS)
        await farm.delete(SliceClaim.resource, "first", name)
        await claim(farm, name, "second", "few4", nodeNames=[second], gracePeriodSeconds=4)
        waits = await state(farm, name, "second", "Pending")
        assert "pods left for a claim of this tenant" in condition(waits, reasons.READY)["message"]
        explained = await slices.explain(farm.client, "second", name)
        assert explained.would_take == ()
        assert "pods left for a claim of this tenant" in explained.refused[second]
        assert second in await nodes_of_pods(farm, other)
    finally:
        await farm.patch(TenancyDefaults.resource, "default", {"spec": {"slices": PACE}})
        await farm.delete(PODS, f"dns-{name}", "kube-system")


async def nodes_with_pods(api: Api, namespace: str, *, without: str) -> list[str]:
    """Return the other nodes on which pods of a namespace run."""
    return sorted({node for node in await nodes_of_pods(api, namespace) if node and node != without})


async def test_the_node_with_the_fewest_pods_is_taken(farm: Api, name: str) -> None:
    """E12: a claim disturbs as few as it can; it is Reserved while no namespace uses it, and other pods continue."""
    other = f"{name}-o"
    await foreign(farm, other)
    await deploy(farm, other, "theirs", "few2", 2)
    busy = set(await nodes_of_pods(farm, other))
    await farm.make_tenant(name)

    async def are_old() -> bool:
        conditions = [each for pod in await farm.list(PODS, other) for each in pod["status"].get("conditions", [])]
        bound = [instant(each["lastTransitionTime"]) for each in conditions if each["type"] == "PodScheduled"]
        return max(bound) + dt.timedelta(seconds=5) < dt.datetime.now(dt.UTC)

    # A claim counts the pods that the operator's watch has reported, and no event tells which these are.
    await until(are_old, "the operator has seen the pods")
    await claim(farm, name, "web", "few2", count=3 - len(busy), users="Subnamespaces")
    reserved = await state(farm, name, "web", "Reserved")
    assert not busy & set(reserved["status"]["nodes"])
    await farm.patch(SliceClaim.resource, "web", {"spec": {"count": 3}}, name)

    async def grown() -> bool:
        found = await farm.get(SliceClaim.resource, "web", name)
        return len(found["status"]["nodes"]) == 3 and found["status"]["state"] == "Reserved"

    await until(grown, "it has all three")
    assert set(await nodes_of_pods(farm, other)) == busy


@pytest.mark.long
async def test_a_node_that_vanishes_is_replaced(farm: Api, name: str) -> None:
    """E12: the slice says that it is degraded where nothing is left, and takes another node where one is."""
    await farm.make_tenant(name)
    await claim(farm, name, "web", "few3", count=2)
    bound = await state(farm, name, "web", "Bound")
    lost, kept = bound["status"]["nodes"]
    # Which two are taken depends on the pods of earlier tests.
    (spare,) = {f"few3-{number}" for number in (1, 2, 3)} - {lost, kept}
    node = await farm.get(Node.resource, lost)
    await farm.delete(Node.resource, lost)

    async def replaced() -> bool:
        found = (await farm.get(SliceClaim.resource, "web", name))["status"]
        return found.get("nodes") == sorted([kept, spare]) and found["state"] == "Bound"

    await until(replaced, "another node is taken")
    await farm.delete(Node.resource, spare)

    async def degraded() -> bool:
        found = await farm.get(SliceClaim.resource, "web", name)
        return condition(found, reasons.DEGRADED).get("reason") == reasons.NODES_LOST

    await until(degraded, "it is degraded")
    meta = {key: node["metadata"][key] for key in ("name", "annotations")}
    plain = {key: value for key, value in node["metadata"]["labels"].items() if marks.GROUP not in key}
    meta["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    await farm.create(Node.resource, {"metadata": {**meta, "labels": plain}, "status": node["status"]})

    async def whole() -> bool:
        found = await farm.get(SliceClaim.resource, "web", name)
        return not condition(found, reasons.DEGRADED) and len(found["status"].get("nodes", [])) == 2

    await until(whole, "it is whole again")


@pytest.mark.long
async def test_claims_at_once_share_all_nodes(farm: Api, name: str) -> None:
    """E12: all get theirs, who is too late waits, and no node is in two slices at any resourceVersion."""
    tenants = [f"{name}-{number}" for number in range(TENANTS)]
    await asyncio.gather(*(farm.make_tenant(each) for each in tenants))
    auditor = SliceAuditor(farm.client)
    async with auditor.watching():
        asked = [(tenant, f"c{number}", count) for tenant in tenants for number, count in enumerate(COUNTS)]
        await asyncio.gather(*(claim(farm, tenant, called, "many", count=count) for tenant, called, count in asked))

        async def settled() -> bool:
            await asyncio.sleep(0.2)
            states = await states_of(farm, tenants)
            # The oldest claim of a tenant is the one that its namespace uses.
            return states == {"Bound": len(tenants), "Reserved": len(asked) - len(tenants)}

        try:
            await until(settled, "all have their nodes", seconds=120.0)
        except AssertionError as error:
            raise AssertionError(f"{await states_of(farm, tenants)}, {len(auditor.taken)} nodes taken") from error
        found = [each for each in await farm.list(SliceClaim.resource) if each["metadata"]["namespace"] in tenants]
        given = [node for each in found for node in each["status"]["nodes"]]
        assert len(given) == len(set(given)) == NODES
        await claim(farm, tenants[0], "late", "many")
        late = await state(farm, tenants[0], "late", "Pending")
        assert condition(late, reasons.READY)["reason"] == reasons.NODES_INSUFFICIENT
        await asyncio.gather(*(farm.delete(SliceClaim.resource, called, tenant) for tenant, called, _ in asked[1:]))
        await state(farm, tenants[0], "late", "Reserved")
    assert auditor.problems == []
    assert auditor.seen > 2 * NODES

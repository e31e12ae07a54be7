"""Parts of nodes on a real control plane with simulated nodes: given, kept within, and taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.tenant import Tenant
from tenantry.controllers.tenant.desired import QUOTA
from testkit.api import PODS, SECONDS, Api, until
from testkit.nodeauditor import NODES
from testkit.parts import PartAuditor, SharedNodes, parts_of
from testkit.refusals import tried
from testkit.requests import People

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
TOLERATION = {"key": marks.PARTS, "operator": "Exists"}


@pytest_asyncio.fixture
async def shared(api: Api, name: str) -> AsyncGenerator[SharedNodes]:
    """Nodes of the test's own that are given out in parts."""
    made = SharedNodes(api, name)
    yield made
    await made.end()


async def claim(
    api: Api, shared: SharedNodes, namespace: str, name: str, *, cpu: str, memory: str = "4Gi", **spec: object
) -> None:
    """Make a claim of parts."""
    whole = {"sharing": "Part", "selector": shared.selector, "users": "Everybody", "gracePeriodSeconds": 0}
    spec = {**whole, "perNode": {"cpu": cpu, "memory": memory}, **spec}
    await api.create(SliceClaim.resource, {"metadata": {"name": name}, "spec": spec}, namespace)


async def state(api: Api, namespace: str, name: str, wanted: str, reason: str = "") -> Json:
    """Wait until a claim is in a state, and return it."""
    told: Json = {}

    async def so() -> Json | None:
        nonlocal told
        found = await api.get(SliceClaim.resource, name, namespace)
        told = found.get("status", {})
        current = told.get("observedGeneration") == found["metadata"]["generation"]
        right = told.get("state") == wanted and (not reason or reason == ready(found)["reason"])
        return found if current and right else None

    try:
        return await until(so, f"claim {namespace}/{name} is {wanted} {reason}")
    except AssertionError as error:
        error.add_note(f"it is {told}")
        raise


def ready(claim: Json) -> Json:
    """Return the condition Ready of a claim."""
    told: list[Json] = [each for each in claim["status"].get("conditions", []) if each["type"] == reasons.READY]
    return told[0] if told else {"reason": "", "message": ""}


def pod(name: str, *cpus: str, memory: str = "256Mi", **spec: object) -> Json:
    """Return a pod with a container for each of some limits of CPU."""
    containers = [
        {"name": f"c{number}", "image": "x", "resources": {"limits": {"cpu": cpu, "memory": memory}}}
        for number, cpu in enumerate(cpus)
    ]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec}}


async def lands(api: Api, namespace: str, name: str, node: str) -> None:
    """Wait until the scheduler has put a pod on a node."""

    async def so() -> bool:
        return (await api.get(PODS, name, namespace))["spec"].get("nodeName") == node

    await until(so, f"pod {namespace}/{name} is on {node}")


async def is_let_in(api: Api, namespace: str, slice_: str) -> None:
    """Wait until a namespace's pods are bound to a part: policies see its label a moment after we do."""

    async def so() -> bool:
        meta = (await api.get(Namespace.resource, namespace))["metadata"]
        made = await tried(api, PODS, pod("probe", "100m"), namespace)
        return meta["labels"].get(marks.PART) == slice_ and f"{slice_}.parts.tenantry.dev" in str(made)

    await until(so, f"pods of {namespace} are bound to {slice_}")


async def test_a_part_is_given_kept_within_and_taken_back(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: two tenants on one node each have their part, more than it the scheduler gives to none, and it ends."""
    (node,) = await shared.share(cpu="8")
    other = f"{name}-b"
    await asyncio.gather(api.make_tenant(name), api.make_tenant(other))
    for place in (name, other):
        await claim(api, shared, place, "web", cpu="3")
    bound = [await state(api, place, "web", "Bound", reasons.NODES_BOUND) for place in (name, other)]
    slices = [each["status"]["slice"] for each in bound]
    size = {"cpu-milli": 3000, "memory-mib": 4096}
    assert await shared.parts(node) == dict.fromkeys(slices, size)
    await claim(api, shared, other, "more", cpu="3", users="Subnamespaces")
    waits = await state(api, other, "more", "Pending", reasons.NODES_INSUFFICIENT)
    assert "1 has left cpu 2, memory 24Gi" in ready(waits)["message"]
    for place, slice_ in zip((name, other), slices, strict=True):
        await is_let_in(api, place, slice_)
        # Two containers, one after the other: a part holds the larger one, as the scheduler counts.
        first = {"name": "first", "image": "x", "resources": {"limits": {"cpu": "2500m", "memory": "1Gi"}}}
        await api.create(PODS, pod("fits", "1500m", "500m", initContainers=[first]), place)
        await lands(api, place, "fits", node)
        await api.create(PODS, pod("too-much", "600m"), place)

        async def is_refused(place: str = place, slice_: str = slice_) -> bool:
            found = (await api.get(PODS, "too-much", place)).get("status", {}).get("conditions", [])
            wanted = f"Insufficient {slice_}.parts.tenantry.dev/cpu-milli"
            return any(wanted in each.get("message", "") for each in found)

        await until(is_refused, "the part has no room for more")
    await api.delete(SliceClaim.resource, "web", name)
    await state(api, other, "more", "Reserved", reasons.NODES_RESERVED)
    assert slices[0] not in await shared.parts(node)
    assert await api.find(PODS, "fits", name) is None
    await api.gone(Slice.resource, slices[0])
    assert marks.PART not in (await api.get(Namespace.resource, name))["metadata"]["labels"]
    assert (await api.get(PODS, "fits", other))["spec"]["nodeName"] == node


async def test_pods_of_a_part_take_their_limits_of_it_and_no_others(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: whatever a pod says, it takes what its containers may use at most; without limits it is refused."""
    await shared.share()
    await asyncio.gather(api.make_tenant(name), api.make_tenant(f"{name}-b"))
    await claim(api, shared, name, "web", cpu="2")
    slice_ = (await state(api, name, "web", "Bound"))["status"]["slice"]
    await is_let_in(api, name, slice_)
    cpu, memory, is_open = (f"{slice_}.parts.tenantry.dev/{each}" for each in ("cpu-milli", "memory-mib", "open"))
    asked: Json = {"requests": {"cpu": "100m"}, "limits": {"cpu": "0.3", "memory": "100M"}}
    first = {"name": "first", "image": "x", "resources": {"limits": {"cpu": "1001m", "memory": "1Mi"}}}
    made = pod("mine", "0.29", memory="1048577", initContainers=[first], tolerations=[TOLERATION])
    made["spec"]["containers"].append({"name": "more", "image": "x", "resources": asked})
    spec = (await api.create(PODS, made, name))["spec"]
    assert spec["nodeSelector"] == {is_open: "true"}
    assert [each for each in spec["tolerations"] if each["key"] == marks.PARTS] == [TOLERATION]
    taken = [
        [each["resources"][side][key] for side in ("limits", "requests") for key in (cpu, memory)]
        for each in (*spec["containers"], *spec["initContainers"])
    ]
    assert taken == [["290", "2", "290", "2"], ["300", "96", "300", "96"], ["1001", "1", "1001", "1"]]
    assert spec["containers"][1]["resources"]["requests"]["cpu"] == "100m"
    for bad in (pod("bad", "0"), {"metadata": {"name": "bad"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}):
        with pytest.raises(Forbidden, match=r"each container must have limits of cpu and memory"):
            await api.create(PODS, bad, name)
    whole = {"limits": {"cpu": "1", "memory": "1Gi"}}
    with pytest.raises(Forbidden, match=r"spec.resources must not be given"):
        await api.create(PODS, pod("bad", "100m", resources=whole), name)
    others = pod("bad", "100m")
    others["spec"]["containers"][0]["resources"]["limits"]["other-1.parts.tenantry.dev/cpu-milli"] = "1"
    with pytest.raises(Forbidden, match=r"must keep the resources of its part"):
        await api.create(PODS, others, name)
    larger = (await api.get(PODS, "mine", name))["spec"]["containers"]
    larger[0]["resources"]["limits"]["cpu"] = "1"
    body = {"spec": {"containers": larger}}
    with pytest.raises(Forbidden, match=r"must not be resized"):
        await api.client.merge_patch(PODS, name, "mine", body, subresource="resize")
    for place in (f"{name}-b", "default"):
        with pytest.raises(Forbidden, match=r"must not tolerate tenantry.dev/parts"):
            await api.create(PODS, pod("bad", "100m", tolerations=[TOLERATION]), place)


async def test_what_a_sandbox_needs_is_of_the_part_too(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: the overhead of a RuntimeClass counts once for what runs together, and for each that runs before."""
    await shared.share()
    await api.make_tenant(name)
    await claim(api, shared, name, "web", cpu="2")
    slice_ = (await state(api, name, "web", "Bound"))["status"]["slice"]
    await is_let_in(api, name, slice_)
    overhead = {"podFixed": {"cpu": "250m", "memory": "100Mi"}}
    # Said to be no sandbox: else pods of all other tests would be in it.
    meta = {"name": name, "labels": {marks.SANDBOX: "false"}}
    await api.create(RUNTIME_CLASSES, {"metadata": meta, "handler": "runc", "overhead": overhead})
    first = {"name": "first", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Mi"}}}

    async def made() -> Json | None:
        try:
            wanted = pod("heavy", "0.5", "0.3", initContainers=[first], runtimeClassName=name)
            return (await api.create(PODS, wanted, name))["spec"]
        except Forbidden as error:
            assert "not found" in str(error)  # noqa: PT017 - the API server learns of classes a moment later
            return None

    spec = await until(made, "the class is known")
    assert spec["overhead"] == overhead["podFixed"]
    keys = [f"{slice_}.parts.tenantry.dev/{each}" for each in ("cpu-milli", "memory-mib")]
    taken = [
        [each["resources"][side][key] for side in ("limits", "requests") for key in keys]
        for each in (*spec["containers"], *spec["initContainers"])
    ]
    assert taken == [["750", "356"] * 2, ["300", "256"] * 2, ["1250", "101"] * 2]
    await api.delete(RUNTIME_CLASSES, name)


async def test_many_claims_at_once_never_get_more_than_there_is(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: an auditor that watches by itself sees no node give more than it has; all that fits is given."""
    nodes = await shared.share(4, cpu="8")
    tenants = [f"{name}-{number}" for number in range(3)]
    await asyncio.gather(*(api.make_tenant(each) for each in tenants))
    async with PartAuditor(api.client).watching() as auditor:
        # Each node holds three parts of 2500m: of 15 claims 12 are served.
        places = [(tenant, f"web-{number}") for tenant in tenants for number in range(5)]
        await asyncio.gather(*(claim(api, shared, *place, cpu="2500m", users="Subnamespaces") for place in places))

        async def held() -> list[str]:
            found = [await api.get(SliceClaim.resource, each, tenant) for tenant, each in places]
            states = [each.get("status", {}).get("state") for each in found]
            return [place[1] for place, each in zip(places, states, strict=True) if each == "Reserved"]

        async def is_full() -> bool:
            return [len(parts_of(await shared.node(each))) for each in nodes] == [3, 3, 3, 3] and len(
                await held()
            ) == 12

        await until(is_full, "every node has given three parts")
        served = await api.list(SliceClaim.resource, tenants[0])
        await asyncio.gather(
            *(api.delete(SliceClaim.resource, each["metadata"]["name"], tenants[0]) for each in served)
        )
        places = [place for place in places if place[0] != tenants[0]]

        async def is_served() -> bool:
            given = [owner for each in nodes for owner in parts_of(await shared.node(each))]
            return len(given) == 10 and len(await held()) == 10

        await until(is_served, "all others have their parts")

        async def is_seen() -> bool:
            return sum(len(auditor.given[each]) for each in nodes) == 10

        await until(is_seen, "the auditor has seen it")
    assert auditor.problems == []


async def test_what_others_have_on_a_node_is_not_given_away(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: agents that run on every node count as they ask; when they go, who waits gets the room."""
    (node,) = await shared.share(cpu="8")
    await api.make_tenant(name)
    agent = pod("agent", "1", nodeName=node, tolerations=[{"operator": "Exists"}])
    agent["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "700m", "memory": "1Gi"}
    agent["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1", "memory": "2Gi"}
    agent["metadata"]["name"] = f"{name}-agent"
    await api.create(PODS, agent, "default")
    await claim(api, shared, name, "web", cpu="7500m")
    waits = await state(api, name, "web", "Pending", reasons.NODES_INSUFFICIENT)
    assert "has left cpu 7300m, memory 31Gi" in ready(waits)["message"]
    await api.delete(PODS, f"{name}-agent", "default")
    await state(api, name, "web", "Bound")


async def test_nodes_become_shared_and_keep_their_parts(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: a label sets a node aside; whole nodes are others; what a kubelet resets is put back; labels' end waits."""
    (node,) = await shared.add(1)
    await api.make_tenant(name)
    await claim(api, shared, name, "web", cpu="2", memory="1Gi")
    waits = await state(api, name, "web", "Pending", reasons.NODES_INSUFFICIENT)
    # And the pool's spare one: pool.make has waited until those of other tests are known to be gone.
    assert "2 not given out in parts: no label tenantry.dev/parts" in ready(waits)["message"]
    await api.patch(NODES, node, {"metadata": {"labels": {marks.PARTS: "true"}}})
    slice_ = (await state(api, name, "web", "Bound"))["status"]["slice"]
    taints = (await shared.node(node))["spec"]["taints"]
    assert [(each["key"], each["effect"]) for each in taints] == [(marks.PARTS, "NoSchedule")]
    whole = {"selector": shared.selector}
    await api.create(SliceClaim.resource, {"metadata": {"name": "whole"}, "spec": whole}, name)
    waits = await state(api, name, "whole", "Pending", reasons.NODES_INSUFFICIENT)
    assert "1 given out in parts" in ready(waits)["message"]
    resource = f"{slice_}.parts.tenantry.dev/cpu-milli"
    reset = {"status": {"capacity": {resource: "0"}, "allocatable": {resource: "0"}}}
    await api.client.merge_patch(NODES, "", node, reset, subresource="status")

    async def is_back() -> bool:
        status = (await shared.node(node))["status"]
        return status["capacity"][resource] == status["allocatable"][resource] == "2k"

    await until(is_back, "the node advertises the part again")
    await api.delete(SliceClaim.resource, "whole", name)
    await api.patch(NODES, node, {"metadata": {"labels": {marks.PARTS: None}}})
    await api.delete(SliceClaim.resource, "web", name)

    async def is_shared() -> bool:
        found = await shared.node(node)
        return not parts_of(found) and not found["spec"].get("taints") and resource not in found["status"]["capacity"]

    await until(is_shared, "the node is shared again")


async def test_a_kubelet_does_not_change_who_has_parts_of_its_node(
    api: Api, people: People, shared: SharedNodes, name: str
) -> None:
    """E20: labels and taints of parts are the operator's and administrators' alone, on nodes that are made, too."""
    (node,) = await shared.share()
    await api.make_tenant(name)
    await claim(api, shared, name, "web", cpu="2")
    slice_ = (await state(api, name, "web", "Bound"))["status"]["slice"]
    who = f"{name}-agent"
    rule = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}
    await api.create(CLUSTER_ROLES, {"metadata": {"name": who}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": who}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}
    await api.create(
        ClusterRoleBinding.resource, {"metadata": {"name": who}, "roleRef": reference, "subjects": [subject]}
    )
    agent = await people.person(who)

    async def may() -> bool:
        try:
            await agent.patch(NODES, node, {"metadata": {"labels": {"mine": "1"}}})
        except Forbidden:
            return False
        return True

    await until(may, "the agent has its rights")
    bad: list[Json] = [
        {"metadata": {"labels": {marks.PARTS: None}}},
        {"metadata": {"labels": {f"{slice_}.parts.tenantry.dev/cpu-milli": "9000"}}},
        {"metadata": {"labels": {"other-1.parts.tenantry.dev/open": "true"}}},
        {"spec": {"taints": None}},
    ]
    for patch in bad:
        with pytest.raises(Forbidden, match=r"assign parts of a node .* must not be changed"):
            await agent.patch(NODES, node, patch)
    with pytest.raises(Forbidden, match=r"must not be changed"):
        await agent.create(NODES, {"metadata": {"name": f"{name}-new", "labels": {marks.PARTS: "true"}}})
    await agent.patch(NODES, node, {"metadata": {"labels": {"mine": None}}})
    await api.delete(ClusterRoleBinding.resource, who)
    await api.delete(CLUSTER_ROLES, who)


async def test_claims_of_parts_say_how_large_and_stay_so(api: Api, shared: SharedNodes, name: str) -> None:
    """E20: cpu and memory, no total, and neither changes; a Manual claim waits for an administrator."""
    await shared.share()
    await api.make_tenant(name)
    bad: list[tuple[Json, str]] = [
        ({"perNode": {"cpu": "1"}}, "must be cpu and memory"),
        ({"perNode": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}}, "must be cpu and memory"),
        ({"perNode": {"cpu": "1", "memory": "1Gi"}, "total": {"cpu": "8"}}, "may only be set if sharing is Whole"),
    ]
    for spec, why in bad:
        with pytest.raises(Invalid, match=why):
            await api.create(
                SliceClaim.resource, {"metadata": {"name": "x"}, "spec": {"sharing": "Part", **spec}}, name
            )
    await claim(api, shared, name, "web", cpu="2", mode="Manual")
    waits = await state(api, name, "web", "Pending", reasons.AWAITING_ADMINISTRATOR)
    for change in ({"sharing": "Whole"}, {"perNode": {"cpu": "4"}}):
        with pytest.raises(Invalid, match=r"must not change"):
            await api.patch(SliceClaim.resource, "web", {"spec": change}, name)
    reference = {"namespace": name, "name": "web", "uid": waits["metadata"]["uid"]}
    slice_ = waits["status"]["slice"]
    spec = {"claim": reference, "tenant": name, "sharing": "Part"}
    await api.create(Slice.resource, {"metadata": {"name": slice_}, "spec": spec})
    bound = await state(api, name, "web", "Bound")
    assert bound["status"]["nodes"] == shared.nodes
    await api.delete(Slice.resource, slice_)
    await state(api, name, "web", "Pending", reasons.AWAITING_ADMINISTRATOR)
    assert await shared.parts(shared.nodes[0]) == {}


async def test_parts_are_charged_and_their_pods_not_twice(api: Api, shared: SharedNodes, name: str) -> None:
    """E20, X03: what the quota does not cover is not set aside; its users have its share; it ends with the claim."""
    await shared.share(2)
    await api.make_tenant(name, quota={"hard": {"cpu": 6, "memory": "100Gi"}})

    async def has(cpu: str) -> None:
        async def so() -> bool:
            quota = await api.get(ResourceQuota.resource, QUOTA, name)
            hard = quota.get("status", {}).get("hard", {})
            return quota["spec"]["hard"]["requests.cpu"] == hard.get("requests.cpu") == cpu

        await until(so, f"the namespace may use {cpu} CPUs")

    await claim(api, shared, name, "web", cpu="2", count=2, users="Subnamespaces")
    await state(api, name, "web", "Reserved")
    await has("2")
    await claim(api, shared, name, "more", cpu="3", users="Subnamespaces")
    waits = await state(api, name, "more", "Pending", reasons.QUOTA_INSUFFICIENT)
    assert "requests.cpu: 3 requested, 2 available" in ready(waits)["message"]
    assert "nodes" not in waits["status"]
    await api.patch(SliceClaim.resource, "web", {"spec": {"users": "Everybody"}}, name)
    await state(api, name, "web", "Bound")
    await has("4")
    await api.delete(SliceClaim.resource, "web", name)
    await state(api, name, "more", "Reserved")
    await has("3")
    await api.delete(SliceClaim.resource, "more", name)
    await has("6")


async def test_a_node_that_is_gone_is_replaced_and_a_tenants_end_leaves_nothing(
    api: Api, shared: SharedNodes, name: str
) -> None:
    """E20: another part where there is room, else the claim is Degraded; with the tenant its parts go."""
    nodes = await shared.share(2)
    await api.make_tenant(name)
    await claim(api, shared, name, "web", cpu="2")
    bound = await state(api, name, "web", "Bound")
    (lost,) = bound["status"]["nodes"]
    (left,) = [each for each in nodes if each != lost]
    await api.delete(NODES, lost)

    async def is_replaced() -> bool:
        return (await api.get(SliceClaim.resource, "web", name))["status"].get("nodes") == [left]

    await until(is_replaced, "the other node gives a part")
    await api.patch(SliceClaim.resource, "web", {"spec": {"count": 2}}, name)

    async def is_degraded() -> bool:
        told = (await api.get(SliceClaim.resource, "web", name))["status"]["conditions"]
        return any(each["type"] == reasons.DEGRADED and "spec.count 1 would fit" in each["message"] for each in told)

    await until(is_degraded, "the claim says what it lacks")
    await api.delete(Tenant.resource, name)

    async def is_free() -> bool:
        return await shared.parts(left) == {}

    await until(is_free, "no claim has a part", seconds=2 * SECONDS)
    await api.gone(Slice.resource, bound["status"]["slice"])

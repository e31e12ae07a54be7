"""Virtual control planes that sleep, on a real cluster with simulated nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.tasks import in_background
from tenantry.kube.watch import watch
from tenantry.local.cluster import LocalCluster
from tenantry.local.state import read_state
from testkit.api import CONFIG_MAPS, CRON_JOBS, JOBS, PODS, SECONDS, SECRETS, Api, until
from testkit.planes import Planes, awakened, ready, vcp, without_operator

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
PLANES = VirtualControlPlane.resource
SERVICES = Resource("", "v1", "services", "Service")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
QUOTA_OF_TENANT = {"cpu": "1", "memory": "1Gi", "pods": "10"}


async def made(planes: Planes, namespace: str, **sleep: object) -> Json:
    """Create the tenant and its control plane "web", and wait until it is ready."""
    await planes.host.make_tenant(namespace, quota={"hard": QUOTA_OF_TENANT})
    value = {"metadata": {"name": "web"}, "spec": {"sleep": {"afterIdleSeconds": 0, **sleep}}}
    await planes.host.create(PLANES, value, namespace)
    return await planes.ready(namespace, "web")


async def in_phase(planes: Planes, namespace: str, phase: PlanePhase, *, wakes: int) -> Json:
    """Wait until the control plane is in a phase, with or without its share, and return it."""
    seen: Json = {}

    async def so() -> Json | None:
        seen.update(await planes.host.get(PLANES, "web", namespace))
        status = seen["status"]
        is_settled = bool(status.get("charged")) == (phase is not PlanePhase.ASLEEP)
        is_there = (status.get("phase"), status.get("wakes", 0)) == (phase, wakes)
        return seen if is_there and is_settled else None

    return await until(so, f"the control plane is {phase}", seconds=3 * SECONDS, seen=lambda: seen.get("status"))


async def request(planes: Planes, namespace: str, phase: PlanePhase, number: int = 1) -> None:
    """Request a phase as the commands do."""
    value = {"metadata": {"annotations": {REQUESTED_PHASE: f"{phase} {number}"}}}
    await planes.host.patch(PLANES, "web", value, namespace)


def has_process(cluster: LocalCluster, namespace: str) -> bool:
    """Return whether the supervisor runs the control plane."""
    state = read_state(cluster.paths)
    return state is not None and state.component(f"hosted@{namespace}.web") is not None


async def deployed(inside: Api) -> None:
    """Create a Deployment with two pods, and wait until they run."""
    labels = {"app": "front"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await inside.create(DEPLOYMENTS, {"metadata": {"name": "front"}, "spec": spec}, "default")
    await running(inside, "default", 2)


async def running(api: Api, namespace: str, many: int, *, without: frozenset[str] = frozenset()) -> frozenset[str]:
    """Wait until so many pods run, none of them of the given uids, and return their uids."""
    seen: list[Json] = []

    async def so() -> frozenset[str] | None:
        seen[:] = await api.list(PODS, namespace)
        uids = frozenset(each["metadata"]["uid"] for each in seen)
        runs = all(each["status"].get("phase") == "Running" for each in seen)
        return (uids or frozenset({""})) if len(uids) == many and runs and not uids & without else None

    found = await until(so, f"{many} pods run", seconds=2 * SECONDS, seen=lambda: [each["status"] for each in seen])
    return found - {""}


async def share(planes: Planes, namespace: str, memory: str) -> None:
    """Wait until the tenant's namespace has so much memory of the quota."""

    async def so() -> bool:
        found = await planes.host.get(ResourceQuota.resource, QUOTA, namespace)
        return found["spec"]["hard"].get("requests.memory") == memory

    await until(so, f"the namespace has {memory}", seconds=2 * SECONDS)


async def test_a_control_plane_sleeps_while_its_pods_run(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H01: without clients, it has no process and no share, also with another operator; awake, it is as before."""
    found = await made(planes, name)
    assert found["status"]["phase"] == PlanePhase.AWAKE
    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, "default")
        await deployed(inside)
    pods = await running(planes.host, name, 2)
    # Not before: on a busy machine, the test itself may be idle for so long.
    await planes.host.patch(PLANES, "web", {"spec": {"sleep": {"afterIdleSeconds": 10}}}, name)
    asleep = await in_phase(planes, name, PlanePhase.ASLEEP, wakes=0)
    # The next client that connects is served: it is as good as ready.
    assert (ready(asleep)["status"], ready(asleep)["reason"]) == ("True", reasons.ASLEEP)
    # The tokens of its pods have to be renewed.
    assert asleep["status"]["nextWake"]
    assert not has_process(plane_cluster, name)
    await share(planes, name, "1Gi")
    assert await running(planes.host, name, 2) == pods
    async with without_operator(plane_cluster):
        pass
    # Any tenant that it serves after its start.
    await planes.host.make_tenant(f"{name}-o")
    still = await in_phase(planes, name, PlanePhase.ASLEEP, wakes=0)
    assert still["status"] == asleep["status"]
    # Its users find the address by which they wake it.
    secret = asleep["status"]["kubeconfigSecret"]
    before = await planes.host.get(SECRETS, secret, name)
    await planes.host.delete(SECRETS, secret, name)

    async def restored() -> Json | None:
        return await planes.host.find(SECRETS, secret, name)

    assert (await until(restored, "the kubeconfig is there again"))["data"] == before["data"]
    await in_phase(planes, name, PlanePhase.ASLEEP, wakes=0)
    assert not has_process(plane_cluster, name)
    code, _, output = await vcp(plane_cluster, "wake", "web", "-n", name)
    assert (code, "is awake" in output) == (0, True), output
    # On a busy machine, it may sleep again by now: the first connection wakes it, and an open watch keeps it awake.
    assert (await planes.host.get(PLANES, "web", name))["status"]["wakes"] == 1
    async with planes.entered(name, "web") as inside, in_background(_watch(inside, asyncio.Event())):
        await share(planes, name, "928Mi")
        assert (await inside.get(CONFIG_MAPS, "conf", "default"))["data"] == {"a": "1"}
        await running(inside, "default", 2)
        assert await running(planes.host, name, 2) == pods
    await planes.delete(name, "web")


@pytest.mark.long
async def test_a_pod_that_ends_wakes_its_control_plane(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: while an operator runs, and while none does; the ReplicaSet inside replaces the pod."""
    await made(planes, name)
    async with planes.entered(name, "web") as inside:
        await deployed(inside)
    for number in (1, 2):
        await running(planes.host, name, 2)
        await request(planes, name, PlanePhase.ASLEEP, number)
        await in_phase(planes, name, PlanePhase.ASLEEP, wakes=number - 1)
        ended = (await planes.host.list(PODS, name))[0]["metadata"]
        if number == 1:
            await planes.host.delete(PODS, ended["name"], name)
        else:
            async with without_operator(plane_cluster):
                await planes.host.delete(PODS, ended["name"], name)
        await in_phase(planes, name, PlanePhase.AWAKE, wakes=number)
        await running(planes.host, name, 2, without=frozenset({ended["uid"]}))


async def test_the_first_connection_wakes_it(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: the client is held, and gets its answer; a Tenant's control plane is as ready as before meanwhile."""
    await made(planes, name)
    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, "default")
        await request(planes, name, PlanePhase.ASLEEP)
        await in_phase(planes, name, PlanePhase.ASLEEP, wakes=0)
        assert not has_process(plane_cluster, name)
        found = await awakened(lambda: inside.get(CONFIG_MAPS, "conf", "default"))
        assert found["data"] == {"a": "1"}
    await in_phase(planes, name, PlanePhase.AWAKE, wakes=1)


async def test_the_first_request_may_need_the_host(planes: Planes, name: str) -> None:
    """H01: logs and the creation of a Service wait for the operator, which connects after the API server is ready."""
    await made(planes, name)
    async with planes.entered(name, "web") as inside:
        await deployed(inside)
        pod = (await inside.list(PODS, "default"))[0]["metadata"]["name"]

        async def logs() -> str:
            """Return the first answer that is not the endpoint proxy's: it holds clients for some seconds only."""
            while True:
                with pytest.raises(ApiError) as refused:
                    await inside.client.request("GET", f"/api/v1/namespaces/default/pods/{pod}/log", attempts=1)
                if "the control plane does not run yet" not in str(refused.value):
                    return str(refused.value)

        # No kubelet answers on simulated nodes: the error is the host's.
        of_host = await logs()
        assert "gate" not in of_host
        assert "is not a running pod" not in of_host
        await request(planes, name, PlanePhase.ASLEEP, 1)
        await in_phase(planes, name, PlanePhase.ASLEEP, wakes=0)
        assert await logs() == of_host
        await in_phase(planes, name, PlanePhase.AWAKE, wakes=1)
        await request(planes, name, PlanePhase.ASLEEP, 2)
        await in_phase(planes, name, PlanePhase.ASLEEP, wakes=1)
        service = {"metadata": {"name": "front"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "front"}}}
        created = await awakened(lambda: inside.create(SERVICES, service, "default"))
        assert created["spec"]["clusterIP"]


@pytest.mark.long
async def test_a_request_overrules_clients_and_ends_with_the_next_event(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H01: an open watch ends, and the command reports it; a CronJob that is due wakes it; a deletion does not."""
    found = await made(planes, name)
    async with planes.entered(name, "web") as inside:
        container = {"name": "c", "image": "busybox"}
        pod = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
        job = {"schedule": "* * * * *", "jobTemplate": pod}
        await inside.create(CRON_JOBS, {"metadata": {"name": "often"}, "spec": job}, "default")
        is_open = asyncio.Event()
        watching = asyncio.ensure_future(_watch(inside, is_open))
        try:
            await is_open.wait()
            code, _, output = await vcp(plane_cluster, "sleep", "web", "-n", name)
        finally:
            watching.cancel()
        assert (code, "is asleep: it sleeps by request" in output) == (0, True), output
        assert "1 open request or watch was ended" in output
    await in_phase(planes, name, PlanePhase.AWAKE, wakes=1)
    await request(planes, name, PlanePhase.ASLEEP)
    await in_phase(planes, name, PlanePhase.ASLEEP, wakes=1)
    folder = plane_cluster.paths.folder / "hosted" / found["metadata"]["uid"]
    assert (folder / "state.db").exists()
    await planes.delete(name, "web")
    assert not folder.exists()
    assert not has_process(plane_cluster, name)


@pytest.mark.long
async def test_a_job_that_is_done_is_deleted_in_time(planes: Planes, name: str) -> None:
    """H01: the end of ttlSecondsAfterFinished wakes its control plane."""
    await made(planes, name)
    async with planes.entered(name, "web") as inside:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}
        # Done as soon as it is there.
        job = {"completions": 0, "ttlSecondsAfterFinished": 60, "template": template}
        await inside.create(JOBS, {"metadata": {"name": "once"}, "spec": job}, "default")

        async def is_done() -> bool:
            found = await inside.find(JOBS, "once", "default")
            conditions: list[Json] = found["status"].get("conditions", []) if found is not None else []
            return any(each["type"] == "Complete" for each in conditions)

        await until(is_done, "the Job is done")
    await request(planes, name, PlanePhase.ASLEEP)
    await in_phase(planes, name, PlanePhase.AWAKE, wakes=1)
    async with planes.entered(name, "web") as inside:
        await inside.gone(JOBS, "once", "default")


async def _watch(inside: Api, is_open: asyncio.Event) -> None:
    # From no resourceVersion on: what exists comes first.
    async for _ in watch(inside.client, CONFIG_MAPS, resource_version=""):
        is_open.set()


@pytest.mark.long
async def test_it_wakes_only_with_its_share(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01, X03: others may have its share meanwhile, and it waits for room; its pods are deleted if so specified."""
    await made(planes, name, workloads="Delete")
    async with planes.entered(name, "web") as inside:
        await deployed(inside)
    before = await running(planes.host, name, 2)
    await request(planes, name, PlanePhase.ASLEEP)
    await in_phase(planes, name, PlanePhase.ASLEEP, wakes=0)
    await running(planes.host, name, 0)
    large = {"requests": {"memory": "960Mi"}, "limits": {"memory": "1Gi"}}
    other = {"metadata": {"name": "other"}, "spec": {"resources": large, "sleep": {"afterIdleSeconds": 0}}}
    await planes.host.create(PLANES, other, name)
    await planes.ready(name, "other")
    code, _, output = await vcp(plane_cluster, "wake", "web", "-n", name)
    assert (code, "cannot wake" in output) == (1, True), output
    assert "requests.memory" in output
    assert not has_process(plane_cluster, name)
    await planes.delete(name, "other")
    await in_phase(planes, name, PlanePhase.AWAKE, wakes=1)
    await running(planes.host, name, 2, without=before)

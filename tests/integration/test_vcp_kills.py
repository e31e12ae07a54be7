"""An operator that is killed after its first write, its second and so on, in each step of a control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tenantry.api.marks import REQUESTED_PHASE, SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.local.cluster import LocalCluster
from tenantry.local.state import read_state
from testkit.api import CONFIG_MAPS, PODS, ROLES, SECONDS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.faults import Fault, FaultyProxy, Rule
from testkit.operators import WRITES, Operator
from testkit.operators import running as operator_running
from testkit.planes import Planes, ready, without_operator

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
PLANES = VirtualControlPlane.resource
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
LEASE = "tenantry-operator"
SERVICES = Resource("", "v1", "services", "Service")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
KINDS = (PODS, SERVICES, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
MOST_LIVES = 40


class Mortal:
    """An operator that ends at a write of one tenant: the API server carries it out, and the answer is lost.

    Args:
        proxy: Between the operator and the API server.
        operator: The operator.
        host: Ends its lease, for which the next one would wait.
        tenant: The tenant, which is also the namespace of its objects.
    """

    def __init__(self, proxy: FaultyProxy, operator: Operator, host: Api, tenant: str) -> None:
        self._proxy = proxy
        self._host = host
        self._operator = operator
        # The tree of shares has its own tests (test_quota_chaos.py).
        self._path = rf"^(?!.*quotas).*/{tenant}(/|\?|$)"

    async def until(self, what: str, done: Callable[[], Awaitable[bool]]) -> int:
        """Kill the operator after one write, the next one after two, until something is so; return how many times."""
        for lives in range(MOST_LIVES):
            self._proxy.rules.clear()
            self._meet(Fault.DELAY, lives)
            last = self._meet(Fault.LOSE_ANSWER, 1)
            self._meet(Fault.REFUSE, 10_000)

            async def ended(last: Rule = last) -> str:
                return "killed" if last.hits else "done" if await done() else ""

            if await until(ended, f"{what}, or a write before", seconds=3 * SECONDS) == "done":
                self._proxy.rules.clear()
                return lives
            await self._operator.kill()
            await self._host.delete(LEASES, LEASE, SYSTEM_NAMESPACE)
            self._proxy.rules.clear()
            await self._operator.start()
        raise AssertionError(f"{what}: not after {MOST_LIVES} lives of the operator")

    def _meet(self, fault: Fault, times: int) -> Rule:
        return self._proxy.fail(Rule(fault=fault, method="|".join(WRITES), path=self._path, times=times))


@pytest.mark.long
async def test_it_comes_out_right_whenever_the_operator_is_killed(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H01, H02: created, filled, asleep, awake and deleted."""
    host = planes.host
    quota = {"hard": {"cpu": "1", "memory": "1Gi", "pods": "10"}}
    await host.make_tenant(name, quota=quota)
    before = await _names(planes, name)
    lives: dict[str, int] = {}

    async def is_ready() -> bool:
        return ready(await host.get(PLANES, "web", name)).get("status") == "True"

    async def in_phase(phase: PlanePhase) -> bool:
        status = (await host.get(PLANES, "web", name))["status"]
        return status["phase"] == phase and bool(status.get("charged")) == (phase is PlanePhase.AWAKE)

    async def gone() -> bool:
        return await host.find(PLANES, "web", name) is None

    async def request(phase: PlanePhase) -> None:
        await host.patch(PLANES, "web", {"metadata": {"annotations": {REQUESTED_PHASE: f"{phase} 1"}}}, name)

    async with (
        without_operator(plane_cluster),
        FaultyProxy(plane_cluster.paths.kubeconfig("operator")).running() as proxy,
        operator_running(
            proxy.kubeconfig(tmp_path / "operator"), tmp_path / "log", f"--hosted-in={plane_cluster.paths.folder}"
        ) as operator,
    ):
        mortal = Mortal(proxy, operator, host, name)
        value = {"metadata": {"name": "web"}, "spec": {"sleep": {"afterIdleSeconds": 0}}}
        await host.create(PLANES, value, name)
        lives["create"] = await mortal.until("the control plane is ready", is_ready)
        async with planes.entered(name, "web") as inside:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, "default")
            await inside.create(DEPLOYMENTS, _deployment(), "default")
            lives["fill"] = await mortal.until("two pods run", lambda: _run(inside, 2))
            pods = await _uids(host, name)
        assert len(pods) == 2
        await request(PlanePhase.ASLEEP)
        lives["sleep"] = await mortal.until("it sleeps", lambda: in_phase(PlanePhase.ASLEEP))
        assert await _uids(host, name) == pods
        await request(PlanePhase.AWAKE)
        lives["wake"] = await mortal.until("it is awake", lambda: in_phase(PlanePhase.AWAKE))
        await mortal.until("it is ready", is_ready)
        async with planes.entered(name, "web") as inside:
            assert (await inside.get(CONFIG_MAPS, "conf", "default"))["data"] == {"a": "1"}
            await until(lambda: _run(inside, 2), "the pods run", seconds=SECONDS)
        assert await _uids(host, name) == pods
        await host.delete(PLANES, "web", name)
        lives["delete"] = await mortal.until("it is gone", gone)
        assert "Traceback" not in operator.log.read_text()
    print(f"lives of the operator: {lives}")
    # Otherwise the faults met nothing.
    assert lives["create"] >= 5
    assert all(lives.values())

    after: dict[str, list[str]] = {}

    async def as_before() -> bool:
        after.update(await _names(planes, name))
        return after == before

    await until(as_before, f"the namespace is as before: {before}", seconds=2 * SECONDS, seen=lambda: after)
    state = read_state(plane_cluster.paths)
    assert state is not None
    assert state.component(f"hosted@{name}.web") is None


def _deployment() -> Json:
    labels = {"app": "front"}
    containers = [{"name": "c", "image": "busybox", "envFrom": [{"configMapRef": {"name": "conf"}}]}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "front"}, "spec": spec}


async def _run(inside: Api, many: int) -> bool:
    found = await inside.list(PODS, "default")
    return [each["status"].get("phase") for each in found] == ["Running"] * many


async def _uids(host: Api, namespace: str) -> set[str]:
    return {each["metadata"]["uid"] for each in await host.list(PODS, namespace)}


async def _names(planes: Planes, namespace: str) -> dict[str, list[str]]:
    found = await asyncio.gather(*(planes.names(kind, namespace) for kind in KINDS))
    return {kind.plural: names for kind, names in zip(KINDS, found, strict=True)}

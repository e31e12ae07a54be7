"""Virtual control planes of several processes, one of which is killed while clients write (H02)."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api.errors import ApiError, Conflict, Invalid
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.local.control import SupervisorRequest, Verb, order
from tenantry.local.state import ComponentState, Phase, read_state
from testkit.api import CONFIG_MAPS, SECONDS, Api, until
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
KIND = VirtualControlPlane.resource
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")


def component(cluster: LocalCluster, name: str) -> ComponentState | None:
    """Return what the supervisor reports of a component."""
    state = read_state(cluster.paths)
    return state.component(name) if state is not None else None


async def written(inside: Api, name: str) -> None:
    """Create an object as a client that tries again."""

    async def so() -> bool:
        try:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")
        except Conflict:
            # The answer to the first try was lost with its process.
            return True
        except ApiError:
            return False
        return True

    await until(so, f"{name} is written")


async def obey(cluster: LocalCluster, verb: Verb, name: str) -> None:
    """Have the supervisor stop or start a component."""
    await order(cluster.paths.socket, SupervisorRequest(verb=verb, component=name), SECONDS)


async def test_one_of_two_processes_may_end_at_any_moment(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H02: writes go on at the other one and none is lost, and so do the controllers after their lease."""
    await planes.host.make_tenant(name)
    spec = {"replicas": 2, "datastore": {"kind": "SharedEtcd"}}
    await planes.host.create(KIND, {"metadata": {"name": "web"}, "spec": spec}, name)
    made = await planes.ready(name, "web")
    assert made["status"]["charged"]["requests.cpu"] == "100m"
    names = (f"hosted@{name}.web", f"hosted@{name}.web.2")

    async def both_run() -> bool:
        found = [component(plane_cluster, each) for each in names]
        return all(each is not None and each.phase is Phase.READY for each in found)

    await until(both_run, "both processes are ready", seconds=3 * SECONDS)
    async with planes.entered(name, "web") as inside:

        async def holder() -> str:
            found = await inside.find(LEASES, "kube-controller-manager", "kube-system")
            return found["spec"].get("holderIdentity", "") if found is not None else ""

        before = await until(holder, "the controllers of one have the lease", seconds=2 * SECONDS)
        for index in range(2):
            # Both in turn: whichever has the lease is one of them.
            await until(both_run, "both processes are ready", seconds=3 * SECONDS)
            killed = component(plane_cluster, names[index])
            assert killed is not None
            for number in range(40):
                if number == 10:
                    os.kill(killed.pid, signal.SIGKILL)
                await written(inside, f"write-{index}-{number}")
        # One that does not come back for now is not waited for.
        await obey(plane_cluster, "stop", names[1])
        try:
            await written(inside, "alone")
        finally:
            await obey(plane_cluster, "start", names[1])
        wanted = {"alone", *(f"write-{index}-{number}" for index in range(2) for number in range(40))}
        found = {each["metadata"]["name"] for each in await inside.list(CONFIG_MAPS, "default")}
        assert wanted <= found

        async def moved() -> bool:
            return await holder() not in ("", before)

        await until(moved, "the other one has the lease", seconds=3 * SECONDS)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
        deployment = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        await inside.create(DEPLOYMENTS, {"metadata": {"name": "go-on"}, "spec": deployment}, "default")

        async def made_one() -> bool:
            return bool(await inside.list(REPLICA_SETS, "default"))

        await until(made_one, "the controllers go on", seconds=2 * SECONDS)


async def test_clients_of_each_process_are_named_while_credentials_are_replaced(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H02, H04: a client with a certificate of before that only the second process knows."""
    await planes.host.make_tenant(name)
    spec = {"replicas": 2, "datastore": {"kind": "SharedEtcd"}}
    await planes.host.create(KIND, {"metadata": {"name": "web"}, "spec": spec}, name)
    await planes.ready(name, "web")
    async with planes.entered(name, "web"):
        former = kubeconfig.load([planes.kubeconfig(name, "web")])
    rotated = {"request": "Gradual@1", "lastPhase": "Issuing"}
    await planes.host.patch(KIND, "web", {"spec": {"rotation": rotated}}, name)

    async def credentials() -> Json:
        return (await planes.host.get(KIND, "web", name))["status"].get("credentials", {})

    async def is_issued() -> bool:
        return bool((await credentials()).get("issued"))

    await until(is_issued, "the phase Issuing is in force", seconds=3 * SECONDS)
    second = component(plane_cluster, f"hosted@{name}.web.2")
    assert second is not None
    server = f"https://127.0.0.1:{second.port}"
    async with Client(replace(former, server=server)) as client:

        async def named() -> list[str]:
            await Api(client).list(CONFIG_MAPS, "default")
            return [each["user"] for each in (await credentials()).get("formerClients", [])]

        uid = (await planes.host.get(KIND, "web", name))["metadata"]["uid"]
        assert await until(named, "the client is named", seconds=3 * SECONDS) == [f"tenantry:owner:{uid}"]


async def test_several_processes_need_a_datastore_that_they_can_share(planes: Planes, name: str) -> None:
    """H02: SQLite is in one process."""
    await planes.host.make_tenant(name)
    for datastore in ({}, {"datastore": {"kind": "SQLite"}}):
        body = {"metadata": {"name": "web"}, "spec": {"replicas": 2, **datastore}}
        with pytest.raises(Invalid, match=r"spec.replicas: .*must be 1, unless"):
            await planes.host.create(KIND, body, name)


@pytest.mark.long
async def test_the_number_of_processes_changes(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H02, VCP-38: objects stay, and each process is charged."""
    await planes.host.make_tenant(name)
    spec = {"datastore": {"kind": "SharedEtcd"}}
    await planes.host.create(KIND, {"metadata": {"name": "web"}, "spec": spec}, name)
    await planes.ready(name, "web")
    async with planes.entered(name, "web") as inside:
        for number in (2, 1):
            await planes.host.patch(KIND, "web", {"spec": {"replicas": number}}, name)

            async def runs(number: int = number) -> bool:
                found = component(plane_cluster, f"hosted@{name}.web.2")
                charged = (await planes.host.get(KIND, "web", name))["status"].get("charged", {})
                is_running = found is not None and found.phase is Phase.READY
                return is_running == (number == 2) and charged.get("requests.cpu") == f"{50 * number}m"

            await until(runs, f"there are {number}", seconds=3 * SECONDS)
            await planes.ready(name, "web")
            await written(inside, f"with-{number}")
        found = {each["metadata"]["name"] for each in await inside.list(CONFIG_MAPS, "default")}
        assert {"with-1", "with-2"} <= found

"""Snapshots of virtual control planes on a real cluster with simulated nodes: taken, restored, refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api.errors import Conflict, Invalid
from tenantry.api.virtualcontrolplane import PREFIX, VirtualControlPlane
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.mirror.kinds import services
from testkit.api import CONFIG_MAPS, PODS, SECONDS, Api, until
from testkit.planes import Planes, ready, vcp

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
CONTAINER: Json = {"name": "c", "image": "busybox"}
MOST_WRITES = 100_000
MOST_LOG_BYTES = 16 * 2**20


async def done(cluster: LocalCluster, *arguments: str) -> str:
    """Run `tenantry vcp`, which must succeed, and return what it printed."""
    code, out, err = await vcp(cluster, *arguments)
    assert code == 0, err
    return out


@asynccontextmanager
async def writing(inside: Api) -> AsyncGenerator[None]:
    """Objects are created all the time."""

    async def write() -> None:
        for number in range(MOST_WRITES):
            await inside.create(CONFIG_MAPS, {"metadata": {"name": f"noise-{number}"}}, "default")

    task = asyncio.create_task(write())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def runs(inside: Api, *names: str) -> None:
    """Create pods, and wait until they run."""
    for name in names:
        await inside.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [CONTAINER]}}, "default")
    await until(lambda: are_running(inside, set(names)), "the pods run", seconds=2 * SECONDS)


async def are_running(inside: Api, names: set[str]) -> bool:
    """Return whether pods run."""
    found = {each["metadata"]["name"]: each["status"].get("phase") for each in await inside.list(PODS, "default")}
    return all(found.get(name) == "Running" for name in names)


async def mirrored(planes: Planes, namespace: str) -> dict[str, str]:
    """Return the uids of the host's pods by the names inside."""
    found = await planes.host.list(PODS, namespace)
    return {each["metadata"]["annotations"][f"{PREFIX}/name"]: each["metadata"]["uid"] for each in found}


async def test_a_restore_brings_back_what_was_there(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H02, X11: objects are back at later revisions; pods that were there run on, and later ones end."""
    await planes.host.make_tenant(name)
    made = await planes.create(name, "web")
    uid = made["metadata"]["uid"]
    copy = tmp_path / "web.snapshot"
    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": {"a": "1"}}, "default")
        await runs(inside, "stays")
        before = await mirrored(planes, name)
        async with writing(inside):
            taken = await done(plane_cluster, "snapshot", "web", "-n", name, "--to", str(copy))
        status = (await planes.host.get(VirtualControlPlane.resource, "web", name))["status"]
        assert [each["name"] for each in status["snapshots"]] == [taken]
        file = plane_cluster.paths.folder / "hosted-snapshots" / uid / taken
        assert file.read_bytes() == copy.read_bytes()
        assert {each.stat().st_mode & 0o777 for each in (file, copy)} == {0o600}
        assert file.parent.stat().st_mode & 0o777 == 0o700
        await inside.delete(CONFIG_MAPS, "kept", "default")
        await runs(inside, "later")
        last = await inside.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default")

        # A file that is cut short changes nothing.
        short = tmp_path / "short.snapshot"
        short.write_bytes(copy.read_bytes()[:-20])
        since = ready(await planes.ready(name, "web"))["lastTransitionTime"]
        refusals = {str(short): "cut short", "NOSUCH.snapshot": "is not the name", taken.replace("Z-", "Z-9"): "is no "}
        for wrong, words in refusals.items():
            code, _, err = await vcp(plane_cluster, "restore", "web", "-n", name, "--from", wrong, "--yes")
            assert code != 0
            assert words in err
            # It did not become False meanwhile.
            assert ready(await planes.ready(name, "web"))["lastTransitionTime"] == since
        assert await inside.find(CONFIG_MAPS, "lost", "default") is not None

        await done(plane_cluster, "restore", "web", "-n", name, "--from", taken, "--yes")
        back = await inside.get(CONFIG_MAPS, "kept", "default")
        assert back["data"] == {"a": "1"}
        assert int(back["metadata"]["resourceVersion"]) > int(last["metadata"]["resourceVersion"])
        assert await inside.find(CONFIG_MAPS, "lost", "default") is None
        noise = [each for each in await inside.list(CONFIG_MAPS, "default") if "noise" in each["metadata"]["name"]]
        assert sorted(int(each["metadata"]["name"].removeprefix("noise-")) for each in noise) == [*range(len(noise))]
        # A client that updates what it read before is refused.
        stale = {"metadata": {"name": "kept", "resourceVersion": last["metadata"]["resourceVersion"]}}
        with pytest.raises(Conflict):
            await inside.patch(CONFIG_MAPS, "kept", stale, "default")

        async def are_old() -> bool:
            return await mirrored(planes, name) == before

        await until(are_old, "the later pod is gone, and the other one is the same", seconds=2 * SECONDS)
        assert await are_running(inside, {"stays"})
        await runs(inside, "new")
        assert (await mirrored(planes, name))["stays"] == before["stays"]
    await planes.delete(name, "web")
    assert not file.parent.exists()


@pytest.mark.long
async def test_a_file_restores_into_another_control_plane(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H02, X11: after a disaster, with the credentials of the new one; by its name, a snapshot is only its own."""
    await planes.host.make_tenant(name)
    first = await planes.create(name, "first")
    second = await planes.create(name, "second")
    copy = tmp_path / "first.snapshot"
    async with planes.entered(name, "first") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, "default")
    taken = await done(plane_cluster, "snapshot", "first", "-n", name, "--to", str(copy))
    # What an owner can name.
    folder = plane_cluster.paths.folder / "hosted-snapshots"
    named = {taken: "there is no snapshot", f"../{first['metadata']['uid']}/{taken}"[:64]: "is not the name"}
    for wanted, words in named.items():
        async with Client(replace(planes.host.client.connection, impersonate="alice")) as client:
            asked = {"spec": {"snapshots": {"restore": wanted}}}
            await Api(client).patch(VirtualControlPlane.resource, "second", asked, name)
        seen: Json = {}

        async def refused(wanted: str = wanted, seen: Json = seen) -> bool:
            seen.update(await planes.host.get(VirtualControlPlane.resource, "second", name))
            return bool(seen["status"].get("lastRestore", {}).get("requested") == wanted)

        await until(refused, "the restore is refused", seconds=2 * SECONDS)
        assert words in seen["status"]["lastRestore"]["message"]
    # The file of another one, under a name of its own.
    stolen = folder / second["metadata"]["uid"] / taken
    stolen.parent.mkdir(mode=0o700, exist_ok=True)
    stolen.write_bytes(copy.read_bytes())
    code, _, err = await vcp(plane_cluster, "restore", "second", "-n", name, "--from", taken, "--yes")
    assert code != 0
    assert "of another control plane" in err
    await planes.delete(name, "first")
    await done(plane_cluster, "restore", "second", "-n", name, "--from", str(copy), "--yes")
    async with planes.entered(name, "second") as inside:
        assert await inside.find(CONFIG_MAPS, "kept", "default") is not None
        await runs(inside, "new")
    assert [each.name for each in stolen.parent.iterdir() if each.name.startswith("given")] == []


@pytest.mark.long
async def test_services_of_another_control_plane_get_addresses_of_their_own(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H02, X01: the original keeps its address and its ports; pods find the Service of their own control plane."""
    await planes.host.make_tenant(name, rules={"services": {"types": ["ClusterIP", "NodePort"]}})
    await planes.create(name, "first")
    await planes.create(name, "second")
    copy = tmp_path / "first.snapshot"
    ports: list[Json] = [{"port": 80}]
    made: dict[str, Json] = {
        "front": {"ports": ports, "selector": {"app": "front"}},
        "quiet": {"ports": ports, "clusterIP": "None", "selector": {"app": "front"}},
        "outer": {"ports": ports, "type": "NodePort", "externalTrafficPolicy": "Local"},
    }
    async with planes.entered(name, "first") as inside:
        before = {
            each: await inside.create(services.RESOURCE, {"metadata": {"name": each}, "spec": spec}, "default")
            for each, spec in made.items()
        }
        taken = await done(plane_cluster, "snapshot", "first", "-n", name, "--to", str(copy))
    await done(plane_cluster, "restore", "second", "-n", name, "--from", str(copy), "--yes")
    async with planes.entered(name, "second") as inside:
        # At once: it must not get the variables of before.
        await inside.create(PODS, {"metadata": {"name": "new"}, "spec": {"containers": [CONTAINER]}}, "default")
        seen: dict[str, Json] = {}

        async def own() -> bool:
            host = {
                (mark[f"{PREFIX}/name"], each["metadata"]["labels"][f"{PREFIX}/owner"]): each["spec"]
                for each in await planes.host.list(services.RESOURCE, name)
                if f"{PREFIX}/name" in (mark := each["metadata"].get("annotations", {}))
            }
            seen.update({each: await inside.get(services.RESOURCE, each, "default") for each in made})
            owner = (await planes.host.get(VirtualControlPlane.resource, "second", name))["metadata"]["uid"]
            return all(
                (lower := host.get((each, owner))) is not None
                # On its way to another address, a Service has none.
                and seen[each]["spec"].get("clusterIPs") == lower["clusterIPs"]
                and seen[each]["spec"]["type"] == lower["type"] == before[each]["spec"]["type"]
                for each in made
            )

        await until(own, "each Service has the address of its own", seconds=2 * SECONDS, seen=lambda: seen)
        for each in ("front", "outer"):
            assert seen[each]["spec"]["clusterIP"] != before[each]["spec"]["clusterIP"]
            assert seen[each]["metadata"]["uid"] == before[each]["metadata"]["uid"]
        assert seen["quiet"]["spec"]["clusterIP"] == "None"
        assert seen["outer"]["spec"]["externalTrafficPolicy"] == "Local"
        assert seen["outer"]["spec"]["ports"][0]["nodePort"] != before["outer"]["spec"]["ports"][0]["nodePort"]
        assert not any("annotations" in each["metadata"] for each in seen.values())

        async def variables() -> dict[str, str]:
            owner = (await planes.host.get(VirtualControlPlane.resource, "second", name))["metadata"]["uid"]
            return {
                each["name"]: each["value"]
                for pod in await planes.host.list(PODS, name)
                if pod["metadata"]["labels"].get(f"{PREFIX}/owner") == owner
                for each in pod["spec"]["containers"][0].get("env", ())
                if "value" in each
            }

        found = await until(variables, "the pod is mirrored", seconds=2 * SECONDS)
        assert found["FRONT_SERVICE_HOST"] == seen["front"]["spec"]["clusterIP"]
    # The address of one that was deleted since, and is another client's by now.
    async with planes.entered(name, "first") as inside:
        await inside.delete(services.RESOURCE, "front", "default")
        spec: Json = {"ports": ports, "clusterIP": before["front"]["spec"]["clusterIP"]}

        async def has_taken() -> bool:
            with suppress(Invalid):
                await planes.host.create(services.RESOURCE, {"metadata": {"name": "thief"}, "spec": spec}, name)
                return True
            return False

        await until(has_taken, "another Service has the address", seconds=2 * SECONDS)
    await done(plane_cluster, "restore", "first", "-n", name, "--from", taken, "--yes")
    async with planes.entered(name, "first") as inside:

        async def replaced() -> bool:
            found = (await inside.get(services.RESOURCE, "front", "default"))["spec"]
            return found["type"] == "ClusterIP" and found["clusterIP"] != spec["clusterIP"]

        await until(replaced, "the Service has another address", seconds=2 * SECONDS)
        kept = (await inside.get(services.RESOURCE, "outer", "default"))["spec"]
        assert kept == before["outer"]["spec"]


@pytest.mark.long
async def test_one_that_sleeps_has_snapshots(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01, H02: its schedule does not wake it, a request and a restore do; a client that waits for it is served."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    seen: Json = {}

    async def phase(wanted: str, *, wakes: int, snapshots: int) -> None:
        async def so() -> bool:
            seen.update((await planes.host.get(VirtualControlPlane.resource, "web", name))["status"])
            found = (seen["phase"], seen.get("wakes", 0), len(seen.get("snapshots", ())))
            return found == (wanted, wakes, snapshots) and bool(seen.get("charged")) == (wanted != "Asleep")

        await until(so, f"it is {wanted} with {snapshots} snapshots", seconds=3 * SECONDS, seen=lambda: seen)

    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, "default")
        spec = {"snapshots": {"schedule": "* * * * *"}, "sleep": {"afterIdleSeconds": 0}}
        await planes.host.patch(VirtualControlPlane.resource, "web", {"spec": spec}, name)
        await done(plane_cluster, "sleep", "web", "-n", name)
        taken = len((await planes.host.get(VirtualControlPlane.resource, "web", name))["status"].get("snapshots", ()))
        await phase("Asleep", wakes=0, snapshots=taken + 1)
        assert not seen["lastSnapshot"].get("message")
        first = seen["lastSnapshot"]["snapshot"]
        spec = {"snapshots": {"schedule": ""}}
        await planes.host.patch(VirtualControlPlane.resource, "web", {"spec": spec}, name)
        await phase("Awake", wakes=1, snapshots=taken + 1)
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default")
        for number, command in enumerate((("snapshot",), ("restore", "--from", first, "--yes")), 1):
            await done(plane_cluster, "sleep", "web", "-n", name)
            await done(plane_cluster, command[0], "web", "-n", name, *command[1:])
            await phase("Awake", wakes=number + 1, snapshots=taken + 2)
        assert await inside.find(CONFIG_MAPS, "kept", "default") is not None
        assert await inside.find(CONFIG_MAPS, "lost", "default") is None


async def test_only_as_many_snapshots_as_wanted_are_kept(planes: Planes, name: str) -> None:
    """H02: as an owner requests them; the oldest is deleted, and a schedule that never comes is reported."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    host = planes.host
    spec = {"snapshots": {"keep": 1, "schedule": "0 0 30 2 *"}}
    await host.patch(VirtualControlPlane.resource, "web", {"spec": spec}, name)
    seen: Json = {}

    async def told() -> bool:
        seen.update((await host.get(VirtualControlPlane.resource, "web", name)).get("status", {}))
        return any(each["type"] == "Stalled" and "never comes" in each["message"] for each in seen["conditions"])

    await until(told, "the schedule is refused", seconds=2 * SECONDS, seen=lambda: seen)
    names: list[str] = []
    for number in range(2):
        async with Client(replace(host.client.connection, impersonate="alice")) as client:
            asked = {"spec": {"snapshots": {"request": f"time-{number}"}}}
            await Api(client).patch(VirtualControlPlane.resource, "web", asked, name)

        async def taken(wanted: str = f"time-{number}") -> bool:
            seen.update((await host.get(VirtualControlPlane.resource, "web", name))["status"])
            return bool(seen.get("lastSnapshot", {}).get("requested") == wanted)

        await until(taken, "the snapshot is taken", seconds=2 * SECONDS, seen=lambda: seen)
        names.append(seen["lastSnapshot"]["snapshot"])
        assert [each["name"] for each in seen["snapshots"]] == names[-1:]
        async with planes.entered(name, "web") as inside:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": f"more-{number}"}}, "default")
    assert names[0] != names[1]


@pytest.mark.long
async def test_updates_of_one_object_do_not_fill_the_disk(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """VCP-26: the log of the database begins anew while the process runs."""
    await planes.host.make_tenant(name)
    uid = (await planes.create(name, "web"))["metadata"]["uid"]
    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "large"}}, "default")
        for number in range(150):
            value = {"data": {"a": f"{number}" + "x" * 200_000}}
            await inside.patch(CONFIG_MAPS, "large", value, "default")
    # 60 MB were written: each row has the value before, too.
    log = plane_cluster.paths.folder / "hosted" / uid / "state.db-wal"
    assert 0 < log.stat().st_size < MOST_LOG_BYTES

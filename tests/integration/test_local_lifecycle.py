"""A cluster that is stopped, killed and recovered: one for all of these tests, since each leaves it whole again."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError, LocalError
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import components, process
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.clusters import list_clusters
from tenantry.local.state import ClusterState, ComponentState, Phase, write_state
from testkit.api import SECONDS, until

THROWAWAY = UpOptions(throwaway=True, timeout_seconds=2 * SECONDS)
TENANTRY = (sys.executable, "-m", "tenantry")


@pytest_asyncio.fixture(scope="module")
async def breakable(tenantry_home: Path) -> AsyncIterator[LocalCluster]:
    """A cluster that tests may break."""
    cluster = LocalCluster("own", root=tenantry_home)
    await cluster.up(THROWAWAY)
    yield cluster
    await cluster.down(purge=True)


@pytest_asyncio.fixture
async def own(breakable: LocalCluster) -> LocalCluster:
    """That cluster, running and whole."""
    await breakable.up(THROWAWAY)
    await breakable.wait_ready(timeout_seconds=SECONDS)
    return breakable


def is_alive(component: ComponentState) -> bool:
    return process.is_same(component.pid, component.start_ticks)


def running(state: ClusterState) -> list[ComponentState]:
    return [each for each in state.components if each.pid]


async def make_config_map(cluster: LocalCluster, name: str) -> None:
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        await client.request("POST", "/api/v1/namespaces/default/configmaps", body=body)


def has_config_map(cluster: LocalCluster, name: str) -> bool:
    return cluster.kubectl("get", "configmap", name).returncode == 0


async def answers(cluster: LocalCluster) -> None:
    """Wait until kubectl is told that the API server is ready: it is not while etcd takes seconds for an answer."""

    async def so() -> bool:
        return cluster.kubectl("get", "--raw", "/readyz").stdout == "ok"

    await until(so, f"the API server of {cluster.name} is ready")


def ended_without(component: ComponentState, victim: str) -> bool:
    """Return whether a component is the victim, or ended by itself because the victim was away.

    kube-controller-manager is healthy before it has reached the API server, and exits with code 1 if that takes more
    than ten seconds. On a busy machine, the killed API server or etcd may need longer to start.
    """
    needs = {components.CONTROLLER_MANAGER: {components.ETCD, components.APISERVER}}.get(component.name, set())
    exit_ = component.last_exit
    return component.name == victim or (victim in needs and exit_ is not None and exit_.code == 1)


@pytest.mark.parametrize("victim", [*components.CONTROL_PLANE, components.KWOK])
async def test_a_crashed_component_is_reported_and_started_again(own: LocalCluster, victim: str) -> None:
    """Noticed, reported with the end of its log, restarted; the others stay."""
    await own.start_component(victim, timeout_seconds=SECONDS)
    before = await own.wait_ready()
    dead = before.component(victim)
    assert dead is not None
    assert process.kill_if_same(dead.pid, dead.start_ticks)
    after = await own.wait_for(lambda state: has_come_back(state, victim, dead.pid), timeout_seconds=SECONDS)
    found = after.component(victim)
    assert found is not None
    assert found.restarts == dead.restarts + 1
    assert found.last_exit is not None
    assert found.last_exit.signal == "SIGKILL"
    assert found.last_exit.lines
    pids = {each.name: each.pid for each in before.components}
    assert [each for each in after.components if each.pid != pids[each.name] and not ended_without(each, victim)] == []
    told = status(own).stdout
    assert "killed by SIGKILL" in told
    assert f"last lines of {victim}" in told


def status(cluster: LocalCluster) -> subprocess.CompletedProcess[str]:
    """Run `tenantry status --local` for one cluster."""
    command = [*TENANTRY, "status", "--local", "--cluster", cluster.name]
    variables = os.environ | {"TENANTRY_HOME": str(cluster.root)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, env=variables)


async def test_a_component_that_hangs_is_not_shown_as_ready(own: LocalCluster) -> None:
    """A stopped process has not ended, so only its health endpoint shows it."""
    await own.start_component(components.KWOK, timeout_seconds=SECONDS)
    found = own.status().component(components.KWOK)
    assert found is not None
    os.kill(found.pid, signal.SIGSTOP)
    try:
        said = status(own)
    finally:
        os.kill(found.pid, signal.SIGCONT)
    assert said.returncode == LocalError.exit_code
    assert f'cluster "{own.name}": Degraded' in said.stdout
    assert "NotReady" in next(line for line in said.stdout.splitlines() if line.strip().startswith(components.KWOK))

    async def is_ready() -> bool:
        return status(own).returncode == 0

    await until(is_ready, "it answers in time again")


def has_come_back(state: ClusterState, name: str, old_pid: int) -> bool:
    found = state.component(name)
    return state.phase is Phase.READY and found is not None and found.pid not in (0, old_pid)


async def test_a_killed_supervisor_leaves_nothing_and_up_recovers(own: LocalCluster) -> None:
    await make_config_map(own, "kept")
    before = await own.wait_ready()
    assert process.kill_if_same(before.supervisor_pid, before.supervisor_ticks)
    for each in running(before):
        await process.wait_gone(each.pid, each.start_ticks, SECONDS)
    assert not any(is_alive(each) for each in before.components)
    assert own.status().phase is Phase.KILLED
    result = await own.up(THROWAWAY)
    assert not result.was_running
    assert has_config_map(own, "kept")


@pytest.mark.long
async def test_two_clusters_started_at_once_do_not_meet(tenantry_home: Path, tmp_path: Path) -> None:
    clusters = [LocalCluster("left", root=tenantry_home), LocalCluster("right", root=tmp_path / "other-home")]
    async with asyncio.TaskGroup() as group:
        for cluster in clusters:
            group.create_task(cluster.up(THROWAWAY))
    left, right = clusters
    assert not set(msgspec.structs.astuple(left.spec().ports)) & set(msgspec.structs.astuple(right.spec().ports))
    await make_config_map(left, "only-left")
    assert has_config_map(left, "only-left")
    assert not has_config_map(right, "only-left")
    async with Client(kubeconfig.load([left.kubeconfig_path])) as client:
        assert b"only-left" in await client.request("GET", "/api/v1/configmaps")
    states = [cluster.status() for cluster in clusters]
    assert left.name in [cluster.name for cluster in list_clusters()]
    async with asyncio.TaskGroup() as group:
        for cluster in clusters:
            group.create_task(cluster.down(purge=True))
    assert not any(is_alive(each) for state in states for each in state.components)
    assert not any(cluster.paths.folder.exists() for cluster in clusters)


async def test_down_leaves_no_process_and_keeps_data_and_ports(own: LocalCluster) -> None:
    await make_config_map(own, "kept-too")
    before, ports = await own.wait_ready(), own.spec().ports
    assert await own.down()
    assert not any(is_alive(each) for each in before.components)
    # The kernel drops its lock, for which `down` waits, a moment before it is gone.
    await process.wait_gone(before.supervisor_pid, before.supervisor_ticks, SECONDS)
    assert not own.is_running()
    assert own.status().phase is Phase.STOPPED
    assert not await own.down()
    await own.up(THROWAWAY)
    assert own.spec().ports == ports
    assert has_config_map(own, "kept-too")


async def test_a_stale_state_with_reused_pids_harms_no_process(own: LocalCluster) -> None:
    await own.down()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        ticks = process.start_ticks(stranger.pid)
        stale = ClusterState(
            name=own.name,
            boot_id=process.boot_id(),
            supervisor_pid=stranger.pid,
            supervisor_ticks=ticks + 1,
            phase=Phase.READY,
            components=(
                ComponentState(name="etcd", phase=Phase.READY, pid=stranger.pid, start_ticks=ticks - 1),
                # Even the right ticks mean nothing after another boot; in this one they are the process.
                ComponentState(name="kwok", phase=Phase.READY, pid=1, start_ticks=1),
            ),
        )
        write_state(own.paths, stale)
        assert own.status().phase is Phase.KILLED
        await own.up(THROWAWAY)
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.long
@pytest.mark.parametrize("text", ["", '{"name":', "\0"])
async def test_a_half_written_state_is_recovered_from(own: LocalCluster, text: str) -> None:
    await own.down()
    own.paths.state.write_text(text)
    assert own.status().phase is Phase.STOPPED
    await own.up(THROWAWAY)
    assert own.status().phase is Phase.READY


async def test_a_hanging_supervisor_is_ended_by_down(own: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenantry.local.cluster._ORDER_SECONDS", 0.5)
    monkeypatch.setattr("tenantry.local.cluster._DOWN_SECONDS", 2.0)
    before = await own.wait_ready()
    os.kill(before.supervisor_pid, signal.SIGSTOP)
    assert await own.down()
    for each in running(before):
        await process.wait_gone(each.pid, each.start_ticks, SECONDS)
    assert not own.is_running()


async def test_a_cluster_that_lives_with_a_process_ends_with_it(
    tenantry_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster("mortal", root=tenantry_home)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        monkeypatch.setenv("TENANTRY_LIVES_WITH", str(other.pid))
        await cluster.up(THROWAWAY)
        before = await cluster.wait_ready()
        other.kill()
        # Those who do not end when they are told to have 12 s before they are killed.
        await process.wait_gone(before.supervisor_pid, before.supervisor_ticks, SECONDS)
    assert not any(is_alive(each) for each in before.components)
    assert cluster.status().phase is Phase.STOPPED
    await cluster.down(purge=True)


async def test_a_taken_port_is_replaced(own: LocalCluster) -> None:
    await own.down()
    taken = own.spec().ports.apiserver
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", taken)
    async with server:
        await own.up(THROWAWAY)
        assert own.spec().ports.apiserver != taken
        assert own.kubectl("get", "namespaces").returncode == 0


async def test_a_component_that_cannot_start_fails_up_with_its_last_words(tenantry_home: Path) -> None:
    cluster = LocalCluster("broken", root=tenantry_home)
    await cluster.up(THROWAWAY)
    await cluster.down()
    (cluster.paths.etcd / "member" / "snap" / "db").write_bytes(b"\xff" * 65536)
    with pytest.raises(LocalError, match=r"etcd of the cluster \"broken\" crashed"):
        # It is given up after the fourth crash, unless that comes too late.
        await cluster.up(UpOptions(throwaway=True, timeout_seconds=3 * SECONDS))
    assert not cluster.is_running(), "a failed start leaves nothing behind"
    await cluster.down(purge=True)


async def test_a_component_is_stopped_and_started_on_request(own: LocalCluster) -> None:
    await own.stop_component(components.SCHEDULER)
    stopped = own.status()
    found = stopped.component(components.SCHEDULER)
    assert found is not None
    assert (found.phase, stopped.phase) == (Phase.STOPPED, Phase.DEGRADED)
    await own.start_component(components.SCHEDULER, timeout_seconds=SECONDS)
    assert own.status().phase is Phase.READY
    await own.restart_component(components.APISERVER, timeout_seconds=SECONDS)
    await answers(own)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_a_full_disk_is_said_before_anything_starts(tenantry_home: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
    cluster = LocalCluster("full", root=tenantry_home)
    try:
        with pytest.raises(LocalError, match=r"MiB free and 256 MiB are needed"):
            await cluster.up(UpOptions(data=disk / "full", throwaway=True))
        (disk / "filler").write_bytes(b"x" * 3 * 2**20)
        assert not cluster.is_running()
        await cluster.down(purge=True)
    finally:
        subprocess.run(["/bin/umount", disk], check=True)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_a_disk_that_fills_up_is_shown_and_space_is_enough_to_recover(
    tenantry_home: Path, tmp_path: Path
) -> None:
    """Without another command: the supervisor starts again what the full disk ended."""
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", disk], check=True)
    cluster, filler = LocalCluster("filled", root=tenantry_home), disk / "filler"
    try:
        await cluster.up(UpOptions(data=disk / "filled", throwaway=True, timeout_seconds=2 * SECONDS))
        fill(filler)
        # Until etcd has nowhere to write: its present files have some room left.
        await until(lambda: is_refused(cluster), "etcd has ended")
        said = status(cluster)
        assert said.returncode == LocalError.exit_code
        assert "is full: free some space" in said.stdout
        assert "etcd" in said.stdout
        filler.unlink()
        await cluster.wait_ready(timeout_seconds=SECONDS)
        await answers(cluster)
        await make_config_map(cluster, "after")
        assert "is full" not in status(cluster).stdout
    finally:
        await cluster.down(purge=True)
        subprocess.run(["/bin/umount", disk], check=True)


def fill(file: Path) -> None:
    """Write a file until its disk is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 2**16)


async def is_refused(cluster: LocalCluster) -> bool:
    """Write a large object, and return whether etcd has ended since its start."""
    body = msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"generateName": "large-"},
            "data": {"text": "x" * 900_000},
        }
    )
    with contextlib.suppress(ApiError):
        async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
            await client.request("POST", "/api/v1/namespaces/default/configmaps", body=body)
    etcd = cluster.status().component(components.ETCD)
    return etcd is not None and etcd.last_exit is not None


async def test_data_elsewhere_lives_there(tenantry_home: Path, tmp_path: Path) -> None:
    cluster = LocalCluster("moved", root=tenantry_home)
    data = tmp_path / ("deep" * 20) / ("er" * 30)
    await cluster.up(UpOptions(data=data, throwaway=True))
    assert (data / "etcd" / "member").is_dir()
    await answers(cluster)
    await cluster.down(purge=True)
    assert not data.exists()


@pytest.mark.long
async def test_up_repeats_what_the_api_server_did_not_answer(own: LocalCluster) -> None:
    """H06: only --timeout without progress ends `up`, not one request that fails while the API server starts."""
    attempts: list[str] = []

    async def install(path: Path) -> None:
        attempts.append(path.name)
        if len(attempts) == 1:
            server = own.status().component(components.APISERVER)
            assert server is not None
            assert process.kill_if_same(server.pid, server.start_ticks)
            await process.wait_gone(server.pid, server.start_ticks, SECONDS)
        async with Client(kubeconfig.load([path])) as client:
            await client.request("GET", "/api/v1/namespaces/default")

    await own.up(dataclasses.replace(THROWAWAY, install=install))
    assert len(attempts) > 1

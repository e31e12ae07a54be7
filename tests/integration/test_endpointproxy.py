"""Clients reach a hosted control plane through the endpoint proxy, which holds them while its process is away (H02)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.cli.status import UNHEALTHY
from tenantry.hosting import plane as hosting
from tenantry.hosting.placement import RunningPlane
from tenantry.hosting.plane import HostedPlane
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.components import ENDPOINT_PROXY
from tenantry.local.control import SupervisorRequest, Verb, order, watch
from tenantry.local.hosted import HostedProcess, LocalPlacement
from tenantry.local.process import kill_if_same
from tenantry.local.state import ComponentState, Phase, read_state
from testkit.api import CONFIG_MAPS, SECONDS, Api
from testkit.hosted import running

pytest_plugins = ["testkit.fixtures"]


async def obey(tenancy: LocalCluster, verb: Verb, component: str = "") -> None:
    """Have the supervisor start, stop or reload."""
    await order(tenancy.paths.socket, SupervisorRequest(verb=verb, component=component), SECONDS)


def process_of(tenancy: LocalCluster, plane: HostedPlane) -> HostedProcess:
    """Return what the supervisor knows of a control plane."""
    file = tenancy.paths.folder / "hosted" / plane.uid / "process.json"
    return msgspec.json.decode(file.read_bytes(), type=HostedProcess)


def state_of(tenancy: LocalCluster, component: str) -> ComponentState | None:
    """Return the state of a component."""
    state = read_state(tenancy.paths)
    return state.component(component) if state is not None else None


@asynccontextmanager
async def kubectl(
    tenancy: LocalCluster, place: LocalPlacement, plane: HostedPlane, *words: str
) -> AsyncGenerator[Process]:
    """Run kubectl as an administrator, at the address for users."""
    programs = build.built()
    assert programs is not None
    credentials = place.gate(plane.uid).with_name("operator.kubeconfig")
    server = f"https://127.0.0.1:{process_of(tenancy, plane).port}"
    started = await asyncio.create_subprocess_exec(
        *(programs.kubectl, "--kubeconfig", credentials, "--server", server, *words),
        env={"HOME": str(tenancy.paths.folder)},
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        await started.wait()


async def ended(process: Process, codes: Sequence[int] = (0,)) -> str:
    """Return what a command has printed that ends with one of these exit codes."""
    async with asyncio.timeout(SECONDS):
        output, errors = await process.communicate()
    assert process.returncode in codes, errors.decode()
    return output.decode()


async def asked(tenancy: LocalCluster, plane: HostedPlane) -> str:
    """Return the answer to one request over TLS, with the certificate of the control plane."""
    authority = tenancy.paths.folder / "hosted" / plane.uid / "pki" / "ca.crt"
    trust = ssl.create_default_context(cafile=authority)
    trust.set_alpn_protocols(["h2", "http/1.1"])
    port = process_of(tenancy, plane).port
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.read()
        writer.close()
    return answer.decode()


async def test_requests_and_watches_pass(tenancy: LocalCluster, name: str) -> None:
    """H02: kubectl works at the address for users; the process itself listens elsewhere; one proxy serves two."""
    async with (
        running(tenancy, f"{name}-a") as (place, plane, first),
        running(tenancy, f"{name}-b") as (_, other, _),
    ):
        process = process_of(tenancy, plane)
        assert first.server == f"https://127.0.0.1:{process.port}"
        assert first.connection.server == f"https://127.0.0.1:{process.internal}"
        assert len({process.port, process.internal, process_of(tenancy, other).port}) == 3
        words = ("get", "configmaps", "--watch-only", "-o", "name")
        async with kubectl(tenancy, place, plane, *words, "-v=6") as watching, through(first) as inside:
            # Its watch has begun.
            await line_with(watching.stderr, "watch=true")
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "seen"}}, "default")
            assert "configmap/seen" in await line_with(watching.stdout, "seen")
        async with kubectl(tenancy, place, other, "get", "namespaces", "-o", "name") as listing:
            assert "namespace/default" in await ended(listing)
        for component in (ENDPOINT_PROXY, f"hosted@{name}-a"):
            # Tenants of other tests may be unhealthy.
            assert component in await tenantry(tenancy, "status", codes=(0, UNHEALTHY))
            assert await tenantry(tenancy, "logs", component)
        assert f"{name}-a: listening at 127.0.0.1:{process.port}" in await tenantry(tenancy, "logs", ENDPOINT_PROXY)
    # With the last control plane, the proxy goes.
    assert state_of(tenancy, ENDPOINT_PROXY) is None


async def tenantry(tenancy: LocalCluster, *words: str, codes: Sequence[int] = (0,)) -> str:
    """Return what a command about the cluster prints that ends with one of these exit codes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *words, "--cluster", tenancy.name),
        env={**os.environ, "TENANTRY_HOME": str(tenancy.paths.folder.parent.parent)},
        stdout=PIPE,
        stderr=PIPE,
    )
    return await ended(process, codes)


@asynccontextmanager
async def through(first: RunningPlane) -> AsyncGenerator[Api]:
    """An administrator inside, at the address for users."""
    async with Client(replace(first.connection.detached(), server=first.server)) as client:
        yield Api(client)


async def line_with(stream: asyncio.StreamReader | None, words: str) -> str:
    """Return the next line that has these words."""
    assert stream is not None
    async with asyncio.timeout(SECONDS):
        async for line in stream:
            if words in line.decode():
                return line.decode()
    raise AssertionError(f"no line has {words!r}")


async def test_a_client_is_held_until_the_process_runs(tenancy: LocalCluster, name: str) -> None:
    """H02: the placement learns of the client, the client of nothing; also if the proxy has crashed meanwhile."""
    async with running(tenancy, name) as (place, plane, _):
        component = f"hosted@{name}"
        await obey(tenancy, "stop", component)
        learns = asyncio.create_task(place.knocked(plane.uid))
        proxy = state_of(tenancy, ENDPOINT_PROXY)
        assert proxy is not None
        assert kill_if_same(proxy.pid, proxy.start_ticks, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            async for state in watch(tenancy.paths.socket):
                found = state.component(ENDPOINT_PROXY)
                if found is not None and found.phase is Phase.READY and found.pid != proxy.pid:
                    break
        assert not learns.done()
        async with kubectl(tenancy, place, plane, "get", "--raw", "/version") as asking:
            async with asyncio.timeout(SECONDS):
                await learns
            await obey(tenancy, "start", component)
            assert "gitVersion" in await ended(asking)


async def test_an_absent_process_is_a_503_that_kubectl_obeys(tenancy: LocalCluster, name: str) -> None:
    """H02: at once without an operator, else after four seconds; kubectl tries again until the process is there."""
    async with running(tenancy, name) as (place, plane, _):
        component = f"hosted@{name}"
        await obey(tenancy, "stop", component)
        learns = asyncio.create_task(place.knocked(plane.uid))
        answer = ""
        async with asyncio.timeout(SECONDS):
            # No event tells when the proxy knows that the placement waits.
            while not learns.done():
                answer = await asked(tenancy, plane)
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 503 ")
        assert "Retry-After: 1" in head
        assert {key: json.loads(body)[key] for key in ("kind", "reason", "code")} == {
            "kind": "Status",
            "reason": "ServiceUnavailable",
            "code": 503,
        }
        async with kubectl(tenancy, place, plane, "get", "--raw", "/version", "-v=8") as asking:
            await line_with(asking.stderr, "Retry-After")
            await obey(tenancy, "start", component)
            assert "gitVersion" in await ended(asking)


@pytest.mark.long
async def test_a_process_of_an_earlier_version_keeps_its_port(tenancy: LocalCluster, name: str) -> None:
    """H02: one that listens at its port itself goes on to, and moves behind the proxy with the next start."""
    async with running(tenancy, name) as (place, plane, first), running(tenancy, f"{name}-b"):
        folder = tenancy.paths.folder / "hosted" / plane.uid
        process = process_of(tenancy, plane)
        programs = build.built(build.HOSTED)
        assert programs is not None
        (folder / hosting.SETTINGS).write_bytes(hosting.settings(plane, process.port, str(programs.openapi)))
        file = folder / "process.json"
        file.write_bytes(msgspec.json.encode({"name": name, "program": process.program, "port": process.port}))
        await obey(tenancy, "reload")
        async with asyncio.timeout(SECONDS):
            async for state in watch(tenancy.paths.socket):
                found = state.component(f"hosted@{name}")
                if found is not None and found.phase is Phase.READY and found.port == process.port:
                    break
        async with through(first) as inside:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, "default")
        again = await place.start(plane)
        assert (again.server, again.kubeconfig) == (first.server, first.kubeconfig)
        assert again.connection.server != again.server
        async with through(again) as inside:
            assert await inside.find(CONFIG_MAPS, "kept", "default") is not None

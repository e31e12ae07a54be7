"""The endpoint proxy of a cluster's hosted control planes: how the supervisor runs it, and what it is asked.

go/endpoint-proxy listens at the port of each control plane, and forwards to the internal port of its process. It learns
the phases of the processes from the supervisor, as `tenantry status` does. While a process does not run, it holds the
clients, and answers those who wait for one at CLUSTER/hosted/knock.sock: a line of JSON each way. While there is a file
CLUSTER/hosted/UID/closed, it refuses the clients of that control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from tenantry.api.errors import LocalError
from tenantry.engine.sockets import short_path
from tenantry.local import build, control
from tenantry.local.components import ENDPOINT_PROXY, Component, ReadinessSignal
from tenantry.local.files import make_private_folder, write_private
from tenantry.local.paths import ClusterPaths
from tenantry.local.state import ComponentState, Phase

_FILE = "endpoint-proxy.json"
_SOCKET = "knock.sock"
_CLOSED = "closed"
_LISTEN_SECONDS = 30.0
_AGAIN_SECONDS = 1.0
"""When to ask a proxy again that has not answered, unless the supervisor starts another one before."""


class EndpointProxyProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which program the supervisor runs as the endpoint proxy.

    Args:
        program: Its path.
    """

    program: str


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    until: str


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    error: str = ""


def component(paths: ClusterPaths) -> Component | None:
    """Return the endpoint proxy as a component; None if the cluster has never had a control plane behind one.

    Args:
        paths: The cluster's.
    """
    try:
        found = msgspec.json.decode((paths.folder / "hosted" / _FILE).read_bytes(), type=EndpointProxyProcess)
    except (OSError, msgspec.MsgspecError):
        return None
    return Component(
        name=ENDPOINT_PROXY,
        command=(found.program, str(paths.folder)),
        port=0,
        signal=ReadinessSignal.NOTIFY,
        environment={"GOMAXPROCS": "2"},
    )


def write(paths: ClusterPaths) -> None:
    """Write the file that makes the program a component.

    Raises:
        LocalError: The program is not built.
    """
    program = build.built(build.ENDPOINT_PROXY)
    if program is None:
        raise LocalError("the endpoint proxy is not built: run `tenantry local build --with-hosted`")
    folder = paths.folder / "hosted"
    make_private_folder(folder)
    content = msgspec.json.encode(EndpointProxyProcess(program=str(program.endpoint_proxy)))
    write_private(folder / _FILE, content)


async def listens(paths: ClusterPaths, uid: str, port: int) -> None:
    """Wait until the endpoint proxy listens for a control plane.

    Raises:
        LocalError: It does not in time.
    """
    try:
        async with asyncio.timeout(_LISTEN_SECONDS):
            await _answered(paths, _Question(uid=uid, until="listening"))
    except TimeoutError as error:
        raise LocalError(
            f"the endpoint proxy does not listen at 127.0.0.1:{port}: `tenantry logs {ENDPOINT_PROXY}` shows why"
        ) from error


async def knocked(paths: ClusterPaths, uid: str) -> None:
    """Wait until a client of a control plane is held because its process does not run."""
    await _answered(paths, _Question(uid=uid, until="client"))


async def admit(
    paths: ClusterPaths, folder: Path, reload: Callable[[], Awaitable[object]] | None, *, is_open: bool
) -> None:
    """Open a control plane to its clients, or close it and end their connections.

    Args:
        paths: The cluster's.
        folder: The folder of the control plane, which may not exist yet.
        reload: Has the supervisor run what the files name; None if no client can be connected.
        is_open: Whether clients reach it.

    Raises:
        LocalError: The endpoint proxy does not confirm in time that connections have ended.
    """
    file = folder / _CLOSED
    if is_open:
        file.unlink(missing_ok=True)
        return
    # First: it ends no connection, but refuses those from now on.
    make_private_folder(folder)
    write_private(file, b"")
    if reload is None:
        return
    # One of an earlier version does not know the question.
    write(paths)
    await reload()
    try:
        async with asyncio.timeout(_LISTEN_SECONDS):
            await _answered(paths, _Question(uid=folder.name, until="closed"))
    except TimeoutError as error:
        raise LocalError(
            f"the endpoint proxy does not confirm that connections ended: `tenantry logs {ENDPOINT_PROXY}` shows why"
        ) from error


async def _answered(paths: ClusterPaths, question: _Question) -> None:
    """Ask the proxy, and each later one if it ends, until one answers."""
    silent: ComponentState | None = None
    while True:
        # The supervisor may report a proxy as ready that has just ended.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if silent is None else _AGAIN_SECONDS):
                silent = await _ready(paths, silent)
        if await _ask(paths, question):
            return


async def _ready(paths: ClusterPaths, other_than: ComponentState | None) -> ComponentState:
    async with contextlib.aclosing(control.watch(paths.socket)) as states:
        async for state in states:
            found = state.component(ENDPOINT_PROXY)
            if found is not None and found.phase is Phase.READY and found != other_than:
                return found
    raise LocalError("the supervisor ended")


async def _ask(paths: ClusterPaths, question: _Question) -> bool:
    """Return whether the proxy has answered, which may take hours; False if there is none."""
    try:
        with short_path(paths.folder / "hosted" / _SOCKET) as address:
            reader, writer = await asyncio.open_unix_connection(address)
    except OSError:
        return False
    try:
        writer.write(msgspec.json.encode(question) + b"\n")
        line = await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
    if not line.endswith(b"\n"):
        return False
    try:
        error = msgspec.json.decode(line, type=_Answer).error
    except msgspec.MsgspecError as failure:
        raise LocalError("the endpoint proxy is of another version of Tenantry") from failure
    if error:
        raise LocalError(f"the endpoint proxy: {error}")
    return True

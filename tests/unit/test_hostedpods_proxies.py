"""Each session to an endpoint proxy brings it up to date, whatever happened while there was none (H01)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from tenantry.api.model import Json
from tenantry.engine.tasks import cancelled_at_end, in_background
from tenantry.hostedpods.proxies import EndpointProxies
from tenantry.hostedpods.proxysession import ProxySession, ToldPlane
from tenantry.hosting.tunnel import ByteStream

FIRST, SECOND = "192.0.2.1", "192.0.2.2"


def told(uid: str) -> ToldPlane:
    """Return what a proxy is told of a control plane."""
    return ToldPlane(uid=uid, name=uid, port=20000, phase="Ready", certificate="c", key="k")


def proxies_of(folder: Path, *addresses: str) -> EndpointProxies:
    """Return what an operator knows of the Pods of the proxy at some addresses; it has no session yet."""
    # It neither prepares certificates nor lists Pods here.
    made = EndpointProxies(None, folder)  # pyright: ignore[reportArgumentType]
    made._pods = dict.fromkeys(addresses, True)  # pyright: ignore[reportPrivateUsage] - in place of a list of Pods
    # It serves control planes: a session is complete at its end.
    made.moved.add(lambda _: None)
    return made


async def told_in_session(proxies: EndpointProxies, address: str, refused: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return the reports of one session to a proxy, which refuses some control planes, until it has all."""
    found: list[tuple[str, str]] = []
    own, peer = socket.socketpair()
    own_stream = ByteStream(*await asyncio.open_connection(sock=own))
    reader, writer = await asyncio.open_connection(sock=peer)
    follow = proxies._follow(address, ProxySession(own_stream))  # pyright: ignore[reportPrivateUsage]
    try:
        with suppress(EOFError):
            async with in_background(follow):
                while True:
                    asked: Json = msgspec.json.decode(await reader.readline())
                    if asked["until"] == "ready":
                        return found
                    uid = asked.get("uid") or asked["plane"]["uid"]
                    found.append((asked["until"], uid))
                    error = "it is wrong" if uid in refused else ""
                    writer.write(msgspec.json.encode({"id": asked["id"], "error": error}) + b"\n")
    finally:
        writer.close()
    raise AssertionError("the session ended before the proxy was told everything")


async def test_a_control_plane_that_the_proxy_refuses_does_not_keep_others_from_it(tmp_path: Path) -> None:
    """H01: the proxy is told the rest, and that this was all."""
    proxies = proxies_of(tmp_path, FIRST)
    for uid in ("a", "b"):
        proxies.note(told(uid))
    assert await told_in_session(proxies, FIRST, refused=["a"]) == [("told", "a"), ("told", "b")]


async def test_a_control_plane_that_was_deleted_without_a_session_is_ended_in_the_next_one(tmp_path: Path) -> None:
    """H01: each Pod of the proxy that runs ends it, once."""
    proxies = proxies_of(tmp_path, FIRST, SECOND)
    for uid in ("a", "b"):
        proxies.note(told(uid))
    await proxies.forget("a")
    assert await told_in_session(proxies, FIRST) == [("gone", "a"), ("told", "b")]
    assert await told_in_session(proxies, FIRST) == [("told", "b")]
    assert await told_in_session(proxies, SECOND, refused=["a"]) == [("gone", "a"), ("told", "b")]
    assert await told_in_session(proxies, SECOND) == [("told", "b")]


async def test_a_control_plane_that_is_told_again_is_not_ended(tmp_path: Path) -> None:
    """H01: another operator may serve it from then on."""
    proxies = proxies_of(tmp_path, FIRST)
    await proxies.forget("a")
    proxies.note(told("a"))
    proxies.drop(["a"])
    assert await told_in_session(proxies, FIRST) == []


async def test_a_session_of_before_this_operator_serves_is_completed(tmp_path: Path) -> None:
    """H01: a proxy that starts before the operator has its Lease gets clients, too."""
    proxies = EndpointProxies(None, tmp_path)  # pyright: ignore[reportArgumentType] - it lists no Pods here
    own, peer = socket.socketpair()
    session = ProxySession(ByteStream(*await asyncio.open_connection(sock=own)))
    reader, writer = await asyncio.open_connection(sock=peer)
    async with cancelled_at_end() as group:
        proxies._group = group  # pyright: ignore[reportPrivateUsage] - as `keep` has it
        changed = proxies._changed  # pyright: ignore[reportPrivateUsage]
        group.create_task(proxies._follow(FIRST, session))  # pyright: ignore[reportPrivateUsage]
        await changed.wait()
        assert session.is_told
        proxies.serve(lambda _: None)
        asked: Json = msgspec.json.decode(await reader.readline())
    writer.close()
    assert asked["until"] == "ready"

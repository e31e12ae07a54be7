"""Clients that have not authenticated keep no others out: places by source, and a listener that is flooded."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.hosting.connections import ConnectionLimits, Connections
from tenantry.hosting.tlslistener import accepting
from tenantry.hosting.unauthenticated import UnauthenticatedClients, UnauthenticatedLimits, source_of
from testkit.tunnels import flooded

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_one_client_has_all_addresses_of_its_network(address: str, source: str) -> None:
    assert source_of(address) == source


@given(st.integers(1, 6), st.lists(st.sampled_from("abcd"), max_size=40))
def test_a_source_loses_a_place_only_if_it_has_the_most(most: int, addresses: list[str]) -> None:
    places = UnauthenticatedClients[int](UnauthenticatedLimits(per_source_per_second=1, most=most))
    held: dict[int, str] = {}
    for number, address in enumerate(addresses):
        victim = places.begin(number, address)
        held[number] = address
        if victim is not None:
            counts = Counter(held.values())
            assert counts[held[victim]] == max(counts.values())
            assert victim == min(each for each, source in held.items() if source == held[victim])
            del held[victim]
        assert len(places) == len(held) <= most


def test_a_client_that_has_authenticated_has_a_place_no_more_and_loses_none() -> None:
    places = UnauthenticatedClients[str](UnauthenticatedLimits(per_source_per_second=1, most=1))
    assert places.begin("first", "a") is None
    places.end("first")
    assert places.begin("second", "a") is None
    assert places.begin("third", "a") == "second"


def test_the_rate_of_one_source_is_not_that_of_others() -> None:
    places = UnauthenticatedClients[int](UnauthenticatedLimits(per_source_per_second=2, most=9))
    assert [places.take("192.0.2.1", 10.0) for _ in range(3)] == [True, True, False]
    assert places.take("192.0.2.2", 10.0)
    assert places.take("192.0.2.1", 10.5)
    # Sources without an end are forgotten, those that were used first.
    for number in range(5000):
        places.take(f"2001:db8:0:{number:x}::1", 10.5)
    assert places.take("192.0.2.1", 10.5)


def limits(*, rate: int, most: int) -> ConnectionLimits:
    """Return limits of a listener to which any client may connect."""
    unauthenticated = UnauthenticatedLimits(per_source_per_second=rate, most=most)
    return ConnectionLimits(connections_per_second=100, open_connections=10, unauthenticated=unauthenticated)


async def served(connections: Connections, accepted: socket.socket) -> None:
    """Answer each byte with one, and take the first one for what authenticates the client."""
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(accepted, 1):
            connections.authenticated()
            await loop.sock_sendall(accepted, data)
    except OSError:
        pass
    finally:
        accepted.close()


async def test_a_client_that_floods_a_listener_keeps_no_other_one_out() -> None:
    connections = Connections(limits(rate=20, most=20))
    async with (
        asyncio.timeout(30),
        accepting(("127.0.0.1", 0), connections, partial(served, connections)) as port,
        flooded(port) as flood,
    ):
        await flood.opened(500)
        known = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for reader, writer in known:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        # Nor does it end those that are known.
        await flood.opened(300)
        for reader, writer in known:
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"
            writer.close()


async def test_clients_of_one_address_that_send_nothing_keep_no_other_one_of_it_out() -> None:
    """As behind a load balancer that hides the addresses."""
    connections = Connections(limits(rate=100, most=4))
    async with asyncio.timeout(30), accepting(("127.0.0.1", 0), connections, partial(served, connections)) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        # The oldest ones were ended for that.
        for each in silent[:3]:
            assert await each[0].read() == b""
        for each in (*silent, (reader, writer)):
            each[1].close()

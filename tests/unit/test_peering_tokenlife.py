"""When the token of a home at a peer is replaced."""

from __future__ import annotations

import base64
import datetime as dt

import msgspec
import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json
from tenantry.api.peercluster import LEASE_SECONDS, PEERS_NAMESPACE, PeerHost
from tenantry.controllers.peering.link.peerclient import PeerAccess
from tenantry.controllers.peering.link.tokenlife import RENEW_SECONDS, read, seconds_left
from tenantry.controllers.peering.liveobjects import SECRETS
from tenantry.controllers.peering.tunnels.endpoint import TunnelEndpoint
from tenantry.engine.cluster import Cluster, ClusterId
from testkit.clock import ManualClock
from testkit.model import World
from testkit.worldclient import WorldClient

NOW = dt.datetime(2027, 1, 31, 18, tzinfo=dt.UTC)
HOUR = 3600.0


def token(age: float, life: float = LEASE_SECONDS, *, now: dt.datetime = NOW) -> str:
    """Return a token of an age, as an API server issues it."""
    issued = int(now.timestamp() - age)
    claims = {"aud": ["https://kubernetes"], "iat": issued, "exp": issued + int(life), "sub": "system:serviceaccount"}
    return ".".join(_encoded(each) for each in ({"alg": "RS256"}, claims)) + ".c2ln"


def _encoded(value: Json) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def test_a_token_is_replaced_at_a_seventh_of_its_life_also_after_a_restart() -> None:
    assert seconds_left(token(0), NOW) == RENEW_SECONDS
    assert seconds_left(token(RENEW_SECONDS - 1), NOW) == 1.0
    assert seconds_left(token(RENEW_SECONDS), NOW) == 0.0
    # One that ends sooner is replaced sooner.
    assert seconds_left(token(0, 7 * HOUR), NOW) == HOUR
    assert seconds_left(token(HOUR, 7 * HOUR), NOW) == 0.0


@pytest.mark.parametrize(
    "unknown",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c",
        "a.é.c",
        f"a.{_encoded({})}.c",
        f"a.{_encoded({'iat': 1})}.c",
        f"a.{_encoded({'iat': 'now', 'exp': 'then'})}.c",
        f"a.{_encoded({'iat': 9, 'exp': 3})}.c",
    ],
)
def test_a_token_of_unknown_age_is_replaced_at_once_and_then_by_our_own_clock(unknown: str) -> None:
    assert read(unknown) is None
    assert seconds_left(unknown, NOW) == 0.0
    assert seconds_left(unknown, NOW, held=HOUR) == RENEW_SECONDS - HOUR


def test_clocks_that_differ_replace_no_token_of_our_own_early_or_late() -> None:
    for ahead in (-30 * 24 * HOUR, 30 * 24 * HOUR):
        of_peer = token(0, now=NOW + dt.timedelta(seconds=ahead))
        assert seconds_left(of_peer, NOW) == 0.0, "from before this process"
        assert seconds_left(of_peer, NOW, held=HOUR) == RENEW_SECONDS - HOUR
    # A little is usual.
    assert seconds_left(token(-60), NOW) == RENEW_SECONDS + 60


async def test_a_link_that_begins_again_finds_that_its_token_is_not_due() -> None:
    world, clock = World(), ManualClock(NOW)
    world.put_in(Namespace.resource, {"metadata": {"name": PEERS_NAMESPACE}})
    home = Cluster(ClusterId("home"), WorldClient(world, lambda: "none"), clock=clock, instance="a")
    half = PeerHost(server="https://192.0.2.1", ca="", guest="home", credentials_secret_name="berlin")
    stored = base64.b64encode(token(0).encode()).decode()
    world.put_in(SECRETS, {"metadata": {"name": "berlin", "namespace": PEERS_NAMESPACE}, "data": {"token": stored}})
    tunnels = TunnelEndpoint(home, None, lambda _: None)
    assert not await PeerAccess(home, "id", "berlin", half, tunnels).is_due()
    clock.advance(RENEW_SECONDS)
    assert await PeerAccess(home, "id", "berlin", half, tunnels).is_due()

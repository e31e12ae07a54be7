"""The home's port for tunnels, on loopback: what the API server says about tokens, and the life of its certificate."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from tenantry.api.errors import ApiError, RetryableError, ServerError, TooManyRequests, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.peercluster import PEERS_NAMESPACE, PeerCluster, PeerClusterSpec, PeerHost
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_SECRET, Dial, GuestTunnel
from tenantry.controllers import watched
from tenantry.controllers.peering.liveobjects import SECRETS
from tenantry.controllers.peering.tunnels import dialler, reviews
from tenantry.controllers.peering.tunnels import endpoint as port_for_tunnels
from tenantry.controllers.peering.tunnels.dialler import TunnelDialler
from tenantry.controllers.peering.tunnels.endpoint import TunnelEndpoint
from tenantry.engine.cluster import Cluster, ClusterId, Watch
from tenantry.engine.request import TOKEN_REVIEWS, ApiRequest, Verb
from tenantry.engine.tasks import cancelled_at_end
from testkit import ports
from testkit.clock import ManualClock
from testkit.model import World
from testkit.tunnels import knock, opened
from testkit.worldclient import WorldClient
from testkit.worldcluster import WorldCluster

pytestmark = pytest.mark.timeout(60)

PEER, TOKEN = "berlin", "header.claims.signature"
ACCEPTED: Json = {
    "authenticated": True,
    "audiences": [TUNNEL_AUDIENCE],
    "user": {"username": f"system:serviceaccount:{PEERS_NAMESPACE}:{PEER}-tunnel"},
}
# What kube-apiserver 1.36 says.
REFUSED = (
    "invalid bearer token",
    '[invalid bearer token, serviceaccounts "berlin-tunnel" not found]',
    "[invalid bearer token, service account UID (a) does not match claim (b)]",
    '[invalid bearer token, token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences]',
    "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]",
    "[invalid bearer token, service account token has expired]",
    "",
)
UNCHECKED = (
    "[invalid bearer token, etcdserver: request timed out]",
    "[invalid bearer token, the server was unable to return a response in the time allotted]",
    "[invalid bearer token, Get https://127.0.0.1:6443: dial tcp: connect: connection refused]",
    "context deadline exceeded",
)


def test_a_token_opens_the_tunnel_of_the_peer_whose_account_has_it() -> None:
    assert reviews.peer_of({"status": ACCEPTED}) == PEER
    others: tuple[Json, ...] = (
        {**ACCEPTED, "audiences": []},
        {**ACCEPTED, "user": {"username": f"system:serviceaccount:{PEERS_NAMESPACE}:{PEER}"}},
        {**ACCEPTED, "user": {"username": f"system:serviceaccount:shop:{PEER}-tunnel"}},
        {**ACCEPTED, "user": {}},
        {},
    )
    assert [reviews.peer_of({"status": each}) for each in others] == [None] * len(others)


@pytest.mark.parametrize("problem", REFUSED)
def test_a_token_that_the_api_server_refuses_opens_none(problem: str) -> None:
    assert reviews.peer_of({"status": {"error": problem, "user": {}}}) is None


@pytest.mark.parametrize("problem", UNCHECKED)
def test_a_token_that_the_api_server_could_not_check_is_neither_accepted_nor_refused(problem: str) -> None:
    with pytest.raises(RetryableError, match="could not check"):
        reviews.peer_of({"status": {"error": problem, "user": {}}})


# -- the port -----------------------------------------------------------------------------------


class HomeWorld(World):
    """A home with a peer that opens a tunnel.

    Attributes:
        says: What the API server says about tokens.
        reviewed: Set whenever it was asked.
        deletions_that_fail: How many of the next ones the API server does not carry out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.says: Json | ApiError = ACCEPTED
        self.reviewed = asyncio.Event()
        self.deletions_that_fail = 0
        self.put_in(Namespace.resource, {"metadata": {"name": PEERS_NAMESPACE}})

    def answer(self, asked: ApiRequest) -> bytes:
        """Answer a request; see `World.answer`."""
        if asked.verb is Verb.DELETE and self.deletions_that_fail:
            self.deletions_that_fail -= 1
            raise ServerError("etcd has no leader", status=500)
        if asked.resource != TOKEN_REVIEWS:
            return super().answer(asked)
        self.reviewed.set()
        if isinstance(self.says, ApiError):
            raise self.says
        return msgspec.json.encode({"status": self.says})

    def connect(self) -> None:
        """Make the PeerCluster."""
        half = PeerHost(server="https://10.0.0.7", ca="", guest="home", credentials_secret_name="s", dial=Dial.PEER)
        self.create(PeerCluster(metadata=ObjectMeta(name=PEER), spec=PeerClusterSpec(host=half)))

    @property
    def certificate(self) -> Json:
        """Return the Secret of the port."""
        return self.get(SECRETS, f"{PEERS_NAMESPACE}/{TUNNEL_SECRET}")


class _Watching:
    """Watches PeerClusters, as their controller does."""

    name, kind = "peercluster", PeerCluster

    def watches(self) -> Sequence[Watch]:
        return [Watch(resource=PeerCluster.resource, decode=watched.decoder(PeerCluster), keys=watched.own_key)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        raise NotImplementedError


class Home:
    """The port of a home.

    Args:
        world: It has the objects of the home.
    """

    def __init__(self, world: HomeWorld) -> None:
        self.world = world
        self.cluster = WorldCluster(world, [_Watching()])
        self._port = ports.free(1)[0]
        self._changed = asyncio.Event()
        self.endpoint = TunnelEndpoint(self.cluster, ("127.0.0.1", self._port), lambda _: self._changed.set())

    async def until(self, *, is_open: bool | None = None) -> None:
        """Wait until the port is open, or the tunnel of the peer is, or is not any more."""
        while self.endpoint.problem or (is_open is not None and self.endpoint.is_open(PEER) is not is_open):
            self._changed.clear()
            await self._changed.wait()

    @property
    def place(self) -> tuple[str, str, str]:
        """Return what a peer has: the URL, the certificate and the token."""
        certificate = base64.b64decode(self.world.certificate["data"]["tls.crt"]).decode()
        return f"https://127.0.0.1:{self._port}", certificate, TOKEN


@pytest.fixture(name="world")
def make_world() -> HomeWorld:
    """Return a home with one peer."""
    world = HomeWorld()
    world.connect()
    return world


@asynccontextmanager
async def serving(world: HomeWorld) -> AsyncGenerator[Home]:
    """Serve tunnels while the context is open."""
    home = Home(world)
    async with cancelled_at_end() as group:
        group.create_task(home.endpoint.run())
        home.endpoint.require()
        await home.until()
        yield home


def failures() -> Iterable[Json | ApiError]:
    """Return what an API server says that cannot check a token."""
    yield ServerError("etcd has no leader", status=500)
    yield ServerError("the API server is starting", status=503)
    yield TooManyRequests("too many requests", status=429)
    yield Unreachable("time ran out")
    yield {"error": UNCHECKED[0], "user": {}}


async def test_a_peer_tries_again_if_its_token_cannot_be_checked_and_not_if_it_is_refused(world: HomeWorld) -> None:
    async with serving(world) as home:
        for says in failures():
            world.says = says
            assert (await knock(*home.place))[0] == 503, says
        for problem in REFUSED:
            world.says = {"error": problem, "user": {}}
            assert (await knock(*home.place))[0] == 401, problem
        world.says = ACCEPTED
        assert (await knock(*home.place))[0] == 101


async def test_a_peer_whose_token_could_not_be_checked_opens_its_tunnel_by_itself(
    world: HomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialler, "FIRST_PAUSE_SECONDS", 0.01)
    async with serving(world) as home, cancelled_at_end() as group:
        server, certificate, token = home.place
        there, seen = World(), asyncio.Event()
        there.put_in(Namespace.resource, {"metadata": {"name": PEERS_NAMESPACE}})
        data = {"token": base64.b64encode(token.encode()).decode()}
        there.put_in(SECRETS, {"metadata": {"name": "home-tunnel", "namespace": PEERS_NAMESPACE}, "data": data})
        half = GuestTunnel(server=server, ca=certificate, credentials_secret_name="home-tunnel")
        client = WorldClient(there, lambda: "none")
        peer = Cluster(ClusterId("peer"), client, clock=ManualClock(), instance="a")
        made = TunnelDialler(peer, "home", half, "https://127.0.0.1:9", seen.set)

        async def becomes(problem: str, *, is_refused: bool = False) -> None:
            while problem not in made.problem or bool(problem) is not bool(made.problem):
                seen.clear()
                await seen.wait()
            assert made.is_refused is is_refused

        world.says = {"error": UNCHECKED[0], "user": {}}
        group.create_task(made.run())
        await becomes("cannot check the token at the moment")
        world.says = {"error": REFUSED[1], "user": {}}
        await becomes("use another file", is_refused=True)
        world.says = ACCEPTED
        await becomes("")
        await home.until(is_open=True)


async def test_a_tunnel_that_is_open_outlives_an_api_server_that_cannot_check_its_token(
    world: HomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_for_tunnels, "REVIEW_SECONDS", 0.05)
    async with serving(world) as home, opened(*home.place) as ours:
        await home.until(is_open=True)
        for says in failures():
            world.says = says
            # The second one begins after the first one has had its consequences.
            for _ in range(2):
                world.reviewed.clear()
                await world.reviewed.wait()
            assert home.endpoint.is_open(PEER), says
        world.says = {"error": REFUSED[1], "user": {}}
        await home.until(is_open=False)
        while await ours.reader.read(1024):
            pass


async def test_a_port_that_is_needed_again_at_once_keeps_the_certificate_that_peers_have(world: HomeWorld) -> None:
    async with serving(world) as home:
        before, uid = home.place, world.certificate["metadata"]["uid"]
        world.delete(PeerCluster.resource, PEER)
        home.cluster.look()
        home.endpoint.close(PEER)
        # Its task has not had its turn yet.
        world.connect()
        home.cluster.look()
        home.endpoint.require()
        assert (await knock(*before))[0] == 101
        assert world.certificate["metadata"]["uid"] == uid


async def test_a_port_that_no_peer_needs_is_closed_and_its_certificate_is_gone(
    world: HomeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_for_tunnels, "_RETRY_SECONDS", 0.01)
    async with serving(world) as home:
        before = home.place
        world.deletions_that_fail = 2
        world.delete(PeerCluster.resource, PEER)
        home.cluster.look()
        home.endpoint.close(PEER)
        async with asyncio.timeout(20):
            while (SECRETS, f"{PEERS_NAMESPACE}/{TUNNEL_SECRET}") in world.objects:  # noqa: ASYNC110 - nothing reports it
                await asyncio.sleep(0.01)
        assert (await knock(*before))[0] == 0
        world.connect()
        home.cluster.look()
        home.endpoint.require()
        await home.until()
        assert home.place[1] != before[1]
        assert (await knock(*home.place))[0] == 101

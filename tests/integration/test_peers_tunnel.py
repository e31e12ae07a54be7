"""A peer that the home cannot connect to: it opens a tunnel to the home, which carries TLS to its own API server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import yaml

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, Unauthorized
from tenantry.api.model import Json
from tenantry.api.peercluster import (
    PEERS_NAMESPACE,
    PeerCluster,
    node_name,
)
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_SECRET, tunnel_name
from tenantry.engine import request
from tenantry.engine.writer import Writer
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from testkit.api import PODS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.peerings import QUOTA, UNREACHABLE, Peering, peering, placed, token_of
from testkit.tcplink import LinkState, TcpLink
from testkit.tunnels import flooded, knock


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peering]:
    """A home, and a peer that it cannot connect to, connected by the files that their administrators exchange."""
    async with peering(tenantry_home, "tun", "--nodes", "2") as found:
        await join(found, tmp_path_factory.mktemp("files"))
        yield found


async def join(found: Peering, folder: Path) -> None:
    """Connect the clusters by files."""
    at_home, at_peer = ("--cluster", found.home_name), ("--cluster", found.peer_name)

    async def write(name: str, *arguments: str) -> str:
        done = await found.call("peer", *arguments)
        assert done.returncode == 0, done.stderr
        (folder / name).write_text(done.stdout)
        return str(folder / name)

    quota = ",".join(f"{key}={value}" for key, value in QUOTA.items())
    asked = await write("request", "request", *at_home, "--quota", quota, "--dial", "Peer")
    invitation = await write("invitation", "invite", "-f", asked, *at_peer, "--server", UNREACHABLE)
    tunnel = await write("tunnel", "accept", "-f", invitation, *at_home)
    refused = await found.call("peer", "dial", "-f", tunnel, *at_home)
    assert refused.returncode, "the file is for the peer"
    assert "it is meant for another cluster" in refused.stderr
    await found.run("peer", "dial", "-f", tunnel, *at_peer)
    await found.run("peer", "wait", found.peer_name, *at_home)


async def part(both: Peering) -> None:
    """End the peering on both sides."""
    await both.run("peer", "delete", both.peer_name, "--cluster", both.home_name, "--yes", "--now")
    await both.run("peer", "delete", both.home_name, "--cluster", both.peer_name, "--yes")
    await both.home.gone(SERVICE_ACCOUNTS, tunnel_name(both.peer_name), PEERS_NAMESPACE)


async def condition(api: Api, name: str, type_: str) -> Json:
    """Return a condition of a PeerCluster; nothing if it has none of the type."""
    status: Json = (await api.get(PeerCluster.resource, name)).get("status") or {}
    found: list[Json] = status.get("conditions") or []
    return next((each for each in found if each["type"] == type_), Json())


async def place(both: Peering) -> tuple[str, str]:
    """Return URL and certificate of the port, as the peer has them."""
    half: Json = (await both.peer.get(PeerCluster.resource, both.home_name))["spec"]["guest"]["tunnel"]
    return f"https://127.0.0.1:{both.cluster(both.home_name).spec().ports.tunnel}", half["ca"]


async def stored(both: Peering) -> str:
    """Return the token of the tunnel that the peer has."""
    found = await both.peer.get(SECRETS, tunnel_name(both.home_name), PEERS_NAMESPACE)
    return base64.b64decode(found["data"]["token"]).decode()


async def test_a_pod_runs_at_a_peer_that_its_home_cannot_connect_to(both: Peering) -> None:
    there = await both.offload("shop")
    await both.home.create(PODS, placed("shop", "web"), "shop")
    above = await both.pod("web", "shop")
    assert above["spec"]["nodeName"] == node_name(both.peer_name)
    assert (await both.peer.get(PODS, "web", there))["status"]["phase"] == "Running"
    half: Json = (await both.home.get(PeerCluster.resource, both.peer_name))["spec"]["host"]
    assert (half["server"], half["dial"]) == (UNREACHABLE, "Peer")
    for api, name in ((both.home, both.peer_name), (both.peer, both.home_name)):
        assert (await condition(api, name, reasons.TUNNEL_OPEN))["status"] == "True"


async def test_the_credential_of_a_tunnel_opens_the_tunnel_of_its_peer_and_nothing_else(both: Peering) -> None:
    token = await stored(both)
    ours = both.home.client.connection
    async with Client(Connection(server=ours.server, source="the thief", ca=ours.ca, token=token)) as thief:
        for path in ("/api", "/version", "/api/v1/namespaces", "/openapi/v3"):
            with pytest.raises(Unauthorized):
                await thief.request("GET", path)
    # A tunnel that answers stays, also if a thief has the token.
    status, text = await knock(*await place(both), token)
    assert (status, "answers" in text) == (409, True)
    assert (await condition(both.home, both.peer_name, reasons.TUNNEL_OPEN))["status"] == "True"
    assert (await knock(*await place(both), token, "/"))[0] == 404
    # Nor do other tokens of the home open one: of its API server, of another audience, of an account of another name.
    account = {"metadata": {"name": "other-tunnel", "namespace": PEERS_NAMESPACE}}
    await both.home.create(SERVICE_ACCOUNTS, account, PEERS_NAMESPACE)
    await both.home.create(SERVICE_ACCOUNTS, {"metadata": {"name": "app"}}, PEERS_NAMESPACE)
    writer = Writer(both.home.client)

    async def issued(name: str, audience: str) -> str:
        asked = request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, name, seconds=3600, audience=audience)
        return msgspec.json.decode(await writer.send(asked))["status"]["token"]

    others = [
        "no-token",
        await token_of(both.home, "app", 3600),
        await issued("app", TUNNEL_AUDIENCE),
        await issued("other-tunnel", TUNNEL_AUDIENCE),
    ]
    for other in others:
        assert (await knock(*await place(both), other))[0] == 401
    # Not even an administrator makes a token of the account for an API server, or one that lasts.
    name = tunnel_name(both.peer_name)
    for audience, seconds in (("", 3600), ("vault", 3600), (TUNNEL_AUDIENCE, 8 * 24 * 3600)):
        asked = request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, name, seconds=seconds, audience=audience)
        with pytest.raises(Forbidden):
            await writer.send(asked)


async def test_a_tunnel_that_is_cut_comes_back_and_one_that_is_silent_is_replaced(both: Peering) -> None:
    half: Json = (await both.peer.get(PeerCluster.resource, both.home_name))["spec"]["guest"]["tunnel"]
    port = int(half["server"].rpartition(":")[2])
    await both.offload("cut")

    async def lead_to(number: int) -> None:
        tunnel = {"server": f"https://127.0.0.1:{number}"}
        await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"tunnel": tunnel}}})

    async def answers(status: str) -> None:
        async def so() -> bool:
            return (await condition(both.home, both.peer_name, reasons.TUNNEL_OPEN)).get("status") == status

        await until(so, f"the tunnel is open: {status}")

    async with TcpLink("127.0.0.1", port).running() as link:
        await lead_to(link.port)

        async def is_used() -> bool:
            return link.is_used

        await until(is_used, "the tunnel passes the link")
        await answers("True")
        link.become(LinkState.CUT)
        await answers("False")
        await both.home.create(PODS, placed("cut", "late"), "cut")
        link.become(LinkState.OPEN)
        await both.pod("late", "cut")
        # Nothing arrives any more, and no end learns of it: the peer comes by another way.
        link.become(LinkState.HALF_OPEN)
        await lead_to(port)
        await both.home.create(PODS, placed("cut", "later"), "cut")
        await both.pod("later", "cut")
    assert (await condition(both.peer, both.home_name, reasons.TUNNEL_OPEN))["status"] == "True"


async def test_a_client_without_a_token_does_not_keep_a_peer_from_coming_back(both: Peering) -> None:
    """PEER-51: it comes from another address, and opens connections without an end."""
    port = both.cluster(both.home_name).spec().ports.tunnel

    async def ready(status: str) -> None:
        async def so() -> bool:
            found = await condition(both.peer, both.home_name, reasons.READY)
            return found.get("status") == status

        await until(so, f"the guest half is ready: {status}")

    async with flooded(port) as flood:
        await flood.opened(1500)
        tunnel = {"server": UNREACHABLE}
        await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"tunnel": tunnel}}})
        # A home that has no tunnel is not served.
        await ready("False")
        assert (await condition(both.peer, both.home_name, reasons.READY))["reason"] == reasons.TUNNEL_CLOSED
        tunnel = {"server": f"https://127.0.0.1:{port}"}
        await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"tunnel": tunnel}}})
        await ready("True")
        await flood.opened(100)
    await both.run("peer", "wait", both.peer_name, "--cluster", both.home_name)


@pytest.mark.long
async def test_the_home_ends_a_tunnel_whose_account_is_gone(both: Peering, tmp_path: Path) -> None:
    """The account comes back with another uid, for which the old token is not valid."""
    before = await stored(both)
    await both.home.delete(SERVICE_ACCOUNTS, tunnel_name(both.peer_name), PEERS_NAMESPACE)

    async def closed() -> bool:
        return (await condition(both.home, both.peer_name, reasons.TUNNEL_OPEN)).get("status") == "False"

    await until(closed, "the tunnel has ended", seconds=150)
    assert (await knock(*await place(both), before))[0] == 401

    async def refused() -> bool:
        return (await condition(both.peer, both.home_name, reasons.STALLED)).get("reason") == reasons.TUNNEL_REFUSED

    await until(refused, "the peer needs another file")
    await part(both)
    await join(both, tmp_path)


async def test_nothing_of_a_tunnel_is_left_when_the_peering_ends(both: Peering, tmp_path: Path) -> None:
    """L14: and the clusters can be connected again."""
    await part(both)
    await both.home.gone(SECRETS, TUNNEL_SECRET, PEERS_NAMESPACE)
    await both.peer.gone(SECRETS, tunnel_name(both.home_name), PEERS_NAMESPACE)
    # An administrator of both clusters, which are contexts of a kubeconfig, needs no files.
    port = both.cluster(both.home_name).spec().ports.tunnel
    contexts = ("--kubeconfig", merged(both, tmp_path), "--quota", "cpu=1,memory=1Gi,pods=5", "--dial", "Peer")
    asked = ("peer", "create", both.home_name, both.peer_name, *contexts)
    refused = await both.call(*asked)
    assert refused.returncode
    assert "--tunnel-server is needed" in refused.stderr
    await both.run(*asked, "--tunnel-server", f"https://127.0.0.1:{port}")
    assert (await condition(both.home, both.peer_name, reasons.TUNNEL_OPEN))["status"] == "True"
    await part(both)
    await join(both, tmp_path)


def merged(both: Peering, folder: Path) -> str:
    """Write a kubeconfig with a context for each cluster, of its name; return the path."""
    whole: Json = {"apiVersion": "v1", "kind": "Config", "contexts": [], "clusters": [], "users": []}
    for name in (both.home_name, both.peer_name):
        found: Json = yaml.safe_load(both.cluster(name).kubeconfig_path.read_text())
        whole["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
        whole["clusters"].append({**found["clusters"][0], "name": name})
        whole["users"].append({**found["users"][0], "name": name})
    path = folder / "kubeconfig"
    path.write_text(json.dumps(whole))
    return str(path)

"""`tenantry up --peers`: whole and light peers whose Nodes are Ready when the command returns, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api.model import Resource
from tenantry.api.peercluster import PeerCluster, node_name
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import Api
from testkit.peerings import Peering

HOME = "many"
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)


@pytest_asyncio.fixture(scope="module")
async def home(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home with two light peers, started by one command."""
    found = Peering(tenantry_home, HOME, f"{HOME}-peer-1")
    try:
        await found.run("up", "--name", HOME, "--throwaway", "--peers", "2", "--light", "--no-operator")
        async with Client(kubeconfig.load([LocalCluster(HOME, root=tenantry_home).kubeconfig_path])) as client:
            found.apis[HOME] = Api(client)
            yield found
    finally:
        await found.run("down", "--name", HOME, "--purge", "--yes", checked=False)


async def ready(home: Peering, *names: str) -> None:
    for name in names:
        node = await home.home.get(NODES, node_name(name))
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"


async def test_the_nodes_of_light_peers_are_ready_when_up_returns(home: Peering) -> None:
    await ready(home, f"{HOME}-peer-1", f"{HOME}-peer-2")
    told = await home.run("status")
    for number in (1, 2):
        assert f'cluster "{HOME}-peer-{number}": Ready' in told
    assert "light@" not in (await home.run("status", "--name", f"{HOME}-peer-1"))
    # Each is a cluster of its own.
    first, second = [
        await home.run("kubectl", "--name", f"{HOME}-peer-{number}", "--", "get", "namespace", "default", "-o", "yaml")
        for number in (1, 2)
    ]
    assert first != second


async def test_a_light_peer_is_stopped_and_started_with_its_home_only(home: Peering) -> None:
    for verb in ("down", "up"):
        told = await home.run(verb, "--name", f"{HOME}-peer-1", checked=False)
        assert f'is a light peer of "{HOME}"' in told or f"`tenantry up --name {HOME}`" in told
    await ready(home, f"{HOME}-peer-1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--light",), "--light needs --peers"),
        (("--peers", "0"), "is not in the range"),
        (("--peers", "65"), "is not in the range"),
        (("--peers", "1"), "has 2 peers already"),
    ],
)
async def test_wrong_numbers_of_peers_change_nothing(home: Peering, arguments: tuple[str, ...], words: str) -> None:
    assert words in await home.run("up", "--name", HOME, *arguments, checked=False)
    assert len(await home.home.list(PeerCluster.resource)) == 2


@pytest.mark.long
async def test_a_whole_peer_joins_later_and_all_stop_and_start_together(home: Peering) -> None:
    await home.run("up", "--name", HOME, "--peers", "3")
    await ready(home, *(f"{HOME}-peer-{number}" for number in (1, 2, 3)))
    await home.run("down", "--name", HOME)
    assert not any(LocalCluster(f"{HOME}-peer-{number}", root=home.folder).is_running() for number in (1, 2, 3))
    assert "with 3 peers" in await home.run("up", "--name", HOME, "--throwaway")
    await home.run("down", "--name", HOME, "--purge", "--yes")
    assert not list(home.folder.glob(f"clusters/{HOME}*"))

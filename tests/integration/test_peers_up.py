"""`tenantry up --peers`: whole and light peers whose Nodes are Ready when the command returns, and their end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.model import Json, Resource
from tenantry.api.offloading import NamespaceMap
from tenantry.api.peercluster import PeerCluster, node_name
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, until
from testkit.peerings import PATIENCE, Peering

HOME = "many"
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)


@asynccontextmanager
async def started(folder: Path, name: str) -> AsyncGenerator[Peering]:
    """Run a home with two light peers, started by one command, while the context is open."""
    found = Peering(folder, name, f"{name}-peer-1")
    try:
        flags = ("--peers", "2", "--light", "--no-operator")
        await found.run("up", "--cluster", name, "--throwaway", PATIENCE, *flags)
        async with Client(kubeconfig.load([LocalCluster(name, root=folder).kubeconfig_path])) as client:
            found.apis[name] = Api(client)
            yield found
    finally:
        await found.run("down", "--cluster", name, "--purge", "--yes", checked=False)


@pytest_asyncio.fixture(scope="module")
async def home(tenantry_home: Path) -> AsyncIterator[Peering]:
    """The home that the tests share."""
    async with started(tenantry_home, HOME) as found:
        yield found


async def ready(home: Peering, *names: str) -> None:
    for name in names:
        node = await home.home.get(NODES, node_name(name))
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"


async def test_the_nodes_of_light_peers_are_ready_when_up_returns(home: Peering) -> None:
    await ready(home, f"{HOME}-peer-1", f"{HOME}-peer-2")

    async def are_ready() -> bool:
        told = await home.run("status", "--local", checked=False)
        return all(f'cluster "{HOME}-peer-{number}": Ready' in told for number in (1, 2))

    await until(are_ready, "both answer in time")
    assert "light@" not in (await home.run("status", "--local", "--cluster", f"{HOME}-peer-1"))
    # Each is a cluster of its own.
    first, second = [
        await home.run(
            "kubectl", "--cluster", f"{HOME}-peer-{number}", "--", "get", "namespace", "default", "-o", "yaml"
        )
        for number in (1, 2)
    ]
    assert first != second


async def test_a_light_peer_is_stopped_and_started_with_its_home_only(home: Peering) -> None:
    for verb in ("down", "up"):
        told = await home.run(verb, "--cluster", f"{HOME}-peer-1", checked=False)
        assert f'is a light peer of "{HOME}"' in told or f"`tenantry up --cluster {HOME}`" in told
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
    assert words in await home.run("up", "--cluster", HOME, *arguments, checked=False)
    assert len(await home.home.list(PeerCluster.resource)) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pods", "--peers", "3"), '--peers 3: the cluster "many" has 2: `tenantry up --peers 3`'),
        (("growth", "--few", "2", "--many", "2"), "--few 2 must be less than --many 2"),
        (("growth", "--of", "peers", "--few", "1", "--many", "3"), "has 2"),
        (("growth", "--of", "peers", "--peers", "2"), "--many is their number"),
    ],
)
async def test_benchmarks_of_more_peers_than_there_are_do_not_start(
    home: Peering, arguments: tuple[str, ...], words: str
) -> None:
    found = await home.call("bench", "federation", *arguments, "--cluster", HOME)
    assert found.returncode == 2
    assert words in found.stderr


async def measured(home: Peering, *arguments: str) -> Json:
    found = await home.call("bench", "federation", *arguments, "--cluster", HOME, "-o", "json")
    assert found.returncode == 0, found.stderr
    result: Json = msgspec.json.decode(found.stdout)
    return result


FORM = "Light, without an operator"


@pytest.mark.long
async def test_benchmarks_measure_both_sides_and_leave_nothing(home: Peering) -> None:
    """L10: pods, namespaces and idle peers."""
    pods = await measured(home, "pods", "--pods", "4", "--rounds", "1")
    assert (pods["peers"], pods["peer_form"], pods["pods"], pods["rounds"]) == (2, FORM, 4, 1)
    assert pods["ratio"] == pytest.approx(pods["raw_seconds"] / pods["mirrored_seconds"], rel=0.01)
    each = pods["operator_milliseconds"] + pods["client_milliseconds"]
    assert pods["home_cpu_ratio"] == pytest.approx(each / pods["raw_client_milliseconds"], rel=0.02)
    assert pods["server_cpu_ratio"] > 0

    spaces = await measured(home, "namespaces", "--namespaces", "2", "--rounds", "1")
    assert (spaces["peers"], spaces["namespaces"], spaces["rounds"]) == (2, 2, 1)
    assert spaces["ratio"] == pytest.approx(spaces["raw_seconds"] / spaces["mapped_seconds"], rel=0.01)
    assert spaces["home_cpu_ratio"] > 0

    growth = await measured(home, "growth", "--of", "peers", "--few", "1", "--many", "2", "--rounds", "1")
    few, many = growth["few"], growth["many"]
    assert [(one["namespaces"], one["peers"]) for one in (few, many)] == [(1, 1), (1, 2)]
    assert growth["ratio"] == pytest.approx(many["milliseconds"] / few["milliseconds"], rel=0.01)
    assert growth["peer_operator_ratio"] is None

    idle = await measured(home, "idle", "--idle-seconds", "2")
    assert (idle["peers"], idle["idle_seconds"]) == (2, 2.0)
    assert 0.1 < idle["gibibytes"] < 2
    assert 0 <= idle["cores"] < 2
    assert idle["operator_mebibytes"] > 10

    for kind in ("namespaces", "tenants", "nodes", "pods -A"):
        assert "bench-" not in await home.run("kubectl", "--cluster", HOME, "--", "get", *kind.split(), "-o", "name")
    assert not any(each["spec"].get("desired") for each in await home.home.list(NamespaceMap.resource))
    for number in (1, 2):
        there = await home.run("kubectl", "--cluster", f"{HOME}-peer-{number}", "--", "get", "namespaces", "-o", "name")
        assert "bench-" not in there


@pytest.mark.long
async def test_a_whole_peer_joins_later_and_all_stop_and_start_together(tenantry_home: Path) -> None:
    name = "several"
    async with started(tenantry_home, name) as home:
        await home.run("up", "--cluster", name, "--peers", "3")
        await ready(home, *(f"{name}-peer-{number}" for number in (1, 2, 3)))
        await home.run("down", "--cluster", name)
        assert not any(LocalCluster(f"{name}-peer-{number}", root=home.folder).is_running() for number in (1, 2, 3))
        assert "with 3 peers" in await home.run("up", "--cluster", name, "--throwaway")
        await home.run("down", "--cluster", name, "--purge", "--yes")
        assert not list(home.folder.glob(f"clusters/{name}*"))

"""Light clusters: API servers that share one etcd, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import Forbidden, InputError, LocalError, Unreachable
from tenantry.api.kubernetes import RBAC_GROUP as RBAC
from tenantry.api.kubernetes import RoleBinding
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.local.light import LightCluster, LightClusters, light_clusters
from tenantry.local.process import is_same, start_ticks
from testkit.api import CONFIG_MAPS, ROLES, SECONDS, Api, Json, until

NAMES = ("alpha", "beta", "gamma")
SHORT_SECONDS = 1.0
"""For an answer that never comes."""


@pytest_asyncio.fixture(scope="module")
async def clusters() -> AsyncIterator[LightClusters]:
    async with light_clusters(*NAMES) as made:
        yield made


async def write(cluster: LightCluster, name: str) -> None:
    async with Client(cluster.connection) as client:
        await Api(client).create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")


async def read(cluster: LightCluster) -> list[str]:
    """Return the names of the ConfigMaps that tests have written."""
    async with Client(cluster.connection) as client:
        found: Sequence[Json] = await Api(client).list(CONFIG_MAPS, "default")
    return [each["metadata"]["name"] for each in found if each["metadata"]["name"] != "kube-root-ca.crt"]


async def test_each_has_data_keys_and_an_administrator_of_its_own(clusters: LightClusters) -> None:
    alpha, beta, gamma = (clusters[name] for name in NAMES)
    await write(alpha, "only-alpha")
    assert "only-alpha" in await read(alpha)
    assert "only-alpha" not in [*await read(beta), *await read(gamma)]
    assert len({cluster.port for cluster in clusters.all}) == len(NAMES)
    assert len({cluster.connection.ca for cluster in clusters.all}) == len(NAMES)
    assert len({cluster.connection.key for cluster in clusters.all}) == len(NAMES)


async def test_the_others_answer_while_one_is_stopped(clusters: LightClusters) -> None:
    alpha, beta, gamma = (clusters[name] for name in NAMES)
    before = await read(beta)
    beta.pause()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT_SECONDS):
                await read(beta)
        await write(alpha, "while-beta-hangs")
        assert "while-beta-hangs" in await read(alpha)
        assert "while-beta-hangs" not in await read(gamma)
    finally:
        beta.resume()
    assert await read(beta) == before


async def test_a_killed_one_is_started_again_with_its_data(clusters: LightClusters) -> None:
    gamma = clusters["gamma"]
    await write(gamma, "kept")
    server = gamma.connection.server
    await gamma.kill()
    with pytest.raises(LocalError, match='"gamma" does not run'):
        _ = gamma.pid
    with pytest.raises(Unreachable):
        await read(gamma)
    await gamma.start()
    assert gamma.connection.server == server
    assert "kept" in await read(gamma)


async def test_one_is_restarted_without_its_data(clusters: LightClusters) -> None:
    beta = clusters["beta"]
    await write(beta, "lost")
    before = beta.connection
    await beta.restart(empty=True)
    after = beta.connection
    assert (after.server, after.ca, after.key) == (before.server, before.ca, before.key)
    assert await read(beta) == []


async def test_clusters_are_added_and_removed_while_others_run(clusters: LightClusters) -> None:
    with pytest.raises(InputError, match='"alpha" already'):
        await clusters.add("alpha")
    delta = await clusters.add("delta")
    assert await read(delta) == []
    pid, ticks = delta.pid, start_ticks(delta.pid)
    await clusters.remove("delta")
    assert not is_same(pid, ticks)
    assert [cluster.name for cluster in clusters.all] == list(NAMES)


@pytest.mark.long
async def test_a_watch_ends_at_the_bound_and_a_removed_user_begins_no_other(clusters: LightClusters) -> None:
    """A client may ask for a day: the API server looks at rights only when a watch begins."""
    bound = await clusters.add("bound", watch_cache=True, max_watch_seconds=2)
    subject = {"kind": "User", "name": "ada", "apiGroup": RBAC}
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]
    url, day = wire.path(CONFIG_MAPS, "default"), {"watch": "true", "timeoutSeconds": "86400"}
    ada = msgspec.structs.replace(bound.connection, impersonate="ada")
    async with Client(bound.connection) as admin, Client(ada) as client:
        api = Api(admin)
        await api.create(ROLES, {"metadata": {"name": "reader"}, "rules": rules}, "default")
        role = {"kind": "Role", "name": "reader", "apiGroup": RBAC}
        binding = {"metadata": {"name": "ada"}, "roleRef": role, "subjects": [subject]}
        await api.create(RoleBinding.resource, binding, "default")
        await until(partial(api.may, subject, "watch", "", "configmaps", "default"), "ada has her rights")
        async with client.open("GET", url, query=day) as watching, asyncio.timeout(SECONDS):
            await api.create(CONFIG_MAPS, {"metadata": {"name": "seen"}}, "default")
            lines = aiter(watching.content)
            while b'"seen"' not in (line := await anext(lines)):
                assert line
            await api.delete(RoleBinding.resource, "ada", "default")
            # The stream ends as one does whose client asked for it: whole, and without an event of an error.
            rest = [line async for line in lines]
        assert not any(b'"ERROR"' in line for line in rest)

        async def is_refused() -> bool:
            try:
                async with client.open("GET", url, query=day):
                    return False
            except Forbidden:
                return True

        await until(is_refused, "RBAC has seen that the binding is gone")
    await clusters.remove("bound")

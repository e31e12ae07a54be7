"""Real machines as Machines of Cluster API, with its own managers and their one-time tokens; see test_real_nodes.py."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.clusterapi import CLUSTERS, KUBEADM_CONFIGS, MACHINES
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from testkit import clusterapimanagers
from testkit.api import SECRETS, Api, until
from testkit.clusterapiobjects import (
    CONFIG_TEMPLATES,
    DEPLOYMENTS,
    make_cluster,
    make_config_template,
    reference,
    remains,
    told,
)
from testkit.installation import install
from testkit.planes import command
from testkit.realpods import missing

pytest_plugins = ["testkit.fixtures"]
pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(1200)]

Json = dict[str, Any]
SECONDS = 400.0


@pytest_asyncio.fixture
async def host(tenantry_home: Path, tmp_path: Path) -> AsyncGenerator[Api]:
    """A cluster with three real nodes, the operator, the provider and Cluster API's managers: one node stays shared."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("realcapi", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, install=install, operator=True, real_nodes=3, timeout_seconds=240.0))
    try:
        code, _, err = await command(local, "install", "--cluster-api-provider")
        assert code == 0, err
        async with (
            Client(kubeconfig.load([local.kubeconfig_path])) as client,
            clusterapimanagers.running(local, Api(client), tmp_path),
        ):
            yield Api(client)
    finally:
        await local.down(purge=True)


async def running(host: Api, namespace: str, count: int, seen: list[str]) -> bool:
    """Return whether there are so many Machines, all of them Running; `seen` gets what keeps them."""
    found = await host.list(MACHINES, namespace)
    seen[:] = [line for each in found for line in told(each)]
    # A Machine that its controller has not seen yet has no status.
    return [each.get("status", {}).get("phase") for each in found] == ["Running"] * count


async def test_machines_of_cluster_api_are_real_nodes_that_join_with_its_tokens(
    host: Api, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """H04: a real kubelet for each Machine, scaled to one and back to two; the end leaves nothing."""
    seen: list[str] = []

    def say(what: str, begin: float) -> None:
        with capsys.disabled():
            print(f"{what} after {time.monotonic() - begin:.1f} s")

    await host.make_tenant(name)
    await make_config_template(host, "web", name)
    begin = time.monotonic()
    bootstrap = {"configRef": reference(CONFIG_TEMPLATES.group, CONFIG_TEMPLATES.kind, "web")}
    await make_cluster(host, "web", name, bootstrap, 2)
    await until(lambda: running(host, name, 2, seen), "two Machines are Running", seconds=SECONDS, seen=lambda: seen)
    say("two Machines are Running", begin)

    configs = await host.list(KUBEADM_CONFIGS, name)
    given = {each["spec"]["joinConfiguration"]["discovery"]["bootstrapToken"]["token"][:6] for each in configs}
    handovers = await host.list(NodeHandover.resource)
    joined = {each["status"]["join"]["secret"]["name"].rpartition("-")[2] for each in handovers}
    assert (len(given), joined) == (2, given), "each with the token that Cluster API has made for it"
    secret = await host.get(SECRETS, "web-kubeconfig", name)
    file = tmp_path / "kubeconfig"
    file.write_bytes(base64.b64decode(secret["data"]["value"]))
    async with Client(kubeconfig.load([file])) as client:
        inside = Api(client)
        nodes = await inside.list(Node.resource)
        providers = {each["spec"]["providerID"] for each in nodes}
        assert providers == {each["spec"]["providerID"] for each in await host.list(MACHINES, name)}
        assert {each["status"]["nodeInfo"]["kubeletVersion"][:5] for each in nodes} == {"v1.36"}

        async def used() -> bool:
            names = {each["metadata"]["name"] for each in await inside.list(SECRETS, "kube-system")}
            return not {f"bootstrap-token-{each}" for each in given} & names

        await until(used, "no token is left inside", seconds=SECONDS)

    for count in (1, 2):
        begin = time.monotonic()
        await host.patch(DEPLOYMENTS, "web", {"spec": {"replicas": count}}, name)
        what = f"{count} Machines are Running"
        await until(lambda count=count: running(host, name, count, seen), what, seconds=SECONDS, seen=lambda: seen)
        say(what, begin)

    begin = time.monotonic()
    await host.delete(CLUSTERS, "web", name)

    async def ended() -> bool:
        seen[:] = await remains(host)
        return not seen

    await until(ended, "nothing is left", seconds=SECONDS, seen=lambda: seen)
    say("deleted", begin)
    for each in await host.list(Node.resource):
        assert not each["spec"].get("unschedulable"), each["metadata"]["name"]

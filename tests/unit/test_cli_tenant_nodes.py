"""`tenantry tenant create --control-plane dedicated --nodes N` (H04)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.tenant import Tenant
from tenantry.cli import controlplane, following, session
from tenantry.cli.tenant import tenant
from testkit.model import World
from testkit.worldclient import WorldClient

SHOP = ("create", "--kubeconfig", "nowhere", "shop", "--owner", "zoe", "--control-plane", "dedicated")


def test_a_dry_run_prints_the_cluster_beside_the_tenant() -> None:
    """H04: for Git, which has both objects."""
    done = CliRunner().invoke(tenant, [*SHOP, "--nodes", "3", "--dry-run"])
    first, second = yaml.safe_load_all(done.stdout)
    assert (first["kind"], second["kind"]) == ("Tenant", "DedicatedCluster")
    assert (second["metadata"], second["spec"]) == ({"name": "shop", "namespace": "shop"}, {"nodes": 3})


def test_nodes_without_a_cluster_are_refused() -> None:
    """H04: the message names the flag for nodes without a cluster."""
    done = CliRunner().invoke(tenant, ["create", "--kubeconfig", "nowhere", "shop", "--owner", "zoe", "--nodes", "3"])
    assert isinstance(done.exception, InputError)
    assert "--nodes needs --control-plane Dedicated; --own-nodes" in str(done.exception)


def test_the_cluster_gets_its_nodes_when_the_operator_has_created_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """H04: the operator creates it with one node."""
    world = World()

    def work(_target: object, todo: Callable[[WorldClient], Any], **_options: object) -> object:
        return asyncio.run(todo(WorldClient(world, lambda: "none")))

    def prepared(*_: object) -> None:
        pass

    async def follow(*_: object, **__: object) -> Any:  # noqa: ANN401 - as the function in whose place it is
        yield {}
        world.put_in(Namespace.resource, {"metadata": {"name": "shop"}})
        world.create(DedicatedCluster(metadata=ObjectMeta(name="shop", namespace="shop")))
        yield {"shop/shop": None}

    monkeypatch.setattr(session, "run", work)
    monkeypatch.setattr(following, "follow", follow)
    monkeypatch.setattr(controlplane, "prepare", prepared)
    done = CliRunner().invoke(tenant, [*SHOP, "--nodes", "3"])
    assert done.exception is None, done.output
    assert [each["metadata"]["name"] for each in world.list(Tenant.resource)] == ["shop"]
    assert world.get(DedicatedCluster.resource, "shop/shop")["spec"]["nodes"] == 3

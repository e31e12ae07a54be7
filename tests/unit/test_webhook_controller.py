"""The objects of the webhook that the leader keeps, as long as the installed role is there."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.controllers.webhook import keys
from tenantry.controllers.webhook.controller import CONFIGURATIONS, ROLES, WebhookController
from tenantry.controllers.webhook.mutations import CONFIGURATION, KEYS_OBJECT, ROLE, WebhookPlace
from tenantry.install import fallback, manifests
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]
SECRET = f"{SYSTEM_NAMESPACE}/{KEYS_OBJECT}"
KEPT = [(CONFIGURATIONS, CONFIGURATION), (keys.SECRETS, SECRET)]


@pytest.fixture
def world() -> World:
    """An installation for an API server without mutating policies."""
    found = World()
    role, _ = fallback.rights(manifests.LOCAL_USER)
    found.put_in(ROLES, role)
    found.put_in(Namespace.resource, {"metadata": {"name": SYSTEM_NAMESPACE}})
    return found


def running(world: World) -> WorldCluster:
    """Return an operator that only keeps the webhook."""
    place = WebhookPlace(address="127.0.0.1:20000")
    return WorldCluster(world, [WebhookController(fallback.served(manifests.LOCAL_USER), place)])


def owners(world: World, resource: Resource, key: str) -> list[str]:
    return [each["uid"] for each in world.get(resource, key)["metadata"]["ownerReferences"]]


def test_the_installed_role_owns_what_the_operator_writes(world: World) -> None:
    """Issue 20, point 1: when Helm deletes the role, the garbage collector deletes the configuration and the keys."""
    running(world).settle()
    uid = world.get(ROLES, ROLE)["metadata"]["uid"]
    assert [owners(world, *each) for each in KEPT] == [[uid], [uid]]


@pytest.mark.parametrize(("resource", "key"), KEPT)
def test_an_object_that_lost_its_owner_gets_it_back(world: World, resource: Resource, key: str) -> None:
    """Issue 20, point 1: otherwise, it would outlive the installation. The keys stay those that replicas serve."""
    cluster = running(world)
    cluster.settle()
    before = world.get(keys.SECRETS, SECRET)["data"]
    world.patch(resource, key, {"metadata": {"ownerReferences": None}})
    cluster.settle()
    assert owners(world, resource, key) == [world.get(ROLES, ROLE)["metadata"]["uid"]]
    assert world.get(keys.SECRETS, SECRET)["data"] == before


def test_without_the_role_nothing_is_written_again(world: World) -> None:
    """Issue 20, point 1: an uninstallation, or an upgrade to mutating policies, while the leader still runs."""
    cluster = running(world)
    cluster.settle()
    world.delete(ROLES, ROLE)
    for resource, key in KEPT:
        world.delete(resource, key)
    cluster.settle()
    assert [world.list(resource) for resource, _ in KEPT] == [[], []]


def test_a_role_that_is_installed_again_owns_new_objects(world: World) -> None:
    """Issue 20, point 1: `helm uninstall`, and `helm install` while the operator still runs."""
    cluster = running(world)
    cluster.settle()
    role: Json = world.get(ROLES, ROLE)
    world.delete(ROLES, ROLE)
    world.put_in(ROLES, {**role, "metadata": {"name": ROLE}})
    cluster.settle()
    uid = world.get(ROLES, ROLE)["metadata"]["uid"]
    assert uid != role["metadata"]["uid"]
    assert [owners(world, *each) for each in KEPT] == [[uid], [uid]]

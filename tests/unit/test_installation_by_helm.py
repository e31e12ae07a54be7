"""The operator and Helm agree on an installation: marks of a release stay, and an upgrade or rollback is left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tenantry import __version__
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import BUILD, INSTALLED_VERSION, MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.controllers.installation.comparison import differing
from tenantry.controllers.installation.controller import InstallationController
from tenantry.controllers.installation.release import (
    HELM,
    PART_OF,
    RELEASE_NAME,
    RELEASE_NAMESPACE,
    HelmRelease,
    marked,
)
from tenantry.controllers.installation.shipment import SELECTED, ShippedObject
from tenantry.install import manifests
from tenantry.install.repairs import is_repaired, shipment
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

SHIPMENT = shipment(manifests.foundation(manifests.SERVICE_ACCOUNT))
RELEASE = HelmRelease("tenancy", "operations")
MARKS = {RELEASE_NAME: "tenancy", RELEASE_NAMESPACE: "operations"}


def shipped(kind: str, name: str) -> ShippedObject:
    """Return an object that is repaired."""
    return next(each for each in SHIPMENT.objects if (each.resource.kind, each.name) == (kind, name))


GUARD = shipped("ValidatingAdmissionPolicy", "tenantry-namespaces")
KIND = shipped("CustomResourceDefinition", "tenants.tenantry.dev")


@pytest.fixture
def world() -> World:
    """An installation as Helm makes it: its label on every object, whatever the chart says."""
    found = World()
    for each in sorted(SHIPMENT.objects, key=lambda one: one.resource.kind != "Namespace"):
        found.put_in(each.resource, marked(each.value(), RELEASE))
    return found


def running(world: World) -> WorldCluster:
    """Return an operator that only repairs."""
    return WorldCluster(world, [InstallationController(SHIPMENT)])


def marks(value: Json) -> tuple[str, dict[str, str]]:
    """Return what Helm wrote on an object."""
    annotations: dict[str, str] = value["metadata"].get("annotations", {})
    return value["metadata"]["labels"][MANAGED_BY], {key: annotations[key] for key in MARKS if key in annotations}


def test_an_installation_by_helm_is_left_alone(world: World) -> None:
    """X12: the operator would write its label over Helm's, and the next upgrade would fail."""
    before = copy.deepcopy(world.objects.data)
    cluster = running(world)
    cluster.settle(3600)
    assert (world.objects.data, cluster.said) == (before, [])


def test_every_repaired_object_is_selected_by_a_label_that_helm_leaves_alone() -> None:
    for each in filter(is_repaired, manifests.foundation(manifests.SERVICE_ACCOUNT)):
        labels = marked(each, RELEASE)["metadata"]["labels"]
        assert (labels[PART_OF], labels[INSTALLED_VERSION], labels[MANAGED_BY]) == (MANAGER, __version__, HELM)
    assert f"{PART_OF}={MANAGER},{INSTALLED_VERSION}" == SELECTED


@pytest.mark.parametrize("each", [GUARD, KIND])
def test_a_deleted_object_comes_back_with_the_marks_of_its_release(world: World, each: ShippedObject) -> None:
    """Without them, Helm neither upgrades nor deletes the object."""
    world.delete(each.resource, each.key)
    cluster = running(world)
    cluster.settle()
    made = world.get(each.resource, each.key)
    assert (differing(each.value(), made), marks(made)) == ([], (HELM, MARKS))


def test_a_changed_object_is_restored_and_keeps_the_marks_of_its_release(world: World) -> None:
    value = world.get(GUARD.resource, GUARD.key)
    value["spec"]["matchConditions"] = [{"name": "never", "expression": "false"}]
    world.replace(GUARD.resource, GUARD.key, value)
    running(world).settle()
    made = world.get(GUARD.resource, GUARD.key)
    assert (differing(GUARD.value(), made), marks(made)) == ([], (HELM, MARKS))


@pytest.mark.parametrize("mark", [MANAGED_BY, PART_OF])
def test_another_value_of_a_label_is_a_difference(world: World, mark: str) -> None:
    """Only Helm's own value is none."""
    value = world.get(GUARD.resource, GUARD.key)
    value["metadata"]["labels"][mark] = "mallory"
    world.replace(GUARD.resource, GUARD.key, value)
    running(world).settle()
    assert world.get(GUARD.resource, GUARD.key)["metadata"]["labels"][mark] == MANAGER


@pytest.mark.parametrize("version", ["0.0.1", __version__, "99.0.0"])
def test_nothing_is_repaired_while_helm_installs_another_build(world: World, version: str) -> None:
    """X12: `helm rollback` installs an older version while the newer operator still runs."""
    namespace = world.get(Namespace.resource, SYSTEM_NAMESPACE)
    namespace["metadata"]["labels"][INSTALLED_VERSION] = version
    namespace["metadata"]["annotations"][BUILD] = "another"
    world.replace(Namespace.resource, SYSTEM_NAMESPACE, namespace)
    world.delete(GUARD.resource, GUARD.key)
    cluster = running(world)
    cluster.settle(3600)
    assert ((GUARD.resource, GUARD.key) in world.objects, cluster.said) == (False, [])

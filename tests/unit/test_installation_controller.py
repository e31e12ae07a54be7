"""What the operator repairs of an installation, and what it leaves alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry import __version__
from tenantry.api import reasons
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace
from tenantry.api.marks import BUILD, INSTALLED_VERSION, SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.controllers.installation.comparison import differing, exact, stored
from tenantry.controllers.installation.controller import LAST_PAUSE_SECONDS, InstallationController
from tenantry.controllers.installation.shipment import ShippedObject, foreign
from tenantry.install import manifests
from tenantry.install.repairs import REPAIRS, shipment
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

SHIPMENT = shipment(manifests.foundation(manifests.LOCAL_USER))
NEVER = {"name": "never", "expression": "false"}
MORE = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
MALLORY = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}


def shipped(kind: str, name: str) -> ShippedObject:
    """Return an object that is repaired."""
    return next(each for each in SHIPMENT.objects if (each.resource.kind, each.name) == (kind, name))


GUARD = shipped("ValidatingAdmissionPolicy", "tenantry-namespaces")
BINDING = shipped("ValidatingAdmissionPolicyBinding", "tenantry-marks")


@pytest.fixture
def world() -> World:
    """An installation as it is shipped."""
    found = World()
    for each in sorted(SHIPMENT.objects, key=lambda one: one.resource.kind != "Namespace"):
        found.put_in(each.resource, each.value())
    return found


def change(world: World, each: ShippedObject, edit: Callable[[Json], None]) -> None:
    """Change an object as another client would."""
    value = world.get(each.resource, each.key)
    edit(value)
    world.replace(each.resource, each.key, value)


def running(world: World) -> WorldCluster:
    """Return an operator that only repairs."""
    return WorldCluster(world, [InstallationController(SHIPMENT)])


def is_shipped(world: World, each: ShippedObject) -> bool:
    return not differing(each.value(), world.get(each.resource, each.key))


def disarm(value: Json) -> None:
    value["spec"]["matchConditions"] = [*value["spec"].get("matchConditions", []), NEVER]


def test_an_installation_as_shipped_is_left_alone(world: World) -> None:
    before = copy.deepcopy(world.objects.data)
    cluster = running(world)
    cluster.settle()
    assert (world.objects.data, cluster.said) == (before, [])


def _only_audits(value: Json) -> None:
    value["spec"]["validationActions"] = ["Audit"]


def _binds(value: Json) -> None:
    value["subjects"] = [*value["subjects"], MALLORY]


def _widens(value: Json) -> None:
    value["rules"] = [*value["rules"], MORE]


def _unlabels(value: Json) -> None:
    del value["metadata"]["labels"][INSTALLED_VERSION]


def _loosens(value: Json) -> None:
    value["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"


def _forgets(value: Json) -> None:
    value["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("kind", "name", "edit", "field"),
    [
        (GUARD.resource.kind, GUARD.name, disarm, "spec.matchConditions"),
        (BINDING.resource.kind, BINDING.name, _only_audits, "spec.validationActions"),
        (BINDING.resource.kind, BINDING.name, _unlabels, f"metadata.labels[{INSTALLED_VERSION}]"),
        ("ClusterRole", "tenantry-admin", _widens, "rules"),
        ("ClusterRoleBinding", "tenantry-operator", _binds, "subjects"),
        ("Role", "tenantry-shared-rules", _widens, "rules"),
        ("Namespace", SYSTEM_NAMESPACE, _loosens, "metadata.labels[pod-security.kubernetes.io/enforce]"),
        ("CustomResourceDefinition", "tenants.tenantry.dev", _forgets, "spec.versions"),
    ],
)
def test_a_changed_object_is_restored_and_reported(
    world: World, kind: str, name: str, edit: Callable[[Json], None], field: str
) -> None:
    """X06: also if the change took away the label by which the operator watches the object."""
    cluster, each = running(world), shipped(kind, name)
    cluster.settle()
    change(world, each, edit)
    cluster.settle()
    assert is_shipped(world, each)
    ((key, _, reason, note),) = cluster.said
    assert (key, reason) == (each.key, reasons.CORRECTED)
    assert note.startswith(f"{each.reference} differed in {field}; ")


@pytest.mark.parametrize("each", [GUARD, BINDING, shipped("ClusterRole", "tenantry-admin")])
def test_a_deleted_object_comes_back(world: World, each: ShippedObject) -> None:
    """X06: also if it was deleted while no operator ran."""
    world.delete(each.resource, each.key)
    cluster = running(world)
    cluster.settle()
    assert is_shipped(world, each)
    assert [note.partition(";")[0] for *_, note in cluster.said] == [f"{each.reference} was missing"]


def test_the_marks_of_other_clients_stay(world: World) -> None:
    """X06: an Argo CD that finds its annotation missing would apply the object again."""
    tracked = "argocd.argoproj.io/tracking-id"

    def edit(value: Json) -> None:
        disarm(value)
        value["metadata"]["annotations"] = {tracked: "tenantry"}

    change(world, GUARD, edit)
    running(world).settle()
    assert is_shipped(world, GUARD)
    assert world.get(GUARD.resource, GUARD.key)["metadata"]["annotations"] == {tracked: "tenantry"}


def test_what_kubernetes_collects_in_an_aggregated_role_is_no_difference(world: World) -> None:
    each = shipped("ClusterRole", "tenantry-owner")
    change(world, each, lambda value: value.update(rules=[MORE]))
    cluster = running(world)
    cluster.settle()
    assert world.get(each.resource, each.key)["rules"] == [MORE]
    assert cluster.said == []


@pytest.mark.parametrize(
    ("version", "is_left"), [("9.0.0", True), ("0.0.9", False), ("", False), ("nonsense", False), (__version__, False)]
)
def test_only_objects_of_newer_versions_are_left_alone(world: World, version: str, *, is_left: bool) -> None:
    """X12: in a rolling upgrade, the older operator must not undo the newer installation."""

    def edit(value: Json) -> None:
        disarm(value)
        value["metadata"]["labels"][INSTALLED_VERSION] = version

    change(world, GUARD, edit)
    running(world).settle()
    assert (not is_shipped(world, GUARD)) is is_left


@pytest.mark.parametrize(("version", "build"), [("9.0.0", SHIPMENT.build), (__version__, "another")])
def test_nothing_is_repaired_after_another_version_or_build_was_installed(
    world: World, version: str, build: str
) -> None:
    """X12: a policy that the newer version deletes must not come back."""
    namespace = world.get(Namespace.resource, SYSTEM_NAMESPACE)
    namespace["metadata"]["labels"][INSTALLED_VERSION] = version
    namespace["metadata"]["annotations"][BUILD] = build
    world.replace(Namespace.resource, SYSTEM_NAMESPACE, namespace)
    world.delete(GUARD.resource, GUARD.key)
    change(world, BINDING, _only_audits)
    cluster = running(world)
    cluster.settle(3600)
    assert (GUARD.resource, GUARD.key) not in world.objects
    assert (is_shipped(world, BINDING), cluster.said) == (False, [])


def test_without_its_binding_nothing_is_repaired(world: World) -> None:
    """X12: how an administrator turns repairs off, and how an uninstallation begins."""
    world.delete(ClusterRoleBinding.resource, REPAIRS)
    world.delete(GUARD.resource, GUARD.key)
    cluster = running(world)
    cluster.settle(3600)
    assert (GUARD.resource, GUARD.key) not in world.objects
    assert cluster.said == []


def test_a_client_that_changes_an_object_again_and_again_is_named_and_slows_repairs_down(world: World) -> None:
    """X06: as an Argo CD that applies an older manifest."""
    cluster, repaired = running(world), 0
    for _ in range(3600):
        if is_shipped(world, BINDING):
            repaired += 1
            value = world.get(BINDING.resource, BINDING.key)
            _only_audits(value)
            value["metadata"]["managedFields"] = [{"manager": "argocd-controller", "time": "2026-01-01T00:00:00Z"}]
            world.replace(BINDING.resource, BINDING.key, value)
        cluster.settle(1)
    # 2 + 4 + … + 256 s, and then one repair in 300 s.
    assert 15 <= repaired <= 9 + 3600 / LAST_PAUSE_SECONDS + 2
    contested = [note for _, _, reason, note in cluster.said if reason == reasons.REPAIR_CONTESTED]
    assert contested
    assert contested[0].startswith(f"{BINDING.reference} was changed 3 times (last writer: 'argocd-controller')")


def test_an_object_that_is_being_deleted_is_left_until_it_is_gone(world: World) -> None:
    each = shipped("CustomResourceDefinition", "slices.tenantry.dev")
    world.patch(each.resource, each.key, {"metadata": {"finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}})
    world.delete(each.resource, each.key)
    cluster = running(world)
    cluster.settle()
    assert cluster.said == []
    world.patch(each.resource, each.key, {"metadata": {"finalizers": []}})
    cluster.settle()
    assert is_shipped(world, each)


@pytest.mark.parametrize(
    ("installed", "own", "is_foreign"),
    [
        ("0.2.0", "0.1.0", True),
        ("0.10.0", "0.9.9", True),
        ("0.2.0", "0.2.0rc1", True),
        ("0.2.0rc2", "0.2.0rc1", True),
        ("0.2.0rc1", "0.2.0", False),
        ("0.2.0rc1", "0.2.0rc2", False),
        ("0.1.0", "0.1.0", False),
        ("", "0.1.0", False),
    ],
)
def test_an_operator_repairs_no_newer_installation(installed: str, own: str, *, is_foreign: bool) -> None:
    """X06: that of a candidate leaves the release alone, which its rolling upgrade has just installed."""
    found = foreign(replace(SHIPMENT, version=own), {INSTALLED_VERSION: installed}, {})
    assert bool(found) is is_foreign


def test_the_operator_may_write_only_what_is_installed_and_escalate_only_roles_of_users() -> None:
    """X06: an operator that is taken over gets no policies or roles of others by this."""
    made = manifests.foundation(manifests.LOCAL_USER)
    role = next(each for each in made if each["kind"] == "ClusterRole" and each["metadata"]["name"] == REPAIRS)
    by_name = {each["metadata"]["name"] for each in made}
    own = {each["roleRef"]["name"] for each in made if manifests.LOCAL_USER in each.get("subjects", ())}
    for rule in role["rules"]:
        if set(rule["verbs"]) <= {"get", "list", "watch"}:
            continue
        assert rule["resourceNames"]
        assert set(rule["resourceNames"]) <= by_name
        if "escalate" in rule["verbs"]:
            assert not own & set(rule["resourceNames"])
        assert not {"delete", "deletecollection", "*"} & set(rule["verbs"])


def test_an_exact_object_has_no_difference() -> None:
    resource: Resource = GUARD.resource
    assert resource.selected == INSTALLED_VERSION
    for made in manifests.foundation(manifests.LOCAL_USER):
        live = {**stored(made), "metadata": {**made["metadata"], "resourceVersion": "7"}}
        wrong = {**live, "more": 1} if made["kind"] != "Namespace" else live
        assert differing(stored(made), exact(stored(made), wrong)) == []

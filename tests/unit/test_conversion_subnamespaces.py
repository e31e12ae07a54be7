"""Subnamespaces are converted as tenants are: what decides, and what their parents see of it (H01, E05)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.kubernetes import Namespace, NamespaceRole, RoleBinding
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.subnamespace import (
    Adoption,
    Inheritance,
    InheritanceMode,
    Mode,
    Subnamespace,
    SubnamespaceIsolation,
    SubnamespaceSpec,
    SubnamespaceStatus,
)
from tenantry.api.tenant import Tenant, TenantSpec
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane, watched
from tenantry.controllers.conversion import journal, objects
from tenantry.controllers.conversion.controller import RETRY_SECONDS, ConversionController
from tenantry.controllers.conversion.objects import Holdings
from tenantry.controllers.conversion.plan import plan
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.controllers.virtualcontrolplane.connections import PlaneConnections
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from testkit.model import World
from testkit.treeworld import add_subnamespace, condition, settle, world_of
from testkit.worldcluster import WorldCluster
from testkit.worlds import user

CHILD = "web-0123456789abcdef"
VIRTUAL: Json = {"spec": {"isolation": {"controlPlane": "Virtual"}}}
NO_PEOPLE = Inheritance()


def subnamespace(mode: Mode = Mode.WORKSPACE, namespace: str = CHILD, **fields: Any) -> Subnamespace:  # noqa: ANN401 - of the spec
    """Return one that is to get a control plane."""
    isolation = SubnamespaceIsolation(control_plane=ControlPlaneChoice.VIRTUAL)
    return Subnamespace(
        metadata=ObjectMeta(name="web", namespace="acme", uid="u-s"),
        spec=SubnamespaceSpec(mode=mode, owners=(user("bob"),), isolation=isolation, **fields),
        status=SubnamespaceStatus(namespace=namespace),
    )


def there(name: str = CHILD, **labels: str) -> Observed:
    """Return its namespace."""
    found = {marks.SUBNAMESPACE_UID: "u-s", marks.TENANT_UID: "u-t", **labels}
    return Observed(name, "", name, "u-n", 1, found, {}, "", deleting=False, digest=b"", has_subjects=False)


def test_only_a_namespace_that_it_has_is_converted() -> None:
    asked = subnamespace()
    assert controlplane.waits(asked, there())
    assert controlplane.name_of(controlplane.effective(asked, there())) == ""
    assert not controlplane.waits(asked, None)
    assert not controlplane.waits(asked, there("other"))
    assert not controlplane.waits(asked, there(**{marks.SUBNAMESPACE_UID: "u-other"}))
    assert not controlplane.waits(asked, there(**{marks.CONTROL_PLANE: "web"}))
    # One that is about to adopt a namespace: what that has is checked first.
    assert not controlplane.waits(subnamespace(namespace=""), there())


def test_the_mirror_gets_rights_in_the_child_namespace_only() -> None:
    leaving = Conversion(to=ControlPlaneChoice.SHARED, step=ConversionStep.MOVING)
    asked = subnamespace()
    found = journal.rights(replace(asked, status=replace(asked.status, conversion=leaving)))
    assert {(each.metadata.namespace, each.subjects[0].name) for each in found} == {(CHILD, CHILD)}


def made(name: str, **more: object) -> Json:
    return {"metadata": {"name": name, "namespace": CHILD}, **more}


@pytest.mark.parametrize(
    ("fields", "of", "told"),
    [
        ({"inheritance": Inheritance(role_bindings=InheritanceMode.SYNC)}, {}, "Subnamespace 'web' inherits roleBind"),
        ({}, {objects.DAEMON_SETS: [made("d")]}, "DaemonSet 'd' is not supported in a conversion"),
        (
            {},
            {
                objects.CONFIG_MAPS: [{"metadata": {"name": "c", "labels": {marks.INHERITED_FROM: "acme"}}}],
                objects.PODS: [
                    made(
                        "p",
                        spec={
                            "serviceAccountName": "default",
                            "containers": [
                                {"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "c"}}]},
                            ],
                        },
                    )
                ],
            },
            "ConfigMap 'c' is inherited from the parent",
        ),
    ],
)
def test_what_only_subnamespaces_have_refuses(fields: Json, of: dict[Resource, list[Json]], told: str) -> None:
    scope = ConversionScope(owner=subnamespace(**fields))
    assert told in plan(scope, Holdings(of=of)).refusal


def test_children_that_are_workspaces_are_listed_and_the_tenant_must_not_be_suspended() -> None:
    child = replace(subnamespace(), metadata=ObjectMeta(name="lab", namespace=CHILD))
    customer = replace(child, spec=replace(child.spec, mode=Mode.SUBTENANT))
    scope = ConversionScope(owner=subnamespace(), is_suspended=True)
    told = plan(scope, Holdings(of={}), [child, customer]).refusal
    assert "Subnamespace 'web' is in a tenant that is suspended" in told
    assert told.count("Subnamespace 'lab' is a Workspace") == 1


def test_the_parent_of_a_subtenant_reads_how_many_and_not_which() -> None:
    found = plan(
        ConversionScope(owner=subnamespace()),
        Holdings(of={objects.DAEMON_SETS: [made("salaries"), made("secret-plan")]}),
    )
    assert "salaries" in found.told(ConversionScope(owner=subnamespace()))
    told = found.told(ConversionScope(owner=subnamespace(Mode.SUBTENANT)))
    assert told == f"cannot move: 2 DaemonSet; an Event in namespace {CHILD!r} names them"


# -- in a tree ------------------------------------------------------------------------------------


def tree(mode: Mode = Mode.WORKSPACE) -> tuple[World, str]:
    """Return the settled tenant acme with the Subnamespace team, which is then to get a control plane."""
    world = world_of()
    namespace = add_subnamespace(world, mode=mode, owners=(user("bob"),), inheritance=NO_PEOPLE)
    settle(world)
    world.patch(Subnamespace.resource, "acme/team", VIRTUAL)
    return world, namespace


def test_it_is_kept_as_it_is_until_its_conversion_begins() -> None:
    world, namespace = tree()
    settle(world)
    assert marks.CONTROL_PLANE not in world.get(Namespace.resource, namespace)["metadata"]["labels"]
    assert world.list(VirtualControlPlane.resource) == []
    assert world.get(RoleBinding.resource, f"{namespace}/tenantry-owner")["roleRef"]["kind"] == "ClusterRole"
    world.patch(Subnamespace.resource, "acme/team", {"status": {"conversion": {"to": "Virtual", "step": "Moving"}}})
    settle(world)
    labels = world.get(Namespace.resource, namespace)["metadata"]["labels"]
    assert (labels[marks.CONTROL_PLANE], labels[marks.CONVERTING]) == ("team", "true")
    assert world.get(NamespaceRole.resource, f"{namespace}/tenantry-owner")
    assert [each["metadata"]["name"] for each in world.list(VirtualControlPlane.resource, namespace)] == ["team"]
    assert world.get(Subnamespace.resource, "acme/team")["status"]["conversion"]["step"] == "Moving"


def test_a_move_waits_for_the_end_of_a_conversion() -> None:
    """H01: the new Subnamespace would not have the journal."""
    world, namespace = tree()
    goal = add_subnamespace(world, "goal")
    world.patch(Subnamespace.resource, "acme/team", {"status": {"conversion": {"to": "Virtual", "step": "Moving"}}})
    settle(world)
    isolation = SubnamespaceIsolation(control_plane=ControlPlaneChoice.VIRTUAL)
    adopt = Adoption(namespace=namespace, parent="acme")
    add_subnamespace(
        world, "team", goal, owners=(user("bob"),), inheritance=NO_PEOPLE, isolation=isolation, adopt=adopt
    )
    settle(world)
    told = condition(world, reasons.READY, "team", goal)
    assert (told["reason"], "is being converted" in told["message"]) == (reasons.CANNOT_ADOPT, True), told
    assert not world.get(Subnamespace.resource, "acme/team")["metadata"].get("deletionTimestamp")


class _OtherWatches:
    """Holds the watches of the other controllers."""

    name = "others"
    kind = Namespace

    def watches(self) -> list[Watch]:
        """Return them."""
        kinds = [watched.watch(each.resource, lambda _: ()) for each in (Namespace, RoleBinding)]
        return [watched.tenants(lambda _: ()), *kinds]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_refusal_names_objects_where_only_their_owners_read_it(mode: Mode) -> None:
    world, namespace = World(), CHILD
    asked = subnamespace(mode)
    world.create(Tenant(metadata=ObjectMeta(name="acme"), spec=TenantSpec(owners=(user("alice"),))))
    uid = world.get(Tenant.resource, "acme")["metadata"]["uid"]
    world.create(Namespace(metadata=ObjectMeta(name="acme")))
    world.create(asked)
    labels = {
        marks.TENANT: "acme",
        marks.TENANT_UID: uid,
        marks.SUBNAMESPACE_UID: world.get(Subnamespace.resource, "acme/web")["metadata"]["uid"],
    }
    world.create(Namespace(metadata=ObjectMeta(name=namespace, labels=labels)))
    for each in objects.EVERY:
        world.put_in(each, {"metadata": {"name": "known", "namespace": "acme"}})
    world.put_in(objects.DAEMON_SETS, {"metadata": {"name": "salaries", "namespace": namespace}})
    converter = ConversionController(PlaneConnections(), kind=Subnamespace)
    cluster = WorldCluster(world, [converter, _OtherWatches()])
    assert await converter.reconcile(cluster, "acme/web", 0) == RETRY_SECONDS
    found = world.get(Subnamespace.resource, "acme/web")["status"]["conversion"]
    assert found["step"] == "Refused"
    is_blind = mode is Mode.SUBTENANT
    assert ("salaries" in found["message"]) is not is_blind
    said = [(key, reason, "salaries" in note) for key, _, reason, note in cluster.said]
    assert said == ([(f"{namespace}/{namespace}", reasons.CONVERSION_REFUSED, True)] if is_blind else [])

"""What children inherit, and what follows a change: the controllers of the operator in a world without I/O."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api import marks, reasons
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import ResourceQuota, RoleBinding
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.subnamespace import (
    Inheritance,
    InheritanceMode,
    Mode,
    OtherInheritance,
    Subnamespace,
    SubnamespaceSpec,
)
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.api.tenant import Tenant
from tenantry.controllers.operator import controllers
from tenantry.world import inheritance
from tenantry.world.inheritance import CONFIG_MAPS, COPIES, COPIES_MARK, SCALED, SECRETS
from tenantry.world.naming import child_name
from testkit.model import Json, World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant, user

NONE, COPY, SYNC = InheritanceMode.NONE, InheritanceMode.COPY, InheritanceMode.SYNC
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", owned=inheritance.WHOLE)
CHILD = child_name("acme-uid", "acme", "team")
ALL = Inheritance(secrets=SYNC, config_maps=COPY, role_bindings=SYNC)


def _world() -> tuple[World, WorldCluster]:
    world = World()
    world.create(tenant("acme"))
    cluster = WorldCluster(world, controllers(CLUSTER_UID))
    cluster.settle(1)
    return world, cluster


def _sub(world: World, name: str = "team", namespace: str = "acme", given: Inheritance = ALL) -> str:
    meta = ObjectMeta(name=name, namespace=namespace, creation_timestamp="2026-01-01T00:00:00Z")
    world.create(Subnamespace(metadata=meta, spec=SubnamespaceSpec(mode=Mode.WORKSPACE, inheritance=given)))
    return child_name("acme-uid", namespace, name)


def _put(
    world: World, resource: Resource, namespace: str, name: str = "a", *, inherit: str = "", **fields: object
) -> None:
    meta: Json = {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    if inherit:
        meta["annotations"] = {marks.INHERIT: inherit}
    world.put_in(resource, {"metadata": meta, **fields})


def _data(world: World, resource: Resource, namespace: str, name: str = "a") -> object:
    try:
        return world.get(resource, f"{namespace}/{name}").get("data")
    except NotFound:
        return None


def _inherited(world: World) -> tuple[str, str]:
    conditions: list[Json] = world.get(Subnamespace.resource, "acme/team")["status"]["conditions"]
    found = next((each for each in conditions if each["type"] == reasons.INHERITED), {"reason": "", "message": ""})
    return found["reason"], found["message"]


def test_a_new_child_receives_the_objects_of_its_parent_and_changes_follow_down_the_tree() -> None:
    """E06: a change, a deletion, and what was edited in the child."""
    world, cluster = _world()
    _put(world, SECRETS, "acme", data={"key": "one"})
    child = _sub(world)
    cluster.settle(30)
    below = _sub(world, "part", child)
    cluster.settle(30)
    assert (_data(world, SECRETS, child), _data(world, SECRETS, below)) == ({"key": "one"}, {"key": "one"})
    assert _inherited(world)[0] == reasons.ESTABLISHED
    world.patch(SECRETS, "acme/a", {"data": {"key": "two"}})
    cluster.settle(1)
    assert (_data(world, SECRETS, child), _data(world, SECRETS, below)) == ({"key": "two"}, {"key": "two"})
    world.patch(SECRETS, f"{child}/a", {"data": {"key": "edited"}})
    cluster.settle(1)
    assert _data(world, SECRETS, child) == {"key": "two"}
    world.delete(SECRETS, "acme/a")
    cluster.settle(1)
    assert (_data(world, SECRETS, child), _data(world, SECRETS, below)) == (None, None)
    revision = world.revision
    WorldCluster(world, controllers(CLUSTER_UID)).settle(600)
    assert world.revision == revision


def test_an_inherited_workload_is_listed_before_it_is_there_and_until_it_is_gone() -> None:
    """E06: the policy on scaling goes by the list, because a Scale does not have the labels of its workload."""
    world, cluster = _world()
    deployments = msgspec.structs.replace(SCALED[0], owned=inheritance.WHOLE)
    kind = {"group": "apps", "version": "v1", "plural": "deployments", "kind": "Deployment"}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"inheritableKinds": [kind]}})
    _put(world, deployments, "acme", "web", spec={"replicas": 1})
    others = (OtherInheritance(resource="deployments.apps", mode=SYNC),)
    child = _sub(world, given=Inheritance(role_bindings=SYNC, others=others))
    cluster.settle(60)

    def listed() -> dict[str, str]:
        return texts_of(world.get(PolicyParameters.resource, f"{child}/{COPIES}")["metadata"]["annotations"])

    assert world.get(deployments, f"{child}/web")["spec"] == {"replicas": 1}
    assert listed() == {"source": "acme", "deployments": "\nweb\n"}
    _put(world, deployments, "acme", "api", spec={"replicas": 1})
    cluster.settle(60)
    assert listed()["deployments"] == "\napi\nweb\n"
    assert world.get(deployments, f"{child}/api")["spec"] == {"replicas": 1}
    for name in ("api", "web"):
        world.delete(deployments, f"acme/{name}")
    cluster.settle(60)
    assert not world.list(deployments, child)
    assert not world.list(PolicyParameters.resource, child, {"labelSelector": f"{OWN_MARK}={COPIES_MARK}"})


def test_an_object_that_is_copied_once_belongs_to_the_child() -> None:
    """E06: it is not corrected, and not made again."""
    world, cluster = _world()
    _put(world, CONFIG_MAPS, "acme", data={"key": "one"})
    child = _sub(world)
    cluster.settle(30)
    assert _data(world, CONFIG_MAPS, child) == {"key": "one"}
    world.patch(CONFIG_MAPS, "acme/a", {"data": {"key": "two"}})
    _put(world, CONFIG_MAPS, "acme", "later", data={"key": "one"})
    cluster.settle(30)
    assert (_data(world, CONFIG_MAPS, child), _data(world, CONFIG_MAPS, child, "later")) == ({"key": "one"}, None)
    world.delete(CONFIG_MAPS, f"{child}/a")
    cluster.settle(30)
    assert _data(world, CONFIG_MAPS, child) is None


def test_a_source_that_the_cache_has_not_seen_yet_is_copied_all_the_same() -> None:
    """E06: it would be missing for good."""
    world, cluster = _world()
    _sub(world, "other")
    cluster.settle(30)
    child = _sub(world)
    cluster.look()
    _put(world, CONFIG_MAPS, "acme", data={"key": "one"})
    cluster.settle(look=False)
    cluster.settle(30)
    assert _data(world, CONFIG_MAPS, child) == {"key": "one"}


def test_a_source_that_its_parent_does_not_have_yet_is_copied_all_the_same() -> None:
    """E06: the parent follows its own parent, and gets what the caches lack before its child copies once."""
    world, cluster = _world()
    parent = _sub(world, given=Inheritance(config_maps=SYNC, role_bindings=SYNC))
    cluster.settle(30)
    below = _sub(world, "below", parent, Inheritance(config_maps=SYNC, role_bindings=SYNC))
    cluster.settle(30)
    child = _sub(world, "low", below)
    cluster.look()
    _put(world, CONFIG_MAPS, "acme", data={"key": "one"})
    cluster.settle(look=False)
    cluster.settle(30)
    assert _data(world, CONFIG_MAPS, child) == {"key": "one"}


def test_an_object_of_the_childs_own_is_left_alone_and_reported_until_one_of_both_is_gone() -> None:
    world, cluster = _world()
    child = _sub(world)
    cluster.settle(30)
    for number in range(5):
        _put(world, SECRETS, child, f"s-{number}", data={"key": "own"})
        _put(world, SECRETS, "acme", f"s-{number}", data={"key": "one"})
    cluster.settle(30)
    assert _data(world, SECRETS, child, "s-0") == {"key": "own"}
    reason, message = _inherited(world)
    assert reason == reasons.INHERITANCE_CLASH
    assert message.endswith("and 2 more")
    for number in range(5):
        world.delete(SECRETS, f"{child}/s-{number}")
    cluster.settle(30)
    assert (_data(world, SECRETS, child, "s-0"), _inherited(world)[0]) == ({"key": "one"}, reasons.ESTABLISHED)


def _condition(world: World, type_: str) -> Json:
    conditions: list[Json] = world.get(Subnamespace.resource, "acme/team")["status"]["conditions"]
    return next(each for each in conditions if each["type"] == type_)


def _count(world: World, namespace: str, hard: int, used: int) -> None:
    status = {"hard": {"count/secrets": str(hard)}, "used": {"count/secrets": str(used)}}
    world.patch(ResourceQuota.resource, f"{namespace}/tenantry-counts", {"status": status})


def _copies(world: World, namespace: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in world.list(SECRETS, namespace))


def test_copies_are_counted_before_they_are_made_and_those_left_out_are_reported_until_there_is_room() -> None:
    """E06, E16: the operator sends no request that the counts of the child would refuse."""
    world, cluster = _world()
    child = _sub(world)
    cluster.settle(30)
    for number in range(3):
        _put(world, SECRETS, child, f"own{number}", data={"a": "b"})
    _count(world, child, 12, 3)
    for number in range(20):
        _put(world, SECRETS, "acme", f"s{number:02}", data={"a": "b"})
    cluster.settle(30)
    assert len(_copies(world, child)) == 12  # the standard of a child
    inherited = _condition(world, "Inherited")
    assert (inherited["status"], inherited["reason"]) == ("False", reasons.COUNT_EXCEEDED)
    assert "11 more secrets of namespace 'acme' cannot be inherited" in inherited["message"]
    assert "count/secrets of ResourceQuota 'tenantry-counts' is 12" in inherited["message"]
    _count(world, child, 12, 12)
    world.delete(SECRETS, f"{child}/own0")
    cluster.settle(30)
    assert len(_copies(world, child)) == 11
    _count(world, child, 12, 11)
    cluster.settle(30)
    assert len(_copies(world, child)) == 12


def test_the_users_of_a_subtenant_wait_until_all_that_it_inherits_has_room() -> None:
    """E06: otherwise its parent could add objects beside theirs later."""
    world, cluster = _world()
    for number in range(20):
        _put(world, SECRETS, "acme", f"s{number:02}", data={"a": "b"})
    meta = ObjectMeta(name="team", namespace="acme", creation_timestamp="2026-01-01T00:00:00Z")
    spec = SubnamespaceSpec(mode=Mode.SUBTENANT, owners=(user("bob"),), inheritance=Inheritance(secrets=COPY))
    world.create(Subnamespace(metadata=meta, spec=spec))
    cluster.settle(30)
    assert (RoleBinding.resource, f"{CHILD}/tenantry-owner") not in world.objects
    assert _condition(world, "Ready")["reason"] == reasons.COUNT_EXCEEDED
    defaults = {"metadata": {"name": "default"}, "spec": {"objectCounts": {"child": {"secrets": 30}}}}
    world.put_in(TenancyDefaults.resource, defaults)
    cluster.settle(30)
    assert len(_copies(world, CHILD)) == 20
    assert (RoleBinding.resource, f"{CHILD}/tenantry-owner") in world.objects


def test_an_annotation_selects_children_and_one_that_does_not_parse_is_reported() -> None:
    world, cluster = _world()
    child = _sub(world, given=Inheritance(role_bindings=SYNC))
    cluster.settle(30)
    _put(world, SECRETS, "acme", "given", inherit="all", data={"key": "one"})
    _put(world, SECRETS, "acme", "kept", data={"key": "one"})
    _put(world, SECRETS, "acme", "broken", inherit="team in red", data={"key": "one"})
    cluster.settle(30)
    found = {name: _data(world, SECRETS, child, name) for name in ("given", "kept", "broken")}
    assert found == {"given": {"key": "one"}, "kept": None, "broken": None}
    assert _inherited(world)[0] == reasons.INVALID_SPEC


def test_a_suspension_empties_inherited_bindings_and_its_end_fills_them() -> None:
    """E06: also one that is copied once, which waits for the end."""
    world, cluster = _world()
    child = _sub(world)
    once = _sub(world, "once", given=Inheritance(role_bindings=COPY))
    cluster.settle(30)
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": True}})
    cluster.settle(60)
    subjects = [{"kind": "User", "name": "bob"}]
    _put(world, RoleBinding.resource, "acme", "guests", roleRef={"name": "view"}, subjects=subjects)
    late = _sub(world, "late", given=Inheritance(role_bindings=COPY))
    cluster.settle(60)
    assert not world.get(RoleBinding.resource, f"{child}/guests").get("subjects")
    world.patch(Tenant.resource, "acme", {"spec": {"suspended": False}})
    cluster.settle(600)
    for each in (child, late):
        assert world.get(RoleBinding.resource, f"{each}/guests")["subjects"] == subjects
    assert (RoleBinding.resource, f"{once}/guests") not in world.objects, "its copies were made before"


def test_an_administrator_can_allow_further_kinds() -> None:
    """E06: a kind that is not served, or that can never be inherited, is reported at both ends."""
    world, cluster = _world()
    widgets = OtherInheritance(resource="widgets.example.com", mode=SYNC)
    child = _sub(world, given=Inheritance(role_bindings=SYNC, others=(widgets,)))
    cluster.settle(30)
    assert _inherited(world)[0] == reasons.KIND_NOT_INHERITABLE
    widget = {"group": "example.com", "version": "v1", "plural": "widgets", "kind": "Widget"}
    pods = {"group": "", "version": "v1", "plural": "pods", "kind": "Pod"}
    spec: Json = {"inheritableKinds": [widget, pods]}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": spec})
    cluster.settle(5)
    ready = world.get(TenancyDefaults.resource, "default")["status"]["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("False", reasons.KIND_NOT_INHERITABLE)
    assert "'widgets.example.com' is not served" in ready["message"]
    assert "'pods' can never be inherited" in ready["message"]
    _put(world, WIDGETS, "acme", data={"size": "1"})
    cluster.settle(60)
    assert _data(world, WIDGETS, child) == {"size": "1"}
    # A PUT must keep the finalizer of the controller that holds on to the copy.
    world.patch(WIDGETS, f"{child}/a", {"metadata": {"finalizers": ["example.com/held"]}})
    world.patch(WIDGETS, "acme/a", {"data": {"size": "2"}})
    cluster.settle(5)
    assert _data(world, WIDGETS, child) == {"size": "2"}
    assert world.get(WIDGETS, f"{child}/a")["metadata"]["finalizers"] == ["example.com/held"]
    assert _inherited(world)[0] == reasons.ESTABLISHED


def test_a_deleted_parent_takes_nothing_from_its_children_before_they_go_themselves() -> None:
    world, cluster = _world()
    _put(world, SECRETS, "acme", data={"key": "one"})
    child = _sub(world)
    cluster.settle(30)
    world.delete(Tenant.resource, "acme")
    world.finish_deletions()
    world.finish_deletions()
    assert (SECRETS, "acme/a") not in world.objects
    cluster.settle(look=True)
    assert _data(world, SECRETS, child) == {"key": "one"}


@pytest.mark.parametrize("mode", [COPY, SYNC])
def test_a_subtenant_receives_copies_and_never_access(mode: InheritanceMode) -> None:
    """E05: whatever came in behind admission's back."""
    world, cluster = _world()
    subjects = [{"kind": "User", "name": "bob"}]
    _put(world, RoleBinding.resource, "acme", "guests", inherit="all", roleRef={"name": "view"}, subjects=subjects)
    _put(world, SECRETS, "acme", inherit="all", data={"key": "one"})
    meta = ObjectMeta(name="team", namespace="acme", creation_timestamp="2026-01-01T00:00:00Z")
    given = Inheritance(secrets=mode, role_bindings=mode)
    spec = SubnamespaceSpec(mode=Mode.SUBTENANT, owners=(user("carl"),), inheritance=given)
    world.create(Subnamespace(metadata=meta, spec=spec))
    cluster.settle(30)
    copy = world.get(SECRETS, f"{CHILD}/a")
    assert (copy["data"], marks.INHERITED_FROM in copy["metadata"].get("labels", {})) == ({"key": "one"}, False)
    assert (RoleBinding.resource, f"{CHILD}/guests") not in world.objects

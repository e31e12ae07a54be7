"""E07, E08, L03: names that a Subnamespace requests: which are allowed, and which are taken."""

from __future__ import annotations

import pytest

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import PARENT, SUBNAMESPACE, TENANT_UID
from tenantry.api.model import ObjectMeta
from tenantry.api.peercluster import HOME_ID, HOME_NAMESPACE, HOME_PATH
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant
from tenantry.world.naming import child_name, federated_path, is_name_of, mapped_name
from testkit.model import Json, World
from testkit.treeworld import condition, settle, world_of
from testkit.worlds import user

HOME, OTHER = "7f9f2ad1-0000-4000-8000-000000000001", "7f9f2ad1-0000-4000-8000-000000000002"
FEDERATED = child_name("t1", "acme", "web", HOME)


def world_with(**namespaces: Json | str) -> World:
    """Return a world whose tenant has rules for the names of namespaces."""
    world = world_of()
    world.patch(Tenant.resource, "acme", {"spec": {"namespaces": namespaces}})
    return world


def asked(world: World, name: str, *, sub: str = "team", **notes: str) -> str:
    """Let a Subnamespace request a name; return why it has no namespace, "" if it has one of the name."""
    meta = ObjectMeta(name=sub, namespace="acme", annotations=notes)
    spec = SubnamespaceSpec(mode=Mode.WORKSPACE, owners=(user("carl"),), namespace_name=name)
    world.create(Subnamespace(metadata=meta, spec=spec))
    settle(world)
    ready = condition(world, "Ready", sub)
    if ready["status"] == "True":
        assert world.get(Subnamespace.resource, f"acme/{sub}")["status"]["namespace"] == name
        return ""
    assert not world.get(Subnamespace.resource, f"acme/{sub}")["status"].get("namespace")
    return ready["reason"]


def notes(home: str = HOME, namespace: str = "shop", path: str = "") -> dict[str, str]:
    """Return the annotations of a namespace of another cluster."""
    return {HOME_ID: home, HOME_NAMESPACE: namespace, HOME_PATH: path}


def test_a_tenant_has_the_exact_names_that_an_administrator_allows() -> None:
    world = world_with(exactNames="web-[a-z]+")
    assert asked(world, "web-shop") == ""
    assert asked(world, "shop", sub="other") == reasons.NOT_ALLOWED
    assert asked(world_of(), "shop") == reasons.NOT_ALLOWED
    # The API server refuses it, too; one that came in before it looked is not made either.
    assert asked(world_with(exactNames=".*"), "kube-shop") == reasons.INVALID_SPEC


def test_a_namespace_that_exists_is_never_taken_and_its_name_is_free_when_it_is_gone() -> None:
    world = world_with(exactNames=".*")
    world.put_in(Namespace.resource, {"metadata": {"name": "shop"}})
    before = world.get(Namespace.resource, "shop")
    assert asked(world, "shop") == reasons.NAME_TAKEN
    assert world.get(Namespace.resource, "shop") == before
    assert asked(world, "acme", sub="own") == reasons.NAME_TAKEN
    world.delete(Namespace.resource, "shop")
    settle(world)
    assert condition(world, "Ready", "team")["status"] == "True"
    # The first one keeps it.
    assert asked(world, "shop", sub="late") == reasons.NAME_TAKEN


@pytest.mark.parametrize(
    ("name", "given", "is_allowed"),
    [
        (mapped_name(HOME, "shop"), notes(), True),
        (FEDERATED, notes(namespace=FEDERATED, path="t1/acme/web"), True),
        # Of another home, of another namespace, and of none.
        (mapped_name(HOME, "shop"), notes(home=OTHER), False),
        (mapped_name(OTHER, "shop"), notes(home=OTHER), False),
        (mapped_name(HOME, "shop"), notes(namespace="mail"), False),
        (mapped_name(HOME, "shop"), {}, False),
        ("shop", notes(), False),
        (FEDERATED, notes(namespace=FEDERATED), False),
        (FEDERATED, notes(namespace=FEDERATED, path="t1/acme/mail"), False),
        (FEDERATED, notes(namespace="shop", path="t1/acme/web"), False),
    ],
)
def test_a_home_has_the_names_that_its_cluster_id_is_part_of(
    name: str, given: dict[str, str], *, is_allowed: bool
) -> None:
    """L03: annotations can be anything; only the hash of the id that is recorded for the home counts."""
    world = world_with(homeNames={"clusterId": HOME})
    assert asked(world, name, **given) == ("" if is_allowed else reasons.NOT_ALLOWED)


def test_a_home_whose_id_is_not_known_yet_gets_no_name_until_it_is() -> None:
    """It could name the id of another cluster, whose names these are."""
    world = world_with(homeNames={"clusterId": ""})
    assert asked(world, mapped_name(HOME, "shop"), **notes()) == reasons.PROGRESSING
    assert asked(world, mapped_name(OTHER, "mail"), sub="other", **notes(home=OTHER, namespace="mail")) == (
        reasons.PROGRESSING
    )
    world.patch(Tenant.resource, "acme", {"spec": {"namespaces": {"homeNames": {"clusterId": HOME}}}})
    settle(world)
    assert condition(world, "Ready", "team")["status"] == "True"
    assert condition(world, "Ready", "other")["reason"] == reasons.NOT_ALLOWED


def test_names_at_peers_fit_and_tell_clusters_and_namespaces_apart() -> None:
    long = "a" * 63
    names = {mapped_name(home, namespace) for home in (HOME, OTHER) for namespace in (long, long[:50], "shop", "a-b")}
    assert len(names) == 8
    assert all(len(each) <= 63 for each in names)
    assert mapped_name(HOME, f"{'a' * 45}-{'b' * 10}").count("--") == 0
    assert not is_name_of(mapped_name("", "shop"), "", "shop", "")


def test_a_federated_child_is_known_by_its_labels() -> None:
    labels = {TENANT_UID: "t1", PARENT: "acme", SUBNAMESPACE: "web"}
    assert federated_path(HOME, FEDERATED, labels) == "t1/acme/web"
    assert federated_path(OTHER, FEDERATED, labels) == ""
    assert federated_path(HOME, child_name("t1", "acme", "web"), labels) == ""
    assert federated_path(HOME, FEDERATED, {}) == ""

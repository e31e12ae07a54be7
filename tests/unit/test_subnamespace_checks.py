"""What keeps a Subnamespace from its namespace, and what its status reports: without I/O."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Adoption, Inheritance, Mode, Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from testkit.model import Json, World
from testkit.treeworld import add_subnamespace, condition, settle, world_of
from testkit.worlds import tenant, user

LATER = "2026-01-02T00:00:00Z"


def world_with(namespaces: Json) -> World:
    """Return a world whose tenant restricts the namespaces of its tree."""
    world = world_of()
    world.patch(Tenant.resource, "acme", {"spec": {"namespaces": namespaces}})
    return world


def refusal(world: World, name: str = "team", namespace: str = "acme") -> tuple[str, str]:
    """Settle, and return why a Subnamespace has no namespace: the reason and the message."""
    settle(world)
    ready = condition(world, "Ready", name, namespace)
    assert ready["status"] == "False"
    assert not world.get(Subnamespace.resource, f"{namespace}/{name}")["status"].get("namespace")
    return ready["reason"], ready["message"]


@pytest.mark.parametrize(
    ("namespaces", "fields", "reason", "words"),
    [
        ({"labels": {"required": ["team"], "allowed": ["team"]}}, {}, reasons.NOT_ALLOWED, "must have 'team'"),
        (
            {"annotations": {"allowed": ["cost-*"]}},
            {"annotations": {"price": "1"}},
            reasons.NOT_ALLOWED,
            "spec.annotations must not have 'price'",
        ),
        ({"namePattern": "team-.*"}, {}, reasons.NOT_ALLOWED, "the name 'team' does not match 'team-.*'"),
        ({"namePattern": "("}, {}, reasons.INVALID_SPEC, "is not a regular expression"),
        # Python knows it, the API server does not: from before the API server looked at it.
        ({"namePattern": "(?!x).*"}, {}, reasons.INVALID_SPEC, "in the syntax of RE2"),
    ],
)
def test_what_the_tenant_does_not_allow_gets_no_namespace(
    namespaces: Json, fields: dict[str, Any], reason: str, words: str
) -> None:
    """E03: admission refuses the same; an object that came in behind its back is not created either."""
    world = world_with(namespaces)
    add_subnamespace(world, **fields)
    found, message = refusal(world)
    assert (found, words in message) == (reason, True), message


def test_a_pattern_of_another_syntax_leaves_existing_namespaces_alone() -> None:
    """E03: one stored by an older version is reported for new names only."""
    world = world_with({})
    child = add_subnamespace(world)
    settle(world)
    world.patch(Tenant.resource, "acme", {"spec": {"namespaces": {"namePattern": "(?!x).*"}}})
    settle(world)
    assert condition(world, "Ready")["status"] == "True"
    assert world.get(Namespace.resource, child)


def test_an_owner_offloads_a_child_by_a_label_that_the_tenant_allows() -> None:
    """L02: the operator leaves the marks alone that it sets for the NamespaceOffloading."""
    labels = {marks.OFFLOAD: "true"}
    refused = world_with({})
    add_subnamespace(refused, labels=labels)
    assert refusal(refused)[0] == reasons.NOT_ALLOWED
    world = world_with({"labels": {"allowed": [marks.OFFLOAD]}})
    child = add_subnamespace(world, labels=labels)
    settle(world)
    strategy = {marks.POD_STRATEGY: "Remote"}
    world.patch(Namespace.resource, child, {"metadata": {"labels": strategy, "annotations": {marks.PEERS: "berlin"}}})
    settle(world)
    found = world.get(Namespace.resource, child)["metadata"]
    assert {**labels, **strategy}.items() <= found["labels"].items()
    assert found["annotations"][marks.PEERS] == "berlin"
    world.patch(Subnamespace.resource, "acme/team", {"spec": {"labels": {marks.OFFLOAD: None}}})
    settle(world)
    found = world.get(Namespace.resource, child)["metadata"]
    assert marks.OFFLOAD not in found["labels"]
    assert found["labels"][marks.POD_STRATEGY] == "Remote"


def test_allowed_labels_and_annotations_are_on_the_namespace() -> None:
    """E03."""
    world = world_with({"labels": {"allowed": ["team"]}, "annotations": {"allowed": ["cost-*"]}, "namePattern": "t.*"})
    child = add_subnamespace(world, labels={"team": "a"}, annotations={"cost-center": "7"})
    settle(world)
    found = world.get(Namespace.resource, child)["metadata"]
    assert (found["labels"]["team"], found["annotations"]["cost-center"]) == ("a", "7")


def test_a_tree_is_as_deep_and_as_large_as_its_tenant_allows() -> None:
    """E03: what exists when a limit becomes tighter stays."""
    world = world_with({"maxDepth": 1})
    child = add_subnamespace(world)
    settle(world)
    add_subnamespace(world, "deeper", child)
    reason, message = refusal(world, "deeper", child)
    assert (reason, "its depth would be 2" in message) == (reasons.LIMIT_REACHED, True)
    world.patch(Tenant.resource, "acme", {"spec": {"namespaces": {"maxDepth": None, "maxCount": 1}}})
    add_subnamespace(world, "other")
    reason, message = refusal(world, "other")
    assert (reason, "has 1 subnamespaces and may have 1" in message) == (reasons.LIMIT_REACHED, True)
    assert condition(world, "Ready")["status"] == "True"


@pytest.mark.parametrize("where", ["Tenant", "TenancyDefaults"])
def test_what_is_deeper_than_a_lowered_limit_stays_and_is_reported(where: str) -> None:
    """E03: otherwise the list of namespaces would not show which are too deep."""
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    add_subnamespace(world, "deeper", child)
    settle(world)
    lowered = {"namespaces": {"maxDepth": 1}}
    if where == "Tenant":
        world.patch(Tenant.resource, "acme", {"spec": lowered})
    else:
        world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": lowered})
    settle(world)
    found = condition(world, reasons.DEPTH_EXCEEDED, "deeper", child)
    assert (found["status"], condition(world, "Ready", "deeper", child)["status"]) == ("True", "True")
    assert found["message"].startswith("its depth is 2, and tenant 'acme' allows 1 (spec.namespaces.maxDepth of ")
    assert f"maxDepth of {where if where != 'Tenant' else 'the Tenant'}" in found["message"]
    assert not condition(world, reasons.DEPTH_EXCEEDED), "it is as deep as allowed"
    raised = {"spec": {"namespaces": {"maxDepth": 2}}}
    if where == "Tenant":
        world.patch(Tenant.resource, "acme", raised)
    else:
        world.patch(TenancyDefaults.resource, "default", raised)
    settle(world)
    assert not condition(world, reasons.DEPTH_EXCEEDED, "deeper", child)


def test_a_subtenant_does_not_learn_how_many_namespaces_there_are() -> None:
    """E06: the limit is the tenant's, the count is not a customer's to know."""
    world = world_of()
    shop = add_subnamespace(
        world, "shop", mode=Mode.SUBTENANT, inheritance=Inheritance(), owners=(user("bob"),), created=LATER
    )
    settle(world)
    world.patch(Tenant.resource, "acme", {"spec": {"namespaces": {"maxCount": 1}}})
    add_subnamespace(world, "inner", shop)
    reason, message = refusal(world, "inner", shop)
    assert (reason, "no more subnamespaces" in message, "1" in message) == (reasons.LIMIT_REACHED, True, False)


def test_a_label_that_the_rules_of_all_tenants_refuse_gets_no_namespace() -> None:
    """E15: admission asks the same rules; the reconciler checks them again."""
    world = world_with({"labels": {"allowed": ["team"]}})
    rules = {"namespaces": {"labels": ["cost-.*"]}}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"rules": rules}})
    add_subnamespace(world, labels={"team": "a"})
    reason, message = refusal(world)
    assert (reason, "team" in message) == (reasons.NOT_ALLOWED, True), message


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        ("nothing", "is not the child of Subnamespace 'acme/team'"),
        ("younger", "was created after this one"),
        ("subtenant", "only a Workspace can be moved"),
        ("above", "a tree has no cycles"),
        ("border", "is not in the same Subtenant as"),
    ],
)
def test_what_cannot_be_moved_stays_where_it_is(setup: str, words: str) -> None:
    """E08: the namespace keeps its parent, and the new Subnamespace says why."""
    world = world_of()
    shop = add_subnamespace(world, "shop", mode=Mode.SUBTENANT, inheritance=Inheritance(), owners=(user("bob"),))
    fields: dict[str, Any] = {"created": LATER} if setup == "younger" else {}
    if setup == "subtenant":
        fields = {"mode": Mode.SUBTENANT, "inheritance": Inheritance(), "owners": (user("eve"),)}
    child = add_subnamespace(world, **fields)
    settle(world)
    parent = add_subnamespace(world, "new", child if setup == "above" else "acme")
    settle(world)
    target = shop if setup == "border" else parent
    named = "acme-none" if setup == "nothing" else child
    add_subnamespace(world, "team", target, adopt=Adoption(namespace=named, parent="acme"))
    reason, message = refusal(world, "team", target)
    assert (reason, words in message) == (reasons.CANNOT_ADOPT, True), message
    assert world.get(Namespace.resource, child)["metadata"]["labels"][marks.PARENT] == "acme"


def test_another_tenants_namespace_moves_only_by_an_administrator() -> None:
    """E08."""
    world = world_of()
    world.create(tenant("zeta"))
    settle(world)
    add_subnamespace(world, "team", "zeta")
    settle(world)
    theirs = world.get(Subnamespace.resource, "zeta/team")["status"]["namespace"]
    add_subnamespace(world, "team", adopt=Adoption(namespace=theirs, parent="zeta"))
    _, message = refusal(world)
    assert "belongs to another tenant; an administrator can move it" in message
    assert world.get(Namespace.resource, theirs)["metadata"]["labels"][marks.TENANT] == "zeta"


def test_a_subnamespace_outside_of_any_tree_gets_no_namespace() -> None:
    """E04."""
    world = world_of()
    world.put_in(Namespace.resource, {"metadata": {"name": "plain"}})
    add_subnamespace(world, "team", "plain")
    assert refusal(world, "team", "plain")[0] == reasons.NOT_A_TENANTS_NAMESPACE

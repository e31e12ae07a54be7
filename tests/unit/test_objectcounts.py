"""Which kinds are counted, and how many objects a namespace may have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenantry.api import reasons
from tenantry.api.kubernetes import OwnerRole, ResourceQuota, RoleRule
from tenantry.api.model import ObjectMeta
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.limits.gather import object_limits
from tenantry.engine.cluster import CRDS
from tenantry.engine.crds import CrdState
from tenantry.world.objectcounts import EPHEMERAL_STORAGE, NETWORK_POLICIES, STANDARD, GrantedKinds, hard, kinds
from testkit.model import Json, World
from testkit.treeworld import add_subnamespace, condition, operator, settle, world_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "object-counts.md"
LATER = "2026-01-02T00:00:00Z"


def _counts(world: World, namespace: str) -> dict[str, str]:
    found: dict[str, str] = world.get(ResourceQuota.resource, f"{namespace}/tenantry-counts")["spec"]["hard"]
    return found


def _role(*rules: Json) -> Json:
    return {"metadata": {"name": "tenantry-owner"}, "rules": list(rules)}


def test_the_page_has_the_standard_numbers_and_each_is_above_three_times_the_largest_chart() -> None:
    rows = re.findall(r"^\| `([a-z.0-9-]+)` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert {kind: (int(core), int(child)) for kind, core, child, _ in rows} == STANDARD
    assert [kind for kind, core, _, largest in rows if int(core) <= 3 * int(largest)] == []


@pytest.mark.parametrize(
    ("group", "plural", "there"),
    [
        ("", "configmaps", True),
        ("apps", "deployments", True),
        ("example.com", "widgets", True),
        ("example.com", "*", True),
        ("*", "*", True),
        ("", "pods/exec", True),
        ("other.example.com", "*", False),
        ("", "events", False),
        ("authorization.k8s.io", "localsubjectaccessreviews", False),
    ],
)
def test_every_kind_that_owners_may_create_is_counted(group: str, plural: str, there: bool) -> None:  # noqa: FBT001
    found = kinds([GrantedKinds((group,), (plural,))], ["widgets.example.com"])
    kind = "widgets.example.com" if plural == "*" else f"{plural}.{group}".rstrip(".")
    assert (kind.partition("/")[0] in found) == there
    assert not any("/" in each for each in found)


def test_a_key_of_the_tenants_quota_takes_precedence() -> None:
    """Also in the spelling without `count/`, which Kubernetes counts as the same."""
    found = hard({"secrets": 5, "pods": 7, "services": 2}, ["secrets", "count/services", "pods"], {"pods": 1}, 0)
    assert found == {"count/pods": "8"}


@pytest.mark.parametrize(("key", "there"), [("requests.cpu", True), *((each, False) for each in EPHEMERAL_STORAGE)])
def test_disk_space_has_a_limit_unless_the_quota_of_the_tenant_has_one(key: str, there: bool) -> None:  # noqa: FBT001
    assert ("requests.ephemeral-storage" in hard({}, [key], {}, 0, "1Gi")) == there


def test_core_and_child_have_counts_before_their_owners() -> None:
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    assert _counts(world, "acme")["count/configmaps"] == "130"
    assert _counts(world, child)["count/configmaps"] == "16"
    assert _counts(world, child)["count/subnamespaces.tenantry.dev"] == "20"
    # Its own isolation and the binding of its owners come on top.
    assert _counts(world, child)["count/networkpolicies.networking.k8s.io"] == "21"


def test_a_new_custom_kind_is_counted_everywhere() -> None:
    world = world_of()
    child = add_subnamespace(world)
    cluster = settle(world)
    rule = {"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["create"]}
    world.put_in(OwnerRole.resource, _role(rule, {**rule, "apiGroups": ["r.example.com"], "verbs": ["get"]}))
    cluster.settle(30)
    assert "count/widgets.example.com" not in _counts(world, child)
    for group in ("example.com", "r.example.com"):
        version = {"name": "v1", "served": True}
        spec = {"versions": [version], "scope": "Namespaced"}
        world.put_in(CRDS, {"metadata": {"name": f"widgets.{group}"}, "spec": spec})
    cluster.settle(30)
    for namespace in ("acme", child):
        assert "count/widgets.example.com" in _counts(world, namespace)
        assert "count/widgets.r.example.com" not in _counts(world, namespace)


def test_an_administrator_sets_the_numbers() -> None:
    world = world_of()
    child = add_subnamespace(world)
    cluster = settle(world)
    spec: Json = {"objectCounts": {"core": {"secrets": 7}, "child": {"secrets": 3}}, "namespaces": {"maxCount": 1}}
    spec["ephemeralStorage"] = {"core": "20Gi"}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": spec})
    cluster.settle(30)
    assert (_counts(world, "acme")["count/secrets"], _counts(world, child)["count/secrets"]) == ("7", "3")
    disks = [_counts(world, each)["requests.ephemeral-storage"] for each in ("acme", child)]
    assert disks == ["20Gi", "100Gi"]


def test_more_subnamespaces_than_by_default_are_refused_and_existing_ones_stay() -> None:
    world = world_of()
    add_subnamespace(world)
    settle(world)
    spec = {"namespaces": {"maxCount": 1, "maxDepth": 1}}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": spec})
    inner = add_subnamespace(world, "inner", world.get(Subnamespace.resource, "acme/team")["status"]["namespace"])
    add_subnamespace(world, "second", created=LATER)
    settle(world)
    assert inner
    assert condition(world, "Ready")["status"] == "True"
    found = condition(world, "Ready", "second")
    assert found["reason"] == reasons.LIMIT_REACHED
    assert "may have 1; delete one" in found["message"]
    assert "spec.namespaces.maxCount of TenancyDefaults" in found["message"]
    world.patch(Tenant.resource, "acme", {"spec": {"namespaces": {"maxCount": 9}}})
    settle(world)
    assert condition(world, "Ready", "second")["status"] == "True"


def test_what_exists_above_a_limit_stays_and_is_reported() -> None:
    world = world_of()
    add_subnamespace(world)
    settle(world)
    for key, words in (("acme", "objectCounts.core"), ("team", "objectCounts.child")):
        namespace = key if key == "acme" else world.get(Subnamespace.resource, "acme/team")["status"]["namespace"]
        status = {"hard": {"count/secrets": "1"}, "used": {"count/secrets": "900"}}
        world.patch(ResourceQuota.resource, f"{namespace}/tenantry-counts", {"status": status})
        operator(world).settle(30)
        about = world.get(Tenant.resource, "acme") if key == "acme" else world.get(Subnamespace.resource, "acme/team")
        (found,) = [each for each in about["status"]["conditions"] if each["type"] == reasons.OBJECTS_EXCEEDED]
        assert "count/secrets" in found["message"]
        assert words in found["message"]


def test_cluster_wide_kinds_are_not_counted() -> None:
    crds = [CrdState("gadgets.example.com", 1, ("v1",), established=True, namespaced=False)]
    rule = RoleRule(api_groups=("*",), resources=("*",), verbs=("*",))
    role = OwnerRole(metadata=ObjectMeta(name="tenantry-owner"), rules=(rule,))
    assert "gadgets.example.com" not in object_limits(None, role, crds).core


def test_counting_begins_at_once_for_kinds_that_kubernetes_does_not_know_yet() -> None:
    """Otherwise the API server refuses all their objects for minutes: "status unknown for quota"."""
    world = world_of()
    child = add_subnamespace(world)
    settle(world)
    for namespace in ("acme", child):
        key = f"{namespace}/tenantry-counts"
        made = world.get(ResourceQuota.resource, key)
        assert made["status"]["hard"] == made["spec"]["hard"]
        written = {key: used for key, used in made["status"]["used"].items() if used != "0"}
        assert written == {f"count/{NETWORK_POLICIES}": "1"}
        assert made["status"]["used"].keys() == made["spec"]["hard"].keys()
        status = {"hard": {"count/secrets": "5", "count/services": "5"}, "used": None}
        world.patch(ResourceQuota.resource, key, {"status": None})
        world.patch(ResourceQuota.resource, key, {"status": {**status, "used": {"count/secrets": "3"}}})
        operator(world).settle(30)
        used = world.get(ResourceQuota.resource, key)["status"]["used"]
        assert used == {**dict.fromkeys(made["spec"]["hard"], "0"), "count/secrets": "3"}

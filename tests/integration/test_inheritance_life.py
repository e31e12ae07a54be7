"""Objects handed down a tree on a real API server: kept the same, copied once, passed on, never overwritten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.world.naming import child_name
from testkit.api import CONFIG_MAPS, ROLES, SECRETS, SERVICE_ACCOUNTS, Api, stays, until
from testkit.operators import Operator
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]

KINDS = {
    "roles": ROLES,
    "roleBindings": RoleBinding.resource,
    "networkPolicies": NetworkPolicy.resource,
    "limitRanges": LimitRange.resource,
    "secrets": SECRETS,
    "configMaps": CONFIG_MAPS,
    "serviceAccounts": SERVICE_ACCOUNTS,
}
OBJECTS: dict[str, Json] = {
    "roles": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "roleBindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "thing"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "robot", "namespace": "ci"},
            {"kind": "User", "name": "zoe", "apiGroup": "rbac.authorization.k8s.io"},
        ],
    },
    "networkPolicies": {"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"]}},
    "limitRanges": {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "4"}}]}},
    "secrets": {"type": "example.com/thing", "data": {"a": "Yg=="}},
    "configMaps": {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}},
    "serviceAccounts": {"imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": False},
}
MARKS: Json = {"labels": {"team": "x"}, "annotations": {"note": "n"}}


def workspace(**modes: object) -> Json:
    """Return the spec of a workspace that inherits so."""
    return {"mode": "Workspace", "owners": [{"kind": "User", "name": "alice"}], "inheritance": modes}


def thing(field: str, name: str = "thing", **metadata: object) -> Json:
    """Return an object of a kind, as in YAML."""
    return {**OBJECTS[field], "metadata": {"name": name, **MARKS, **metadata}}


def content(value: Json) -> Json:
    """Return what an object says, its identity and the tokens of a service account left out."""
    return {key: each for key, each in value.items() if key not in {"metadata", "secrets"}}


def labels(value: Json) -> dict[str, str]:
    """Return an object's labels."""
    return value["metadata"].get("labels") or {}


async def exists(api: Api, resource: Resource, name: str, namespace: str) -> Json:
    """Wait until an object is there, and return it."""
    return await until(lambda: api.find(resource, name, namespace), f"{resource.kind} {namespace}/{name} is there")


async def holds(api: Api, resource: Resource, name: str, namespace: str, **wanted: object) -> Json:
    """Wait until an object's fields are so, and return it."""

    async def so() -> Json | None:
        found = await api.find(resource, name, namespace)
        return found if found and all(found.get(key) == value for key, value in wanted.items()) else None

    return await until(so, f"{resource.kind} {namespace}/{name} has {wanted}")


async def never(api: Api, resource: Resource, name: str, namespace: str) -> None:
    """See for a while that an object does not come."""

    async def so() -> bool:
        return await api.find(resource, name, namespace) is None

    await stays(so, f"{resource.kind} {namespace}/{name} is not there", seconds=0.5)


# -- Sync -----------------------------------------------------------------------------------------


async def test_all_seven_kinds_come_down_and_follow_within_a_second(api: Api, trees: Trees, name: str) -> None:
    """E06: made before the child is ready, changed with the source, and gone with it."""
    await api.make_tenant(name)
    for field, resource in KINDS.items():
        await api.create(resource, thing(field), name)
    child = await trees.make(name, "team", workspace(**dict.fromkeys(KINDS, "Sync")))
    for resource in KINDS.values():
        source, copy = await api.get(resource, "thing", name), await api.get(resource, "thing", child)
        assert content(copy) == content(source)
        assert labels(copy) == {
            "team": "x",
            "app.kubernetes.io/managed-by": "tenantry",
            "tenantry.dev/tenant": name,
            "tenantry.dev/inherited-from": name,
        }
        assert copy["metadata"]["annotations"] == {"note": "n"}
    change: Json = {"metadata": {"labels": {"team": "y"}, "annotations": {"note": None}}}
    await asyncio.gather(*(api.patch(resource, "thing", change, name) for resource in KINDS.values()))

    async def followed() -> bool:
        copies = [await api.get(resource, "thing", child) for resource in KINDS.values()]
        return all(labels(copy)["team"] == "y" and "annotations" not in copy["metadata"] for copy in copies)

    await until(followed, "the copies follow")
    await asyncio.gather(*(api.delete(resource, "thing", name) for resource in KINDS.values()))
    for resource in KINDS.values():
        await api.gone(resource, "thing", child)


async def test_what_is_immutable_is_made_again(api: Api, trees: Trees, name: str) -> None:
    """E06: a role of a binding, the type of a Secret, and a ConfigMap that may not change."""
    await api.make_tenant(name)
    child = await trees.make(name, "team", workspace(roleBindings="Sync", secrets="Sync", configMaps="Sync"))
    await api.create(CONFIG_MAPS, {**thing("configMaps"), "immutable": True}, name)
    await api.create(SECRETS, thing("secrets"), name)
    await api.create(RoleBinding.resource, thing("roleBindings"), name)
    for resource in (CONFIG_MAPS, SECRETS, RoleBinding.resource):
        await exists(api, resource, "thing", child)
        await api.delete(resource, "thing", name)
    await api.create(CONFIG_MAPS, {**thing("configMaps"), "data": {"new": "1"}, "immutable": True}, name)
    await api.create(SECRETS, {**thing("secrets"), "type": "Opaque"}, name)
    view = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    await api.create(RoleBinding.resource, {**thing("roleBindings"), "roleRef": view}, name)
    await holds(api, CONFIG_MAPS, "thing", child, data={"new": "1"})
    await holds(api, SECRETS, "thing", child, type="Opaque")
    await holds(api, RoleBinding.resource, "thing", child, roleRef=view)


async def test_grandchildren_get_what_their_parent_got(api: Api, trees: Trees, name: str) -> None:
    """E06: a copy is passed on, changed, and taken away down the whole tree."""
    await api.make_tenant(name)
    await api.create(SECRETS, thing("secrets"), name)
    child = await trees.make(name, "team", workspace(secrets="Sync"))
    low = await trees.make(child, "low", workspace(secrets="Sync"))
    lowest = await trees.make(low, "lowest", workspace(secrets="Sync"))
    assert labels(await api.get(SECRETS, "thing", lowest))["tenantry.dev/inherited-from"] == low
    await api.patch(SECRETS, "thing", {"data": {"a": "bmV3"}}, name)
    await holds(api, SECRETS, "thing", lowest, data={"a": "bmV3"})
    await api.delete(SECRETS, "thing", name)
    await api.gone(SECRETS, "thing", lowest)


async def test_hand_edits_of_a_copy_are_put_back(api: Api, trees: Trees, name: str) -> None:
    """E06: whatever an administrator does to one."""
    await api.make_tenant(name)
    child = await trees.make(name, "team", workspace(configMaps="Sync"))
    await api.create(CONFIG_MAPS, thing("configMaps"), name)
    copy = await exists(api, CONFIG_MAPS, "thing", child)
    await api.patch(CONFIG_MAPS, "thing", {"data": {"a": "other", "z": "1"}}, child)
    await holds(api, CONFIG_MAPS, "thing", child, data={"a": "b"})
    await api.patch(CONFIG_MAPS, "thing", {"metadata": {"labels": {"team": "z", "mine": "1"}}}, child)

    async def back() -> bool:
        return labels(await api.get(CONFIG_MAPS, "thing", child)) == labels(copy)

    await until(back, "the labels are back")
    await api.delete(CONFIG_MAPS, "thing", child)
    await exists(api, CONFIG_MAPS, "thing", child)


async def test_what_is_as_it_should_be_costs_no_write(api: Api, trees: Trees, operator: Operator, name: str) -> None:
    """E06: a source that changes in nothing that copies have, and a restart of the operator."""
    await api.make_tenant(name)
    for field, resource in KINDS.items():
        await api.create(resource, thing(field), name)
    child = await trees.make(name, "team", workspace(**dict.fromkeys(KINDS, "Sync")))
    before = {kind: (await api.get(resource, "thing", child))["metadata"] for kind, resource in KINDS.items()}
    annotation = {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}
    for resource in KINDS.values():
        await api.patch(resource, "thing", annotation, name)
    await operator.stop()
    await operator.start()
    await operator.leads()
    await api.patch(SECRETS, "thing", {"metadata": {"labels": {"team": "y"}}}, name)

    async def followed() -> bool:
        return labels(await api.get(SECRETS, "thing", child))["team"] == "y"

    await until(followed, "the operator works again")
    for kind, resource in KINDS.items():
        if kind != "secrets":
            assert (await api.get(resource, "thing", child))["metadata"] == before[kind]


# -- what is never inherited ----------------------------------------------------------------------


async def test_foreign_objects_are_never_inherited(api: Api, trees: Trees, name: str) -> None:
    """E06: tokens, what a controller made, what every namespace has, and what Tenantry made for the parent."""
    await api.make_tenant(name, containerDefaults={"requests": {"cpu": "1m"}})
    owner = await api.create(CONFIG_MAPS, {"metadata": {"name": "owner"}}, name)
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    await api.create(CONFIG_MAPS, thing("configMaps", "made", ownerReferences=[reference]), name)
    token = {"kubernetes.io/service-account.name": "default"}
    await api.create(
        SECRETS,
        {"type": "kubernetes.io/service-account-token", "metadata": {"name": "token", "annotations": token}},
        name,
    )
    all_kinds = workspace(**dict.fromkeys(KINDS, "Sync"))
    child = await trees.make(name, "team", all_kinds)
    await exists(api, CONFIG_MAPS, "owner", child)
    await never(api, CONFIG_MAPS, "made", child)
    await never(api, SECRETS, "token", child)
    inherited = [
        each["metadata"]["name"]
        for resource in KINDS.values()
        for each in await api.list(resource, child)
        if "tenantry.dev/inherited-from" in labels(each)
    ]
    assert inherited == ["owner"]


# -- exceptions -----------------------------------------------------------------------------------


async def test_an_object_says_itself_who_inherits_it(api: Api, trees: Trees, name: str) -> None:
    """E06: none, all and selectors, whatever the child's spec says of the kind, and when they change."""
    await api.make_tenant(name)
    red = await trees.make(name, "red", workspace(secrets="Sync") | {"labels": {f"{name}.tenantry.dev/team": "red"}})
    blue = await trees.make(name, "blue", workspace() | {"labels": {f"{name}.tenantry.dev/team": "blue"}})
    said = {
        "hidden": "none",
        "given": "all",
        "some": f"{name}.tenantry.dev/team in (red,green),!{name}.tenantry.dev/other",
        "wrong": "a = b = c",
    }
    for each, value in said.items():
        await api.create(SECRETS, thing("secrets", each, annotations={"tenantry.dev/inherit": value}), name)
    await exists(api, SECRETS, "given", red)
    await exists(api, SECRETS, "given", blue)
    await exists(api, SECRETS, "some", red)
    await never(api, SECRETS, "some", blue)
    for child in (red, blue):
        assert await api.find(SECRETS, "hidden", child) is None
        assert await api.find(SECRETS, "wrong", child) is None
    told = await trees.condition(name, "red", reasons.INHERITED, holds=False, reason=reasons.INVALID_SPEC)
    assert "'a = b = c'" in str(told.status.conditions)
    for_all = {"metadata": {"annotations": {"tenantry.dev/inherit": "all"}}}
    for_none = {"metadata": {"annotations": {"tenantry.dev/inherit": "none"}}}
    await api.patch(SECRETS, "wrong", for_all, name)
    await api.patch(SECRETS, "given", for_none, name)
    await exists(api, SECRETS, "wrong", blue)
    await api.gone(SECRETS, "given", blue)
    await trees.condition(name, "red", reasons.INHERITED, holds=True)
    # The child's labels change: the selector is asked again.
    await api.patch(Subnamespace.resource, "blue", {"spec": {"labels": {f"{name}.tenantry.dev/team": "green"}}}, name)
    await exists(api, SECRETS, "some", blue)


# -- Copy -----------------------------------------------------------------------------------------


async def test_a_copy_is_made_once_and_is_the_childs_own(api: Api, trees: Trees, name: str) -> None:
    """E06: of all seven kinds; not made again when it goes, nor changed, nor put in the place of another."""
    await api.make_tenant(name)
    for field, resource in KINDS.items():
        await api.create(resource, thing(field), name)
    child = await trees.make(name, "team", workspace(**dict.fromkeys(KINDS, "Copy")))
    for resource in KINDS.values():
        copy = await api.get(resource, "thing", child)
        assert labels(copy) == {"team": "x"}
        assert content(copy) == content(await api.get(resource, "thing", name))
    status = (await trees.get(name, "team")).status
    assert set(status.copied) == {
        "configmaps",
        "limitranges",
        "networkpolicies.networking.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "secrets",
        "serviceaccounts",
    }
    await api.delete(SECRETS, "thing", child)
    await api.patch(CONFIG_MAPS, "thing", {"data": {"a": "own"}}, child)
    await api.patch(CONFIG_MAPS, "thing", {"data": {"a": "newer"}}, name)
    await api.create(CONFIG_MAPS, thing("configMaps", "later"), name)
    await api.patch(Subnamespace.resource, "team", {"spec": {"annotations": {f"{name}.tenantry.dev/x": "y"}}}, name)
    await trees.ready(name, "team")
    await never(api, SECRETS, "thing", child)
    await never(api, CONFIG_MAPS, "later", child)
    assert (await api.get(CONFIG_MAPS, "thing", child))["data"] == {"a": "own"}


async def test_a_subtenant_gets_copies_of_objects_that_admit_no_user(api: Api, trees: Trees, name: str) -> None:
    """E05, E06: no role, binding, policy nor account of the parent's, whatever their annotations say."""
    await api.make_tenant(name)
    for field, resource in KINDS.items():
        await api.create(resource, thing(field, annotations={"tenantry.dev/inherit": "all"}), name)
    child = await trees.make(name, "customer", subtenant("carl", inheritance={"secrets": "Copy"}))
    for field in ("secrets", "configMaps", "limitRanges"):
        assert "tenantry.dev/inherited-from" not in labels(await api.get(KINDS[field], "thing", child))
    for field in ("roles", "roleBindings", "networkPolicies", "serviceAccounts"):
        await never(api, KINDS[field], "thing", child)
    await api.delete(CONFIG_MAPS, "thing", child)
    await api.patch(CONFIG_MAPS, "thing", {"data": {"a": "newer"}}, name)
    await never(api, CONFIG_MAPS, "thing", child)


async def test_modes_can_be_switched(api: Api, trees: Trees, name: str) -> None:
    """E06: from kept to own and back, from own and edited to a clash that is told, and from kept to nothing."""
    await api.make_tenant(name)
    await api.create(SECRETS, thing("secrets"), name)
    child = await trees.make(name, "team", workspace(secrets="Sync"))

    async def switch(mode: str) -> None:
        await api.patch(Subnamespace.resource, "team", {"spec": {"inheritance": {"secrets": mode}}}, name)
        await trees.ready(name, "team")

    uid = (await api.get(SECRETS, "thing", child))["metadata"]["uid"]
    await switch("Copy")
    own = await api.get(SECRETS, "thing", child)
    assert labels(own) == {"team": "x"}
    assert own["metadata"]["uid"] == uid
    assert (await trees.get(name, "team")).status.copied == ("secrets",)
    await api.patch(SECRETS, "thing", {"data": {"a": "Mg=="}}, name)
    await switch("Sync")
    await holds(api, SECRETS, "thing", child, data={"a": "Mg=="})
    taken = await api.get(SECRETS, "thing", child)
    assert taken["metadata"]["uid"] == uid
    assert labels(taken)["tenantry.dev/inherited-from"] == name
    await trees.condition(name, "team", reasons.INHERITED, holds=True)

    await switch("Copy")
    await api.patch(SECRETS, "thing", {"data": {"mine": "MQ=="}}, child)
    await switch("Sync")
    await trees.condition(name, "team", reasons.INHERITED, holds=False, reason=reasons.INHERITANCE_CLASH)
    assert (await trees.get(name, "team")).status.copied == ()
    assert (await api.get(SECRETS, "thing", child))["data"]["mine"] == "MQ=="
    await api.delete(SECRETS, "thing", child)
    await holds(api, SECRETS, "thing", child, type="example.com/thing")
    await trees.condition(name, "team", reasons.INHERITED, holds=True)
    await switch("None")
    await api.gone(SECRETS, "thing", child)


# -- clashes --------------------------------------------------------------------------------------


async def test_a_name_that_is_taken_is_told_and_never_overwritten(api: Api, trees: Trees, name: str) -> None:
    """E06: both namespaces are named, and it resolves itself when either object goes."""
    await api.make_tenant(name)
    child = await trees.make(name, "team", workspace(secrets="Sync", configMaps="Sync"))
    mine: Json = {"metadata": {"name": "thing"}, "data": {"mine": "MQ=="}}
    await api.create(SECRETS, mine, child)
    await api.create(SECRETS, thing("secrets"), name)
    await trees.condition(name, "team", reasons.INHERITED, holds=False, reason=reasons.INHERITANCE_CLASH)
    message = await trees.message(name, "team", reasons.INHERITED)
    assert f"Secret 'thing' of namespace '{name}' is not inherited by '{child}'" in message
    assert (await api.get(SECRETS, "thing", child))["data"] == {"mine": "MQ=="}
    assert (await trees.get(name, "team")).status.conditions
    await trees.ready(name, "team")  # the child itself works
    await api.delete(SECRETS, "thing", name)
    await trees.condition(name, "team", reasons.INHERITED, holds=True)
    await api.create(SECRETS, thing("secrets"), name)
    await trees.condition(name, "team", reasons.INHERITED, holds=False, reason=reasons.INHERITANCE_CLASH)
    await api.delete(SECRETS, "thing", child)
    await holds(api, SECRETS, "thing", child, type="example.com/thing")
    await trees.condition(name, "team", reasons.INHERITED, holds=True)


# -- suspension -----------------------------------------------------------------------------------


async def test_a_suspension_closes_inherited_bindings_and_its_end_opens_them(api: Api, trees: Trees, name: str) -> None:
    """E02, E06: at every depth, also those that come down meanwhile."""
    await api.make_tenant(name)
    await api.create(RoleBinding.resource, thing("roleBindings"), name)
    child = await trees.make(name, "team", workspace(roleBindings="Sync"))
    low = await trees.make(child, "low", workspace(roleBindings="Sync"))
    subjects = (await api.get(RoleBinding.resource, "thing", low))["subjects"]
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})

    async def closed() -> bool:
        bindings = [each for where in (name, child, low) for each in await api.list(RoleBinding.resource, where)]
        return not any(each.get("subjects") for each in bindings)

    await until(closed, "all bindings are empty")
    await stays(closed, "all bindings stay empty", seconds=1.0)
    late = thing("roleBindings", "late")
    await api.create(RoleBinding.resource, late, name)
    await exists(api, RoleBinding.resource, "late", low)
    await until(closed, "the new one is closed, too")
    await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
    for where in (name, child, low):
        await holds(api, RoleBinding.resource, "thing", where, subjects=subjects)
        await holds(api, RoleBinding.resource, "late", where, subjects=subjects)


# -- the end --------------------------------------------------------------------------------------


async def test_the_end_of_a_child_leaves_the_source(api: Api, trees: Trees, name: str) -> None:
    """E06: nothing goes up the tree."""
    await api.make_tenant(name)
    await api.create(SECRETS, thing("secrets"), name)
    child = await trees.make(name, "team", workspace(secrets="Sync"))
    await api.delete(Subnamespace.resource, "team", name)
    await trees.namespace_gone(child)
    with pytest.raises(NotFound):
        await api.get(SECRETS, "thing", child)
    assert (await api.get(SECRETS, "thing", name))["data"] == {"a": "Yg=="}


async def test_who_comes_early_has_what_comes_to_its_parent(api: Api, trees: Trees, name: str) -> None:
    """E06: what is copied once is there first, also where the parent is made at the same moment."""
    tenant = await api.make_tenant(name, namespaces={"maxCount": 24})
    secrets = [f"s{number}" for number in range(8)]
    await asyncio.gather(*(api.create(SECRETS, thing("secrets", each), name) for each in secrets))

    async def pair(number: int) -> set[str]:
        await trees.ask(name, f"p{number}", workspace(secrets="Sync"))
        parent = child_name(tenant.metadata.uid, name, f"p{number}")
        await until(lambda: api.find(Namespace.resource, parent), "the parent's namespace is there")
        child = await trees.make(parent, "low", workspace(secrets="Copy"))
        return {each["metadata"]["name"] for each in await api.list(SECRETS, child)}

    assert await asyncio.gather(*(pair(number) for number in range(12))) == [set(secrets)] * 12

"""Ways around the edge of a Subtenant: each is refused, with users' own certificates.

Unless a test says otherwise, alice owns a tenant of the test's name, and carl the Subtenant `customer` in it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.errors import Conflict, Forbidden, Invalid
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.world.naming import child_name
from testkit.api import CONFIG_MAPS, ROLES, SECRETS, SERVICE_ACCOUNTS, Api, stays, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.trees import WORKSPACE, Trees, subnamespace_json, subtenant

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
SUBS = Subnamespace.resource


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The parent."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


@pytest_asyncio.fixture
async def carl(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The customer."""
    async with as_person(tenancy, tmp_path, "carl") as person:
        yield person


async def people(api: Api, namespace: str) -> set[str]:
    """Return whom the owners' binding of a namespace names."""
    binding = await api.get(RoleBinding.resource, "tenantry-owner", namespace)
    return {subject["name"] for subject in binding.get("subjects", [])}


def binding(name: str, role: str, *users: str, **metadata: object) -> Json:
    """Return a RoleBinding of a ClusterRole, as in YAML."""
    return {
        "metadata": {"name": name, **metadata},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC} for user in users],
    }


# -- what is written of a Subtenant ---------------------------------------------------------------

CHANGES: dict[str, tuple[Json, str]] = {
    "owners": ({"spec": {"owners": [{"kind": "User", "name": "dora"}]}}, "spec.owners of a Subtenant must not change"),
    "one more owner": (
        {"spec": {"owners": [{"kind": "User", "name": "carl"}, {"kind": "User", "name": "alice"}]}},
        "spec.owners of a Subtenant must not change",
    ),
    "mode": ({"spec": {"mode": "Workspace"}}, "must not change: delete the Subnamespace"),
    "mode and people": (
        {"spec": {"mode": "Workspace", "inheritance": {"roleBindings": "Sync"}}},
        "must not change",
    ),
    "bindings inherited": ({"spec": {"inheritance": {"roleBindings": "Copy"}}}, "must not have roles, roleBindings"),
    "secrets pushed later": ({"spec": {"inheritance": {"secrets": "Copy"}}}, "spec.inheritance of a Subtenant must"),
    "limits pushed later": ({"spec": {"inheritance": {"limitRanges": "Copy"}}}, "spec.inheritance of a Subtenant must"),
    "what runs": (
        {"spec": {"inheritance": {"others": [{"resource": "deployments.apps", "mode": "Copy"}]}}},
        "must not have kinds that run pods",
    ),
    "another namespace": ({"spec": {"adopt": {"namespace": "kube-system"}}}, "must not change: the child is one"),
    "no finalizer": ({"metadata": {"finalizers": None}}, "metadata.finalizers must keep tenantry.dev/subnamespace"),
    "other finalizers": ({"metadata": {"finalizers": ["a.example/b"]}}, "metadata.finalizers must keep"),
    "looks inherited": ({"metadata": {"labels": {"tenantry.dev/inherited-from": "x"}}}, "must not have the label"),
}


async def test_a_parent_changes_nothing_that_lets_it_in(api: Api, trees: Trees, alice: Api, name: str) -> None:
    """E05: by a patch, a replacement or an apply, all the same; what is the parent's to change, it can."""
    await api.make_tenant(name)
    inside = await trees.make(name, "customer", subtenant("carl"))
    for change, message in CHANGES.values():
        with pytest.raises((Forbidden, Invalid), match=message):
            await alice.patch(SUBS, "customer", change, name)
    path = wire.path(SUBS, name, "customer")
    dora = {"mode": "Subtenant", "owners": [{"kind": "User", "name": "dora"}]}
    document = {"apiVersion": SUBS.api_version, "kind": SUBS.kind, **subnamespace_json("customer", dora)}
    query = {"fieldManager": "alice", "force": "true"}
    for method, kind, more in (("PATCH", "application/apply-patch+yaml", query), ("PUT", "application/json", {})):

        async def answered(method: str = method, kind: str = kind, more: dict[str, str] = more) -> str:
            live: Json = {} if method == "PATCH" else (await alice.get(SUBS, "customer", name))["metadata"]
            body = msgspec.json.encode({**document, "metadata": {**live, "name": "customer"}})
            try:
                await alice.client.request(method, path, query=more, body=body, content_type=kind)
            except Conflict:
                return ""  # the operator has written its status meanwhile
            except Forbidden as error:
                return str(error)
            return "it is taken"

        assert "spec.owners of a Subtenant must not change" in await until(answered, f"{method} is answered")
    with pytest.raises(Forbidden, match="cannot patch resource"):
        await alice.client.request("PATCH", f"{path}/status", body=b"{}", content_type="application/merge-patch+json")
    await alice.patch(SUBS, "customer", {"spec": {"annotations": {f"{name}.tenantry.dev/a": "b"}}}, name)
    assert await people(api, inside) == {"carl"}


ESCALATIONS: dict[str, tuple[Resource, Json]] = {
    "everything": (RoleBinding.resource, binding("a", "cluster-admin", "alice")),
    "the operator's": (RoleBinding.resource, binding("a", "tenantry-operator", "alice")),
    "an administrator's": (RoleBinding.resource, binding("a", "tenantry-admin", "alice")),
    "status": (
        ROLES,
        {
            "metadata": {"name": "a"},
            "rules": [{"apiGroups": ["tenantry.dev"], "resources": ["subnamespaces/status"], "verbs": ["update"]}],
        },
    ),
    "administer": (
        ROLES,
        {
            "metadata": {"name": "a"},
            "rules": [{"apiGroups": ["tenantry.dev"], "resources": ["tenants"], "verbs": ["administer"]}],
        },
    ),
    "namespaces": (
        ROLES,
        {"metadata": {"name": "a"}, "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch"]}]},
    ),
}


@pytest.mark.parametrize(("resource", "wanted"), ESCALATIONS.values(), ids=ESCALATIONS.keys())
async def test_an_owner_grants_no_more_rights_than_an_owner_has(
    api: Api, alice: Api, name: str, resource: Resource, wanted: Json
) -> None:
    """E05: rights that policies or the operator go by cannot be had by way of a binding of one's own."""
    await api.make_tenant(name)
    with pytest.raises(Forbidden, match="is attempting to grant RBAC permissions not currently held"):
        await alice.create(resource, wanted, name)


async def test_a_service_account_of_the_parent_cannot_add_owners(api: Api, alice: Api, name: str) -> None:
    """E05: a parent may act as the service accounts in its namespace; that does not hide their origin."""
    await api.make_tenant(name)
    robot = binding("robot", "tenantry-owner")
    robot["subjects"] = [{"kind": "ServiceAccount", "name": "default", "namespace": name}]
    await alice.create(RoleBinding.resource, robot, name)

    async def known() -> bool:
        return await api.may(robot["subjects"][0], "create", SUBS.group, SUBS.plural, name)

    await until(known, "the robot may make Subnamespaces")
    account = f"system:serviceaccount:{name}:default"
    async with Client(msgspec.structs.replace(alice.client.connection, impersonate=account)) as client:
        with pytest.raises(Forbidden, match="must not name an owner of the parent"):
            await Api(client).create(SUBS, subnamespace_json("customer", subtenant("alice")), name)
    owners = [{"kind": "ServiceAccount", "name": "default", "namespace": name}]
    with pytest.raises(Forbidden, match="must not name a ServiceAccount"):
        await alice.create(SUBS, subnamespace_json("customer", {"mode": "Subtenant", "owners": owners}), name)
    owners = [{"kind": "Group", "name": f"system:serviceaccounts:{name}"}]
    with pytest.raises(Invalid, match="must not begin with system:"):
        await alice.create(SUBS, subnamespace_json("customer", {"mode": "Subtenant", "owners": owners}), name)


# -- whose it becomes -----------------------------------------------------------------------------


async def test_a_parent_is_no_owner_though_its_binding_is_away(
    api: Api, trees: Trees, alice: Api, operator: Operator, name: str
) -> None:
    """E05: admission reads the owners of the parent from its namespace, and the operator goes by the specs."""
    both = [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"}]
    await api.make_tenant(name, owners=both)
    await trees.make(name, "customer", subtenant("carl"))
    await operator.stop()
    await alice.create(RoleBinding.resource, binding("mine", "tenantry-owner", "alice"), name)
    with pytest.raises(Forbidden, match="'tenantry-owner' is Tenantry's"):
        await alice.delete(RoleBinding.resource, "tenantry-owner", name)
    await api.delete(RoleBinding.resource, "tenantry-owner", name)

    with pytest.raises(Forbidden, match="must not name an owner of the parent"):
        await alice.create(SUBS, subnamespace_json("bobs", subtenant("erik", "bob")), name)
    # The policy does not apply to administrators.
    await api.create(SUBS, subnamespace_json("bobs", subtenant("erik", "bob")), name)
    with pytest.raises(Forbidden, match=r"spec\.owners of a Subtenant must not change"):
        await alice.patch(SUBS, "customer", {"spec": subtenant("bob")}, name)
    with pytest.raises(Forbidden, match="must not name you"):
        await alice.create(SUBS, subnamespace_json("mine", subtenant("alice")), name)
    await operator.start()
    await operator.leads()
    await _refused(trees, name, "bobs", reasons.NOT_ALLOWED, "must not have 'bob'")


async def test_the_owner_of_a_grandparent_is_no_owner(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E05: all namespaces above count, up to the next Subtenant; what is above that one is blind already."""
    await api.make_tenant(name)
    team = await trees.make(name, "team", {"mode": "Workspace", "owners": [{"kind": "User", "name": "olga"}]})
    customer = await trees.make(name, "customer", subtenant("carl"))
    async with as_person(tenancy, tmp_path, "olga") as olga:
        await olga.create(SUBS, subnamespace_json("customer", subtenant("alice")), team)
    await _refused(trees, team, "customer", reasons.NOT_ALLOWED, "must not have 'alice'")
    # carl's own customer may be any user but carl.
    await trees.make(customer, "partner", subtenant("alice"))


async def _refused(trees: Trees, parent: str, child: str, reason: str, message: str) -> None:
    """Wait until a Subnamespace is refused, and see that it has no namespace."""

    async def told() -> bool:
        return message in await trees.message(parent, child)

    await until(told, f"{parent}/{child} is told: {message}")
    found = await trees.condition(parent, child, reasons.STALLED, holds=True, reason=reason)
    assert found.status.namespace == ""


# -- taking it away -------------------------------------------------------------------------------


async def test_a_namespace_left_behind_cannot_be_taken(  # noqa: PLR0917 - fixtures
    api: Api, trees: Trees, alice: Api, carl: Api, operator: Operator, name: str
) -> None:
    """E05: though an administrator takes the finalizer away, who asks for the name again does not get what was there.

    Nor do they become the owners of what is below it, where people come down from a Subnamespace of that name.
    """
    await api.make_tenant(name)
    inside = await trees.make(name, "customer", subtenant("carl"))
    await carl.create(SUBS, subnamespace_json("team", WORKSPACE), inside)
    below = await trees.open(inside, "team")
    await alice.patch(SUBS, "customer", {"spec": {"allowCascadingDeletion": True}}, name)
    with pytest.raises(Forbidden, match=r"metadata\.finalizers must keep"):
        await alice.patch(SUBS, "customer", {"metadata": {"finalizers": None}}, name)
    await operator.stop()
    await api.patch(SUBS, "customer", {"metadata": {"finalizers": None}}, name)
    await alice.client.delete(SUBS, name, "customer")
    await api.gone(SUBS, "customer", name)
    await operator.start()
    await operator.leads()
    assert await api.find(Namespace.resource, inside) is not None
    await alice.create(SUBS, subnamespace_json("customer", WORKSPACE), name)
    await _refused(trees, name, "customer", reasons.NAME_TAKEN, f"namespace '{inside}' belonged to a Subnamespace")
    await api.patch(SUBS, "team", {"spec": {"annotations": {f"{name}.tenantry.dev/a": "b"}}}, inside)
    await trees.condition(inside, "team", reasons.STALLED, holds=True, reason=reasons.INVALID_SPEC)
    for namespace in (inside, below):
        assert await people(api, namespace) == {"carl"}
        with pytest.raises(Forbidden):
            await alice.list(SECRETS, namespace)


async def test_a_move_planted_ahead_takes_nothing_out_of_a_subtenant(
    api: Api, trees: Trees, alice: Api, carl: Api, name: str
) -> None:
    """E05: the name of what will be inside is known ahead, and so is its parent's, while that is still alice's."""
    tenant = await api.make_tenant(name)
    place = await trees.make(name, "customer")
    wanted = child_name(tenant.metadata.uid, place, "team")
    planted = {**WORKSPACE, "adopt": {"namespace": wanted, "parent": place}}
    await alice.create(SUBS, subnamespace_json("team", planted), name)
    await _refused(trees, name, "team", reasons.CANNOT_ADOPT, "is not the child of")
    await alice.delete(SUBS, "customer", name)
    await api.gone(SUBS, "customer", name)
    await alice.create(SUBS, subnamespace_json("customer", subtenant("carl")), name)
    assert await trees.open(name, "customer") == place
    await carl.create(SUBS, subnamespace_json("team", WORKSPACE), place)
    assert (await trees.ready(place, "team")).status.namespace == wanted
    await alice.patch(SUBS, "team", {"spec": {"annotations": {f"{name}.tenantry.dev/try": "again"}}}, name)

    async def still_carls() -> bool:
        told = (await trees.labels(wanted))["tenantry.dev/parent"] == place
        return told and await people(api, wanted) == {"carl"}

    await stays(still_carls, "the namespace is carl's", seconds=1.0)
    await trees.condition(name, "team", reasons.STALLED, holds=True, reason=reasons.CANNOT_ADOPT)
    assert (await trees.get(name, "team")).status.namespace == ""


async def test_who_may_take_something_away_may_not_take_what_is_made_later(
    api: Api, trees: Trees, alice: Api, name: str
) -> None:
    """Point 6: admission asks for the mover's rights once; what others make there later was not meant."""
    tenant = await api.make_tenant(name)
    place = await trees.make(name, "place")
    wanted = child_name(tenant.metadata.uid, place, "team")
    planted = {**WORKSPACE, "adopt": {"namespace": wanted, "parent": place}}
    made = await alice.create(SUBS, subnamespace_json("team", planted), name)

    async def a_second_later() -> bool:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return bool(now > made["metadata"]["creationTimestamp"])

    await until(a_second_later, "times of creation, which have no fractions, differ")
    await trees.make(place, "team")
    await alice.patch(SUBS, "team", {"spec": {"annotations": {f"{name}.tenantry.dev/try": "again"}}}, name)
    await _refused(trees, name, "team", reasons.CANNOT_ADOPT, "was created after this one")


async def test_a_subtenants_namespace_is_not_moved(api: Api, trees: Trees, alice: Api, carl: Api, name: str) -> None:
    """E05, point 6: neither it nor what is in it, neither out of it nor into it."""
    await api.make_tenant(name)
    team = await trees.make(name, "team")
    inside = await trees.make(name, "customer", subtenant("carl"))
    below = await trees.make(inside, "below")
    stolen = {**WORKSPACE, "adopt": {"namespace": inside, "parent": name}}
    await alice.create(SUBS, subnamespace_json("customer", stolen), team)
    await _refused(trees, team, "customer", reasons.CANNOT_ADOPT, "only a Workspace can be moved")
    for user, to, what, parent in ((alice, team, below, inside), (carl, inside, team, name)):
        spec = {**WORKSPACE, "adopt": {"namespace": what, "parent": parent}}
        with pytest.raises(Forbidden, match="in which you may delete Subnamespaces"):
            await user.create(SUBS, subnamespace_json("below" if user is alice else "team", spec), to)
    # Behind admission's back, too.
    await trees.ask(team, "below", {**WORKSPACE, "adopt": {"namespace": below, "parent": inside}})
    await _refused(trees, team, "below", reasons.CANNOT_ADOPT, "cannot cross the boundary of a Subtenant")


async def test_a_subtenant_goes_with_the_workspace_that_it_is_in(
    api: Api, trees: Trees, alice: Api, carl: Api, name: str
) -> None:
    """E05, point 6: a move above changes nothing of who sees it."""
    await api.make_tenant(name)
    right = await trees.make(name, "right")
    team = await trees.make(name, "team")
    inside = await trees.make(team, "customer", subtenant("carl"))
    await alice.create(
        SUBS, subnamespace_json("team", {**WORKSPACE, "adopt": {"namespace": team, "parent": name}}), right
    )
    await trees.ready(right, "team")

    async def followed() -> bool:
        return (await trees.labels(inside)).get(f"{right}.tree.tenantry.dev/depth") == "2"

    await until(followed, "the Subtenant says its new place")
    with pytest.raises(Forbidden):
        await alice.list(SECRETS, inside)
    await carl.create(CONFIG_MAPS, {"metadata": {"name": "own"}}, inside)


# -- what is told ---------------------------------------------------------------------------------


async def test_the_existence_of_a_namespace_is_not_revealed(api: Api, trees: Trees, alice: Api, name: str) -> None:
    """E05: a request for a namespace gets the same answer, whether it is foreign or does not exist."""
    await api.make_tenant(name)
    said = set[str]()
    for child, wanted in (("one", "kube-system"), ("two", f"{name}-absent")):
        await alice.create(SUBS, subnamespace_json(child, {**WORKSPACE, "adopt": {"namespace": wanted}}), name)
        made = await trees.condition(name, child, reasons.STALLED, holds=True, reason=reasons.CANNOT_ADOPT)
        said.add((await trees.message(name, child)).replace(wanted, "X").replace(made.metadata.uid, "U"))
    assert len(said) == 1


async def test_a_subtenant_does_not_learn_how_many_others_there_are(
    api: Api, trees: Trees, alice: Api, carl: Api, name: str
) -> None:
    """E05: the tenant's limit is told to its own people with the count, to a customer without."""
    await api.make_tenant(name, namespaces={"maxCount": 1})
    inside = await trees.make(name, "customer", subtenant("carl"))
    await carl.create(SUBS, subnamespace_json("team", WORKSPACE), inside)
    await _refused(trees, inside, "team", reasons.LIMIT_REACHED, "may have no more subnamespaces")
    await alice.create(SUBS, subnamespace_json("team", WORKSPACE), name)
    await _refused(trees, name, "team", reasons.LIMIT_REACHED, "has 1 subnamespaces and may have 1")


async def test_a_shortage_below_is_told_without_names(api: Api, trees: Trees, alice: Api, carl: Api, name: str) -> None:
    """E05, E09: who takes from a Subtenant what it gave away learns how much is missing, not who has it."""
    await api.make_tenant(name, quota={"hard": {"pods": 10}})
    inside = await trees.make(name, "customer", subtenant("carl", quota={"hard": {"pods": 6}}))
    await carl.create(SUBS, subnamespace_json("hushed", {**WORKSPACE, "quota": {"hard": {"pods": 4}}}), inside)
    await trees.ready(inside, "hushed")
    await alice.patch(SUBS, "customer", {"spec": {"quota": {"hard": {"pods": 1}}}}, name)
    await trees.condition(name, "customer", reasons.READY, holds=False, reason=reasons.QUOTA_SHORT)
    message = await trees.message(name, "customer")
    assert "subnamespaces hold 4, 3 more than 1" in message
    assert "hushed" not in str(await alice.get(SUBS, "customer", name))


# -- what is put in, and who stays ----------------------------------------------------------------


async def test_a_subtenant_admits_no_user_before_the_objects_of_its_parent_are_copied(
    api: Api, trees: Trees, alice: Api, carl: Api, name: str
) -> None:
    """E05: a copy that failed is not made up for later, beside what the customer has by then."""
    await api.make_tenant(name, quota={"hard": {"configmaps": 20}})
    for number in range(3):
        await alice.create(CONFIG_MAPS, {"metadata": {"name": f"given-{number}"}}, name)
    spec = subtenant("carl", inheritance={"configMaps": "Copy"}, quota={"hard": {"configmaps": 2}})
    await alice.create(SUBS, subnamespace_json("customer", spec), name)
    await trees.condition(name, "customer", reasons.INHERITED, holds=False)
    inside = (await trees.get(name, "customer")).status.namespace
    assert await api.find(RoleBinding.resource, "tenantry-owner", inside) is None
    await alice.patch(SUBS, "customer", {"spec": {"quota": {"hard": {"configmaps": 8}}}}, name)
    await trees.open(name, "customer")
    # Kubernetes puts one into each namespace, once the quota has room for it.
    await until(lambda: api.find(CONFIG_MAPS, "kube-root-ca.crt", inside), "Kubernetes' own ConfigMap is there")
    found = {each["metadata"]["name"] for each in await carl.list(CONFIG_MAPS, inside)}
    assert found >= {"given-0", "given-1", "given-2"}
    await alice.create(CONFIG_MAPS, {"metadata": {"name": "late"}}, name)
    marked = {"name": "late-too", "annotations": {"tenantry.dev/inherit": "all"}}
    await alice.create(CONFIG_MAPS, {"metadata": marked}, name)

    async def only_those() -> bool:
        return {each["metadata"]["name"] for each in await carl.list(CONFIG_MAPS, inside)} == found

    await stays(only_those, "nothing is put in later", seconds=1.0)


@pytest.mark.long
async def test_no_user_has_access_to_a_namespace_that_is_being_deleted(
    api: Api, trees: Trees, alice: Api, carl: Api, name: str
) -> None:
    """E05: a binding or an account with a finalizer would outlast its deletion, and so would its rights."""
    await api.make_tenant(name)
    inside = await trees.make(name, "customer", subtenant("carl"))
    with pytest.raises(Forbidden, match=r"metadata\.finalizers of a RoleBinding or ServiceAccount must not be set"):
        await carl.create(RoleBinding.resource, binding("stay", "edit", "carl", finalizers=["a.example/b"]), inside)
    await carl.create(RoleBinding.resource, binding("stay", "edit", "carl"), inside)
    with pytest.raises(Forbidden, match=r"metadata\.finalizers of a RoleBinding or ServiceAccount must not be set"):
        await carl.patch(RoleBinding.resource, "stay", {"metadata": {"finalizers": ["a.example/b"]}}, inside)
    await carl.create(SERVICE_ACCOUNTS, {"metadata": {"name": "stay"}}, inside)
    for attempt in (
        carl.create(SERVICE_ACCOUNTS, {"metadata": {"name": "held", "finalizers": ["a.example/b"]}}, inside),
        carl.patch(SERVICE_ACCOUNTS, "stay", {"metadata": {"finalizers": ["a.example/b"]}}, inside),
    ):
        with pytest.raises(Forbidden, match=r"metadata\.finalizers of a RoleBinding or ServiceAccount must not be set"):
            await attempt
    await carl.create(CONFIG_MAPS, {"metadata": {"name": "stay", "finalizers": ["a.example/b"]}}, inside)
    await alice.client.delete(SUBS, name, "customer")

    async def out() -> bool:
        try:
            await carl.list(CONFIG_MAPS, inside)
        except Forbidden:
            return True
        return False

    await until(out, "carl is out, though what he holds is not gone")
    await api.patch(CONFIG_MAPS, "stay", {"metadata": {"finalizers": None}}, inside)
    await trees.namespace_gone(inside)

"""Children of a tenant's namespace on a real API server: made, kept, moved, closed, and gone."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, Invalid, NotFound
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.marks import FINALIZER
from tenantry.api.model import Json
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.engine.conditions import is_true
from tenantry.local.cluster import LocalCluster
from tenantry.world.naming import child_name
from testkit.api import CONFIG_MAPS, PODS, SECONDS, SECRETS, Api, stays, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal
from testkit.trees import WORKSPACE, Trees, subnamespace_json, subtenant

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")


# -- what a child is ------------------------------------------------------------------------------


async def test_a_workspace_is_a_namespace_that_the_parents_owners_manage(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E04, E07: the name is `<name>-<hash>`; who owns the parent works in the child, with their own certificate."""
    tenant = await api.make_tenant(name)
    async with as_person(tenancy, tmp_path, "alice") as alice:
        await alice.create(Subnamespace.resource, subnamespace_json("team", WORKSPACE), name)
        made = await trees.ready(name, "team")
        await trees.open(name, "team")
        digits = hashlib.sha256(f"{tenant.metadata.uid}/{name}/team".encode()).hexdigest()[:16]
        assert made.status.namespace == f"team-{digits}"
        assert made.status.depth == 1
        config = {"metadata": {"name": "mine"}, "data": {"a": "b"}}
        await alice.create(CONFIG_MAPS, config, made.status.namespace)
        assert (await alice.get(CONFIG_MAPS, "mine", made.status.namespace))["data"] == {"a": "b"}


async def test_every_namespace_of_a_tree_says_where_it_is(api: Api, trees: Trees, name: str) -> None:
    """E01, point 5: labels for each ancestor, so that selectors work on subtrees."""
    tenant = await api.make_tenant(name)
    top = await trees.make(name, "top")
    low = await trees.make(top, "low", subtenant("carl", labels={f"{name}.tenantry.dev/team": "red"}))
    labels = await trees.labels(low)
    assert {key: value for key, value in labels.items() if key.endswith("/depth")} == {
        f"{name}.tree.tenantry.dev/depth": "2",
        f"{top}.tree.tenantry.dev/depth": "1",
        f"{low}.tree.tenantry.dev/depth": "0",
    }
    assert labels["tenantry.dev/kind"] == "subtenant"
    assert labels["tenantry.dev/tenant-uid"] == tenant.metadata.uid
    assert labels["tenantry.dev/parent"] == top
    assert labels[f"{name}.tenantry.dev/team"] == "red"


async def test_it_is_held_until_its_namespace_is_gone(api: Api, trees: Trees, name: str) -> None:
    """E07: by a finalizer beside those that it has; an administrator who takes it away is undone."""
    await api.make_tenant(name)
    value = subnamespace_json("team", WORKSPACE)
    value["metadata"]["finalizers"] = ["example.com/mine"]
    await api.create(Subnamespace.resource, value, name)
    await trees.ready(name, "team")
    made = await api.get(Subnamespace.resource, "team", name)
    assert made["metadata"]["finalizers"] == ["example.com/mine", FINALIZER]
    await api.patch(Subnamespace.resource, "team", {"metadata": {"finalizers": None}}, name)

    async def held() -> bool:
        return (await api.get(Subnamespace.resource, "team", name))["metadata"].get("finalizers") == [FINALIZER]

    await until(held, "it is held again")


async def test_it_is_not_ready_while_it_is_being_deleted(api: Api, trees: Trees, name: str) -> None:
    """E07: its namespace waits for a finalizer of another client."""
    await api.make_tenant(name)
    team = await trees.make(name, "team")
    held = {"metadata": {"name": "held", "finalizers": ["example.com/mine"]}}
    await api.create(CONFIG_MAPS, held, team)
    await api.delete(Subnamespace.resource, "team", name)
    await trees.condition(name, "team", reasons.READY, holds=False, reason=reasons.NAMESPACE_TERMINATING)
    await api.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, team)
    await api.gone(Subnamespace.resource, "team", name)


async def test_two_tenants_use_the_same_name(api: Api, trees: Trees, name: str) -> None:
    """E07: the tenant's uid is in the hash."""
    await api.make_tenant(name)
    await api.make_tenant(f"{name}-too")
    first = await trees.make(name, "dev")
    second = await trees.make(f"{name}-too", "dev")
    assert first != second
    assert first.startswith("dev-")
    assert second.startswith("dev-")


async def test_a_federated_child_has_its_home_cluster_in_its_name(api: Api, trees: Trees, name: str) -> None:
    """E08: the cluster's uid goes into the hash."""
    tenant = await api.make_tenant(name)
    cluster = (await api.get(Namespace.resource, "kube-system"))["metadata"]["uid"]
    made = await trees.make(name, "far", {**WORKSPACE, "scope": "Federated"})
    assert made == child_name(tenant.metadata.uid, name, "far", cluster)
    assert made != child_name(tenant.metadata.uid, name, "far")


async def test_a_namespace_that_is_there_is_never_taken_over(api: Api, trees: Trees, name: str) -> None:
    """E07: a collision is a reported failure; the foreign namespace stays as it was, and room made is seen."""
    tenant = await api.make_tenant(name)
    taken = child_name(tenant.metadata.uid, name, "squat")
    await api.create(Namespace.resource, {"metadata": {"name": taken}})
    await trees.ask(name, "squat")
    await trees.condition(name, "squat", reasons.STALLED, holds=True, reason=reasons.NAMESPACE_EXISTS)
    assert set(await trees.labels(taken)) == {"kubernetes.io/metadata.name"}
    await api.delete(Namespace.resource, taken)
    made = await trees.condition(name, "squat", reasons.READY, holds=True, seconds=2 * SECONDS)
    assert made.status.namespace == taken


async def test_hand_edits_are_put_back(api: Api, trees: Trees, name: str) -> None:
    """Labels, limits and people of a child are as its Subnamespace says."""
    await api.make_tenant(name)
    team = await trees.make(name, "team")
    await api.patch(Namespace.resource, team, {"metadata": {"labels": {f"{name}.tree.tenantry.dev/depth": "7"}}})
    await api.delete(RoleBinding.resource, "tenantry-owner", team)

    async def back() -> bool:
        binding = await api.find(RoleBinding.resource, "tenantry-owner", team)
        return binding is not None and (await trees.labels(team))[f"{name}.tree.tenantry.dev/depth"] == "1"

    await until(back, "labels and binding are back")


async def test_people_come_down_the_tree_where_they_are_inherited(api: Api, trees: Trees, name: str) -> None:
    """E06: an owner added at the top reaches every workspace below that inherits role bindings, and no other."""
    await api.make_tenant(name, quota={"hard": {"pods": 50}})
    top = await trees.make(name, "top")
    low = await trees.make(top, "low")
    own = await trees.make(top, "own", {"mode": "Workspace", "owners": [{"kind": "User", "name": "olga"}]})
    people = [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"}]
    await api.patch(Tenant.resource, name, {"spec": {"owners": people}})

    async def reached() -> bool:
        return await _people(api, low) == {"alice", "bob"}

    await until(reached, "the new owner reached the lowest namespace")
    assert await _people(api, own) == {"olga"}


async def _people(api: Api, namespace: str) -> set[str]:
    binding = await api.get(RoleBinding.resource, "tenantry-owner", namespace)
    return {subject["name"] for subject in binding.get("subjects", [])}


# -- blindness ------------------------------------------------------------------------------------


async def test_a_parent_is_blind_to_its_subtenant_and_can_delete_it(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E05: with the parent's own certificate nothing inside can be read or written; deletion works."""
    await api.make_tenant(name)
    inside = await trees.make(name, "customer", subtenant("carl"))
    async with as_person(tenancy, tmp_path, "carl") as carl:
        await carl.create(SECRETS, {"metadata": {"name": "own"}, "stringData": {"a": "b"}}, inside)
        deeper = subnamespace_json("below", WORKSPACE)
        await carl.create(Subnamespace.resource, deeper, inside)
    below = await trees.open(inside, "below")
    async with as_person(tenancy, tmp_path, "alice") as alice:
        for namespace in (inside, below):
            for resource in (SECRETS, CONFIG_MAPS, PODS, RoleBinding.resource, Subnamespace.resource):
                with pytest.raises(Forbidden):
                    await alice.list(resource, namespace)
            with pytest.raises(Forbidden):
                await alice.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, namespace)
            with pytest.raises(Forbidden):
                await alice.get(Namespace.resource, namespace)
        seen = await alice.get(Subnamespace.resource, "customer", name)
        assert "below" not in str(seen)
        await alice.patch(Subnamespace.resource, "customer", {"spec": {"allowCascadingDeletion": True}}, name)
        await alice.delete(Subnamespace.resource, "customer", name)
    await trees.namespace_gone(inside)
    await trees.namespace_gone(below)


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        pytest.param([{"kind": "User", "name": "alice"}], "must not name you", id="the creator"),
        pytest.param([{"kind": "User", "name": "bob"}], "an owner of the parent", id="another owner of the parent"),
        pytest.param([{"kind": "Group", "name": "system:authenticated"}], "must not", id="a group of all users"),
        pytest.param(
            [{"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}],
            "ServiceAccount",
            id="a service account, whose token a user can issue",
        ),
    ],
)
async def test_a_parent_cannot_be_its_subtenants_owner(  # noqa: PLR0917 - fixtures and a table
    api: Api, tenancy: LocalCluster, tmp_path: Path, name: str, owners: list[dict[str, str]], message: str
) -> None:
    """E05: no owner of the parent becomes an owner below."""
    both = [{"kind": "User", "name": "alice"}, {"kind": "User", "name": "bob"}]
    await api.make_tenant(name, owners=both)
    mine = subnamespace_json("mine", {"mode": "Subtenant", "owners": owners})
    async with as_person(tenancy, tmp_path, "alice") as alice:

        async def told() -> bool:
            return message in await refusal(alice, Subnamespace.resource, mine, name)

        # The policy reads the parent's owners from their binding, of which it is told a moment after it was written.
        await until(told, "the policy knows the parent's owners")
        with pytest.raises((Forbidden, Invalid), match=message):
            await alice.create(Subnamespace.resource, mine, name)


async def test_the_owners_of_a_subtenant_cannot_be_changed_by_its_parent(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E05: owners changed later are a way in, and closed; an administrator may."""
    await api.make_tenant(name)
    await trees.make(name, "customer", subtenant("carl"))
    dora = {"spec": {"owners": [{"kind": "User", "name": "dora"}]}}
    async with as_person(tenancy, tmp_path, "alice") as alice:
        with pytest.raises(Forbidden, match="must not change"):
            await alice.patch(Subnamespace.resource, "customer", dora, name)
    await api.patch(Subnamespace.resource, "customer", dora, name)
    made = await trees.ready(name, "customer")
    assert await _people(api, made.status.namespace) == {"dora"}


async def test_what_is_made_again_is_another_namespace(api: Api, trees: Trees, name: str) -> None:
    """E05: deleting and making again under one's own people shows nothing of what was inside."""
    await api.make_tenant(name)
    first = await trees.make(name, "customer", subtenant("carl"))
    await api.create(SECRETS, {"metadata": {"name": "own"}}, first)
    uid = (await api.get(Namespace.resource, first))["metadata"]["uid"]
    await api.delete(Subnamespace.resource, "customer", name)
    await api.gone(Subnamespace.resource, "customer", name)
    second = await trees.make(name, "customer", subtenant("dora"))
    assert second == first
    assert (await api.get(Namespace.resource, second))["metadata"]["uid"] != uid
    assert await api.find(SECRETS, "own", second) is None


# -- the end --------------------------------------------------------------------------------------


async def test_a_parent_with_children_is_not_deleted_unless_that_was_allowed(api: Api, trees: Trees, name: str) -> None:
    """The refusal lists what is inside; with allowCascadingDeletion all of it goes."""
    await api.make_tenant(name, quota={"hard": {"pods": 50}})
    top = await trees.make(name, "top")
    low = await trees.make(top, "low")

    async def counted() -> bool:
        return (await trees.get(name, "top")).status.children == 1

    await until(counted, "the child is counted")
    with pytest.raises(Forbidden, match="1 Subnamespaces are inside: low"):
        await api.client.delete(Subnamespace.resource, name, "top")
    assert await api.find(Namespace.resource, low) is not None
    await api.patch(Subnamespace.resource, "top", {"spec": {"allowCascadingDeletion": True}}, name)
    await api.delete(Subnamespace.resource, "top", name)
    await trees.namespace_gone(low)
    await trees.namespace_gone(top)
    await api.gone(Subnamespace.resource, "top", name)


@pytest.mark.long
async def test_a_tenant_takes_its_whole_tree_with_it(api: Api, trees: Trees, name: str) -> None:
    """E01: everything is gone after deletion, at any depth, whatever cascading says."""
    await api.make_tenant(name, quota={"hard": {"pods": 50}})
    top = await trees.make(name, "top")
    low = await trees.make(top, "low", subtenant("carl"))
    await api.delete(Tenant.resource, name)
    for namespace in (low, top, name):
        await trees.namespace_gone(namespace)


@pytest.mark.long
async def test_deletions_while_the_operator_was_down_are_cleaned_up(
    api: Api, trees: Trees, operator: Operator, name: str
) -> None:
    """A finalizer keeps the Subnamespace until its namespace is gone, whether or not an operator runs."""
    await api.make_tenant(name)
    namespace = await trees.make(name, "team")
    await operator.kill()
    await api.client.delete(Subnamespace.resource, name, "team")
    assert (await trees.get(name, "team")).metadata.deletion_timestamp
    await operator.start()
    await operator.leads()
    await api.gone(Subnamespace.resource, "team", name)
    assert await api.find(Namespace.resource, namespace) is None


# -- limits, suspension ---------------------------------------------------------------------------


async def test_a_tenants_limits_hold(api: Api, trees: Trees, name: str) -> None:
    """Point 1: how many, how deep, name patterns, labels that must or may be set."""
    rules = {"maxCount": 2, "maxDepth": 1, "namePattern": "team-.*", "labels": {"allowed": ["cost-*"]}}
    await api.make_tenant(name, namespaces=rules)
    one = await trees.make(name, "team-one", {**WORKSPACE, "labels": {"cost-center": "7"}})
    assert (await trees.labels(one))["cost-center"] == "7"
    for parent, child, spec, reason in (
        (one, "team-low", WORKSPACE, reasons.LIMIT_REACHED),
        (name, "other", WORKSPACE, reasons.NOT_ALLOWED),
        (name, "team-two", {**WORKSPACE, "labels": {"color": "red"}}, reasons.NOT_ALLOWED),
        (name, "team-six", {**WORKSPACE, "labels": {"tenantry.dev/tenant": "x"}}, reasons.NOT_ALLOWED),
    ):
        await trees.ask(parent, child, spec)
        await trees.condition(parent, child, reasons.STALLED, holds=True, reason=reason)
    await trees.make(name, "team-three")
    await trees.ask(name, "team-four")
    await trees.condition(name, "team-four", reasons.STALLED, holds=True, reason=reasons.LIMIT_REACHED)


async def test_a_limit_holds_for_namespaces_that_are_asked_for_at_once(api: Api, trees: Trees, name: str) -> None:
    """E03: no more than the limit come, and one that was refused comes when another is gone."""
    await api.make_tenant(name, namespaces={"maxCount": 3})
    names = [f"team-{number}" for number in range(12)]
    await asyncio.gather(*(trees.ask(name, each) for each in names))

    async def decided() -> list[Subnamespace] | None:
        found = [await trees.get(name, each) for each in names]
        told = [is_true(each.status.conditions, type_) for each in found for type_ in (reasons.READY, reasons.STALLED)]
        return found if sum(told) == len(names) else None

    found = await until(decided, "every Subnamespace is ready or refused")
    made = [each for each in found if each.status.namespace]
    assert len(made) == 3
    await api.client.delete(Subnamespace.resource, name, made[0].metadata.name)

    async def replaced() -> bool:
        return len([each for each in names if await _has_namespace(trees, name, each)]) == 3

    await until(replaced, "another Subnamespace has the place of the deleted one")


async def _has_namespace(trees: Trees, parent: str, name: str) -> bool:
    try:
        found = await trees.get(parent, name)
    except NotFound:
        return False
    return not found.metadata.deletion_timestamp and bool(found.status.namespace)


async def test_a_suspension_closes_the_whole_tree_and_its_end_opens_it(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E02: only administrators read or write in the tree, subtenants included; all rights return."""
    await api.make_tenant(name)
    inside = await trees.make(name, "customer", subtenant("carl"))
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await api.condition(name, reasons.SUSPENDED, holds=True, reason=reasons.SUSPENDED_BY_SPEC)
    async with as_person(tenancy, tmp_path, "carl") as carl:

        async def is_seen() -> bool:
            return not await api.may({"kind": "User", "name": "carl"}, "list", "", "secrets", inside)

        # The API server is told of a changed binding a moment after it was written.
        await until(is_seen, "the API server knows that carl is out")
        with pytest.raises(Forbidden):
            await carl.list(SECRETS, inside)
        await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})

        async def open_again() -> bool:
            try:
                await carl.create(CONFIG_MAPS, {"metadata": {"name": "again"}}, inside)
            except Forbidden:
                return False
            return True

        await until(open_again, "carl is in again")


async def test_labels_that_a_spec_no_longer_names_go_and_those_of_others_stay(
    api: Api, operator: Operator, trees: Trees, name: str
) -> None:
    """E20: with one write, also in an adopted namespace, and for any operator."""
    rules = {"labels": {"allowed": ["cost-*"]}, "annotations": {"allowed": ["cost-*", "note"]}}
    await api.make_tenant(name, namespaces=rules)
    old = f"{name}-old"
    await api.create(Namespace.resource, {"metadata": {"name": old, "labels": {"cost-old": "1", "theirs": "x"}}})
    given: dict[str, object] = {"labels": {"cost-center": "7", "cost-unit": "a"}, "annotations": {"note": "n"}}
    asked = await trees.ask(name, "team", {**WORKSPACE, **given, "adopt": {"namespace": old}})
    ours = {"tenantry.dev/subnamespace-uid": asked.metadata.uid}
    await api.patch(Namespace.resource, old, {"metadata": {"labels": ours}})
    await trees.ready(name, "team")
    assert {"cost-center": "7", "cost-old": "1", "theirs": "x"}.items() <= (await trees.labels(old)).items()

    await operator.stop()
    theirs = {"labels": {"cost-others": "2"}, "annotations": {"cost-others": "3"}}
    await api.patch(Namespace.resource, old, {"metadata": theirs})
    left: dict[str, object] = {"labels": {"cost-center": None}, "annotations": None}
    await api.patch(Subnamespace.resource, "team", {"spec": left}, name)
    await operator.start()
    await operator.leads()
    await trees.ready(name, "team")
    meta = (await api.get(Namespace.resource, old))["metadata"]
    costs = {key: value for key, value in meta["labels"].items() if key.startswith("cost-") or key == "theirs"}
    assert costs == {"cost-old": "1", "cost-others": "2", "cost-unit": "a", "theirs": "x"}
    assert (meta["annotations"].get("note"), meta["annotations"]["cost-others"]) == (None, "3")
    assert meta["annotations"]["tenantry.dev/given-labels"] == "cost-unit"
    await api.patch(Subnamespace.resource, "team", {"spec": {"labels": None}}, name)
    await trees.ready(name, "team")
    meta = (await api.get(Namespace.resource, old))["metadata"]
    assert "cost-unit" not in meta["labels"]
    assert not any(key.startswith("tenantry.dev/given") for key in meta["annotations"])


async def test_nothing_is_written_twice(api: Api, trees: Trees, operator: Operator, name: str) -> None:
    """A second pass writes nothing: a restarted operator finds everything as it should be."""
    await api.make_tenant(name, quota={"hard": {"pods": 50}})
    top = await trees.make(name, "top")
    low = await trees.make(top, "low", subtenant("carl"))
    # Which of two controllers comes first to one of them after a start is chance.
    others = await asyncio.gather(*(trees.make(name, f"more{number}") for number in range(8)))
    await operator.calm(name, top, low, *others)
    await operator.stop()
    before: dict[str, str] = {}

    async def settled() -> bool:
        # Kubernetes' own controllers write, too: a quota's use, when they come to it.
        nonlocal before
        last, before = before, await _versions(api, name, top, low, *others)
        await asyncio.sleep(0.5)
        return last == before and await api.has_counted(name, top, low, *others)

    await until(settled, "no other client writes here any more")
    since = operator.log.stat().st_size
    await operator.start()
    await operator.leads()
    changed: set[tuple[str, str]] = set()

    async def same() -> bool:
        nonlocal changed
        changed = set((await _versions(api, name, top, low, *others)).items()) ^ set(before.items())
        return not changed

    # Not how much it writes: what other tests have left behind is still coming to its end.
    try:
        await stays(same, "the restarted operator writes nothing here", seconds=2.0)
    except AssertionError as error:
        error.add_note(f"changed: {sorted(changed)}; {operator.written(since, name, top, low, *others)}")
        raise


async def _versions(api: Api, tenant: str, *children: str) -> dict[str, str]:
    """Return what changes when a tree's objects are written, by what they are: the resourceVersions.

    Kubernetes writes the status of a ResourceQuota whenever it counts again, so of these, it is all but that.
    """
    inside = (Subnamespace, LimitRange, NetworkPolicy, RoleBinding)
    found = [await api.get(kind.resource, tenant) for kind in (Tenant, TenantResourceQuota)]
    quotas: list[Json] = []
    for namespace in (tenant, *children):
        found.append(await api.get(Namespace.resource, namespace))
        quotas += await api.list(ResourceQuota.resource, namespace)
        for kind in inside:
            found += await api.list(kind.resource, namespace)
    versions = {_identity(each["metadata"]): each["metadata"]["resourceVersion"] for each in found}
    return versions | {_identity(each["metadata"]): _without_status(each) for each in quotas}


def _identity(meta: Json) -> str:
    return f"{meta.get('namespace', '')}/{meta['name']} {meta['uid']}"


def _without_status(quota: Json) -> str:
    """Return what a write of the status of a ResourceQuota leaves as it is."""
    meta = quota["metadata"]
    fields = [each for each in meta.get("managedFields", ()) if each.get("subresource") != "status"]
    return repr({**meta, "resourceVersion": "", "managedFields": fields, "spec": quota["spec"]})

"""Moving a workspace, with what is in it, to another parent on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import SUBNAMESPACE_UID
from tenantry.api.subnamespace import Subnamespace
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, SECRETS, Api, until
from testkit.people import as_person
from testkit.trees import WORKSPACE, Trees, subnamespace_json, subtenant

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")


async def test_a_workspace_moves_with_what_is_in_it(api: Api, trees: Trees, name: str) -> None:
    """Point 6: the namespace stays the same; its labels, and those of what is below, say the new place."""
    await api.make_tenant(name)
    left, right = await trees.make(name, "left"), await trees.make(name, "right")
    team = await trees.make(left, "team")
    deep = await trees.make(team, "deep")
    await api.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, team)
    moved = await trees.make(right, "team", {**WORKSPACE, "adopt": {"namespace": team, "parent": left}})
    assert moved == team
    assert await api.find(CONFIG_MAPS, "kept", team) is not None
    await api.gone(Subnamespace.resource, "team", left)

    async def relabelled() -> bool:
        labels = await trees.labels(deep)
        return labels.get(f"{right}.tree.tenantry.dev/depth") == "2" and f"{left}.tree.tenantry.dev/depth" not in labels

    await until(relabelled, "what is below says its new place")


async def test_a_move_needs_the_right_to_delete(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """Point 6: the API server asks whether the mover may take it away where it is."""
    await api.make_tenant(name)
    team = await trees.make(name, "team", {"mode": "Workspace", "owners": [{"kind": "User", "name": "olga"}]})
    mine = await trees.make(name, "mine", {"mode": "Workspace", "owners": [{"kind": "User", "name": "olga"}]})
    async with as_person(tenancy, tmp_path, "olga") as olga:
        stolen = {**WORKSPACE, "adopt": {"namespace": team, "parent": name}}
        with pytest.raises(Forbidden, match="in which you may delete Subnamespaces"):
            await olga.create(Subnamespace.resource, subnamespace_json("team", stolen), mine)


async def test_a_tree_has_no_cycles(api: Api, trees: Trees, name: str) -> None:
    """Point 6: what is above cannot be moved below, neither at admission nor behind its back."""
    await api.make_tenant(name)
    top = await trees.make(name, "top")
    low = await trees.make(top, "low")
    with pytest.raises(Forbidden, match="a tree has no cycles"):
        await trees.ask(low, "top", {**WORKSPACE, "adopt": {"namespace": top, "parent": name}})


async def test_quota_and_inheritance_move_along(api: Api, trees: Trees, name: str) -> None:
    """Point 6: the share goes back to the old parent and is taken from the new one; what is inherited is the new's."""
    await api.make_tenant(name, quota={"hard": {"cpu": "10"}})
    spec = {**WORKSPACE, "inheritance": {**WORKSPACE["inheritance"], "secrets": "Sync"}}
    left = await trees.make(name, "left", {**spec, "quota": {"hard": {"cpu": "4"}}})
    right = await trees.make(name, "right", {**spec, "quota": {"hard": {"cpu": "3"}}})
    for place, value in ((left, "bGVmdA=="), (right, "cmlnaHQ=")):
        await api.create(SECRETS, {"metadata": {"name": "key"}, "data": {"where": value}}, place)
    team = await trees.make(left, "team", {**spec, "quota": {"hard": {"cpu": "2"}}})
    adopt = {"namespace": team, "parent": left}
    await trees.make(right, "team", {**spec, "quota": {"hard": {"cpu": "2"}}, "adopt": adopt})

    async def settled() -> bool:
        shares = [await _share(api, place) for place in (name, left, right, team)]
        copy = await api.find(SECRETS, "key", team)
        return shares == ["3", "4", "1", "2"] and copy is not None and copy["data"] == {"where": "cmlnaHQ="}

    await until(settled, "the shares and the copies are the new parent's")


async def test_a_move_that_the_new_parent_cannot_pay_is_refused(api: Api, trees: Trees, name: str) -> None:
    """Point 6, E09: nothing moves, and the reason is said."""
    await api.make_tenant(name, quota={"hard": {"cpu": "10"}})
    left = await trees.make(name, "left", {**WORKSPACE, "quota": {"hard": {"cpu": "4"}}})
    right = await trees.make(name, "right", {**WORKSPACE, "quota": {"hard": {"cpu": "1"}}})
    team = await trees.make(left, "team", {**WORKSPACE, "quota": {"hard": {"cpu": "2"}}})
    moved = {**WORKSPACE, "quota": {"hard": {"cpu": "2"}}, "adopt": {"namespace": team, "parent": left}}
    with pytest.raises(Forbidden, match=r"must not exceed what .* can give"):
        await trees.ask(right, "team", moved)
    assert (await trees.labels(team))["tenantry.dev/parent"] == left


async def test_shares_change_places_in_any_order(api: Api, trees: Trees, name: str) -> None:
    """Point 4, E09: the one that grows first waits, and says so, until the other has shrunk."""
    await api.make_tenant(name, quota={"hard": {"cpu": "10"}})
    one = await trees.make(name, "one", {**WORKSPACE, "quota": {"hard": {"cpu": "6"}}})
    two = await trees.make(name, "two", {**WORKSPACE, "quota": {"hard": {"cpu": "4"}}})
    await api.patch(Subnamespace.resource, "two", {"spec": {"quota": {"hard": {"cpu": "8"}}}}, name)
    await trees.condition(name, "two", reasons.READY, holds=False, reason=reasons.QUOTA_INSUFFICIENT)
    await api.patch(Subnamespace.resource, "one", {"spec": {"quota": {"hard": {"cpu": "2"}}}}, name)
    await trees.ready(name, "two")
    assert [await _share(api, place) for place in (name, one, two)] == ["0", "2", "8"]


async def _share(api: Api, namespace: str) -> str:
    hard: dict[str, str] = (await api.get(ResourceQuota.resource, "tenantry-quota", namespace))["spec"]["hard"]
    return hard["requests.cpu"]


async def test_only_an_administrator_moves_a_namespace_to_another_tenant(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """Point 6: across tenants it is refused, even to one who owns both, until an administrator labels the namespace."""
    await api.make_tenant(name)
    await api.make_tenant(f"{name}-too")
    team = await trees.make(name, "team")
    async with as_person(tenancy, tmp_path, "alice") as alice:
        stolen = {**WORKSPACE, "adopt": {"namespace": team, "parent": name}}
        await alice.create(Subnamespace.resource, subnamespace_json("team", stolen), f"{name}-too")
    await trees.condition(f"{name}-too", "team", reasons.STALLED, holds=True, reason=reasons.CANNOT_ADOPT)
    await api.delete(Subnamespace.resource, "team", f"{name}-too")
    await api.gone(Subnamespace.resource, "team", f"{name}-too")
    asked = await trees.ask(f"{name}-too", "team", {**WORKSPACE, "adopt": {"namespace": team}})
    await trees.condition(f"{name}-too", "team", reasons.STALLED, holds=True, reason=reasons.CANNOT_ADOPT)
    await api.patch(Namespace.resource, team, {"metadata": {"labels": {SUBNAMESPACE_UID: asked.metadata.uid}}})
    assert (await trees.ready(f"{name}-too", "team")).status.namespace == team
    assert (await trees.labels(team))["tenantry.dev/tenant"] == f"{name}-too"


async def test_a_subtenant_is_not_moved(api: Api, trees: Trees, name: str) -> None:
    """Point 6: only workspaces move: a subtenant's people were promised that their parent stays the same."""
    await api.make_tenant(name)
    right = await trees.make(name, "right")
    customer = await trees.make(name, "customer", subtenant("carl"))
    await trees.ask(right, "customer", subtenant("carl", adopt={"namespace": customer, "parent": name}))
    await trees.condition(right, "customer", reasons.STALLED, holds=True, reason=reasons.CANNOT_ADOPT)

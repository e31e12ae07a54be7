"""Inheritance through lost writes, cut watches and killed operators, on a real API server behind a failing proxy."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, ROLES, SECRETS, Api, stays, until
from testkit.faults import Fault, FaultyProxy, Rule, operating
from testkit.operators import Operator
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
SPEC: Json = {
    "mode": "Workspace",
    "owners": [{"kind": "User", "name": "alice"}],
    "inheritance": {"secrets": "Sync", "configMaps": "Sync", "roles": "Copy"},
}
MARK = "tenantry.dev/inherited-from"
KINDS = (SECRETS, CONFIG_MAPS)


async def _inherited(api: Api, namespace: str) -> dict[str, Json]:
    """Return what a namespace has of the kinds that are kept the same, by kind and name; not Kubernetes' own."""
    return {
        f"{resource.kind}/{each['metadata']['name']}": each.get("data", {})
        for resource in KINDS
        for each in await api.list(resource, namespace)
        if each["metadata"]["name"] != "kube-root-ca.crt"
    }


async def _agree(api: Api, source: str, *children: str) -> None:
    """Wait until every child has exactly what its parent has."""

    async def so() -> bool:
        wanted = await _inherited(api, source)
        differ[:] = [found for child in children if (found := await _inherited(api, child)) != wanted]
        return not differ

    differ: list[dict[str, Json]] = []
    try:
        await until(so, f"{children} have what {source} has")
    except AssertionError as error:
        raise AssertionError(f"{error}: {await _inherited(api, source)} is not {differ}") from error


def _value(name: str, text: str) -> Json:
    return {"metadata": {"name": name}, "data": {"a": text}}


async def test_whatever_write_is_lost_with_or_without_effect_the_copies_come_out_right(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E06: each kind of write in turn."""
    trees = Trees(api)
    await api.make_tenant(name)
    for resource in KINDS:
        for each in ("a", "b", "c", "d"):
            await api.create(resource, _value(each, "b25l"), name)
    async with operating(tenancy, operator, tmp_path) as (proxy, behind):

        def lose(method: str, times: int = 2) -> list[Rule]:
            faults = (Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.REFUSE)
            return [proxy.fail(Rule(fault=fault, method=method, path="/secrets", times=times)) for fault in faults]

        rules = lose("POST")
        child = await trees.make(name, "team", SPEC)
        await _agree(api, name, child)
        rules += lose("PUT")
        for resource in KINDS:
            for each in ("a", "b", "c"):
                await api.patch(resource, each, {"data": {"a": "dHdv"}}, name)
        await _agree(api, name, child)
        rules += lose("DELETE", 1)
        for each in ("a", "b", "c"):
            await api.delete(SECRETS, each, name)
        await _agree(api, name, child)
        # A read that fails: the content of a source that has changed.
        rules.append(proxy.fail(Rule(fault=Fault.LOSE_ANSWER, method="GET", path="/secrets/d", times=2)))
        await api.patch(SECRETS, "d", {"data": {"a": "dGhyZWU="}}, name)
        await _agree(api, name, child)
        assert [rule.hits for rule in rules] == [rule.times for rule in rules]
        assert behind.is_running
        assert "Traceback" not in behind.log.read_text()


@pytest.mark.long
async def test_a_tree_converges_after_any_failure_and_any_kill(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E06: seeded by pytest-randomly; three levels, sources made, changed and deleted meanwhile."""
    chance = random.Random(random.getrandbits(32))
    trees = Trees(api)
    await api.make_tenant(name)
    async with operating(tenancy, operator, tmp_path) as (proxy, behind):
        top = await trees.make(name, "top", SPEC)
        parents = {"x": top, "y": top}
        children = [top, *(await asyncio.gather(*(trees.make(where, each, SPEC) for each, where in parents.items())))]
        children.append(await trees.make(children[1], "z", SPEC))
        for number in range(25):
            resource, each = chance.choice(KINDS), chance.choice("abcd")
            if await api.find(resource, each, name) is None:
                await api.create(resource, _value(each, "b25l"), name)
            elif chance.random() < 0.3:
                await api.delete(resource, each, name)
            else:
                await api.patch(resource, each, {"data": {"a": f"{number:04d}"}}, name)
            fault = chance.choice([Fault.REFUSE, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.DELAY])
            path = chance.choice(["/secrets", "/configmaps", ""])
            status = chance.choice([409, 429, 500, 503])
            proxy.fail(Rule(fault=fault, path=path, times=chance.randint(1, 4), status=status, seconds=0.2))
            if chance.random() < 0.2:
                await (proxy.expire_watches() if chance.random() < 0.5 else _cut(proxy))
            if number in {8, 16}:
                await behind.kill()
                await behind.start()
        proxy.rules.clear()
        await behind.leads()
        await _agree(api, name, *children)
        for child in children:
            for resource in KINDS:
                for each in await api.list(resource, child):
                    assert each["metadata"]["name"] == "kube-root-ca.crt" or MARK in each["metadata"]["labels"]
        assert "Traceback" not in behind.log.read_text()


async def test_what_is_copied_once_comes_also_where_a_watch_is_behind(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E06: what is there before a child is asked for, though its watch has not told yet, by the spec or annotated."""
    trees = Trees(api)
    await api.make_tenant(name)
    async with operating(tenancy, operator, tmp_path) as (proxy, _):
        await trees.make(name, "first", SPEC)  # kinds are watched from the first child on
        rules = [
            proxy.fail(Rule(fault=Fault.LOSE_REQUEST, path=rf"/{kind.plural}[?].*watch=true", times=10**6))
            for kind in KINDS
        ]
        proxy.cut_watches()

        async def behind() -> bool:
            return all(rule.hits for rule in rules)

        await until(behind, "the watches are cut")
        await api.create(SECRETS, _value("thing", "b25l"), name)
        given = {"name": "given", "annotations": {"tenantry.dev/inherit": "all"}}
        await api.create(CONFIG_MAPS, {"metadata": given, "data": {"a": "one"}}, name)
        copied = await trees.make(name, "copied", {**SPEC, "inheritance": {"secrets": "Copy"}})
        carl = [{"kind": "User", "name": "carl"}]
        customer = await trees.make(name, "customer", {"mode": "Subtenant", "owners": carl})
        assert (await api.get(SECRETS, "thing", copied))["data"] == {"a": "b25l"}
        assert (await api.get(CONFIG_MAPS, "given", customer))["data"] == {"a": "one"}


async def _cut(proxy: FaultyProxy) -> int:
    return proxy.cut_watches()


async def test_what_happens_elsewhere_costs_nothing(api: Api, trees: Trees, operator: Operator, name: str) -> None:
    """Issue 4: a change in a namespace without children, and in no child, is not looked at."""
    await api.make_tenant(name)
    await api.make_tenant(f"{name}-other")
    child = await trees.make(name, "team", SPEC)

    since = await operator.calm(name, child, seconds=2.0)
    for number in range(20):
        await api.create(CONFIG_MAPS, _value(f"c{number}", "b25l"), f"{name}-other")
        await api.create(ROLES, {"metadata": {"name": f"r{number}"}, "rules": []}, f"{name}-other")

    async def is_still() -> bool:
        return not operator.looks(since, name, child, controller="inheritance")

    await stays(is_still, "the controller has nothing to do", seconds=0.5)
    await api.create(CONFIG_MAPS, _value("mine", "b25l"), name)
    await until(lambda: api.find(CONFIG_MAPS, "mine", child), "it works, though")

    async def looked() -> bool:
        return bool(operator.looks(since, name, child, controller="inheritance"))

    await until(looked, "it is told")


async def test_one_change_reaches_many_children_with_one_write_each(
    api: Api, trees: Trees, operator: Operator, name: str
) -> None:
    """E06: one read and one write for each of 100; `tenantry bench tree` tells the time."""
    await api.make_tenant(name, namespaces={"maxCount": 100})
    await api.create(SECRETS, _value("thing", "b25l"), name)
    children: list[str] = []
    for first in range(0, 100, 20):
        # Not all at once: what one may take is limited, and a slow machine makes few at a time.
        some = (trees.make(name, f"c{number}", SPEC) for number in range(first, first + 20))
        children += await asyncio.gather(*some)
    ours = (name, *children)
    since = await operator.calm(*ours, seconds=2.0)
    await api.patch(SECRETS, "thing", {"data": {"a": "dHdv"}}, name)

    async def followed() -> bool:
        copies = await api.list(SECRETS)
        return (
            sum(each["metadata"]["namespace"] in set(children) and each["data"]["a"] == "dHdv" for each in copies)
            == 100
        )

    await until(followed, "all have the new value")
    await operator.calm(*ours, seconds=2.0)
    written = operator.written(since, *ours)
    assert len(written) == 100
    assert len(operator.asked(since, *ours)) - len(written) <= 5

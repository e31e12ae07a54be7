"""Hosts that two tenants request while the operator is down, and the hosts that a new API server knows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.tenant import Tenant
from tenantry.engine.conditions import find
from tenantry.install import apply, manifests
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import components
from tenantry.local.cluster import LocalCluster, UpOptions
from testkit.api import EVENTS, SECONDS, Api, tenant_json, until
from testkit.hosts import INGRESSES, TAKEN, ingress, known, register, taken
from testkit.operators import Operator, running
from testkit.refusals import refusal
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]


@pytest.fixture
def names(name: str) -> tuple[str, str]:
    """Two tenants."""
    return f"{name}a", f"{name}b"


@pytest_asyncio.fixture
async def tenants(api: Api, operator: Operator, names: tuple[str, str]) -> AsyncGenerator[tuple[Tenant, Tenant]]:
    """They are there, and the operator runs again in the end."""
    for each in names:
        await api.create(Tenant.resource, tenant_json(each))
    yield await api.ready(names[0]), await api.ready(names[1])
    for each in names:
        await api.delete(Tenant.resource, each)
    assert operator.is_running


async def _install(path: Path) -> None:
    async with Client(kubeconfig.load([path])) as client:
        await apply.apply(client, manifests.foundation(manifests.LOCAL_USER))


def _age(value: Json) -> tuple[str, str]:
    return value["metadata"]["creationTimestamp"], value["metadata"]["uid"]


async def _said(api: Api, about: Json) -> list[str]:
    """Return what events say of an object's hosts."""
    meta = about["metadata"]
    events = await api.list(EVENTS, meta["namespace"])
    own = [each for each in events if each["regarding"].get("uid") == meta["uid"]]
    assert all(each["type"] == "Warning" for each in own)
    return [each["note"] for each in own if each["reason"] == reasons.HOST_TAKEN]


async def test_of_two_who_ask_at_once_one_has_the_host_and_the_other_is_told(
    api: Api, operator: Operator, tenants: tuple[Tenant, Tenant]
) -> None:
    """E15, H06: the older object has it and keeps it over restarts; the other's tenant and object say so."""
    host = f"web.{tenants[0].metadata.name}.example"
    await operator.stop()
    made = [await api.create(INGRESSES, ingress(host), each.metadata.name) for each in tenants]
    await operator.start()
    await operator.leads()
    older = min(made, key=_age)["metadata"]["namespace"]
    winner, loser = sorted(tenants, key=lambda each: each.metadata.name != older)
    its = next(each for each in made if each["metadata"]["namespace"] == loser.metadata.name)
    told = await api.condition(loser.metadata.name, reasons.HOSTS_TAKEN, holds=True, reason=reasons.HOST_TAKEN)
    first = find(told.status.conditions, reasons.HOSTS_TAKEN)
    assert first is not None
    assert f"Ingress 'i' has the host {host!r}" in first.message
    assert await until(lambda: _said(api, its), "an event says so") == [first.message]
    assert winner.metadata.uid not in first.message

    async def only_theirs() -> bool:
        patch = {"spec": {**ingress(host)["spec"], "ingressClassName": "other"}}
        refused = TAKEN in await refusal(api, INGRESSES, patch, loser.metadata.name, patch="i")
        return refused and not await refusal(api, INGRESSES, patch, winner.metadata.name, patch="i")

    for _ in range(2):
        await until(only_theirs, "the host is the older one's")
        assert (await register(api))[host] == winner.metadata.uid
        kept = (await api.condition(winner.metadata.name, reasons.HOSTS_CONTESTED, holds=True)).status.conditions
        assert find(kept, reasons.HOSTS_TAKEN) is None
        contested = find(kept, reasons.HOSTS_CONTESTED)
        assert contested is not None
        assert "this namespace keeps it" in contested.message
        assert loser.metadata.uid not in contested.message
        assert find((await api.tenant(loser.metadata.name)).status.conditions, reasons.HOSTS_TAKEN) == first
        await operator.stop()
        await operator.start()
        await operator.leads()
    await api.delete(INGRESSES, "i", loser.metadata.name)
    await api.condition(loser.metadata.name, reasons.HOSTS_TAKEN, holds=False)
    await api.condition(winner.metadata.name, reasons.HOSTS_CONTESTED, holds=False)


async def test_a_clash_that_ends_while_the_operator_is_down_is_no_longer_reported(
    api: Api, operator: Operator, tenants: tuple[Tenant, Tenant]
) -> None:
    """E15: what a condition says holds, whatever happened while the operator was down."""
    host = f"web.{tenants[0].metadata.name}.example"
    await operator.stop()
    made = [await api.create(INGRESSES, ingress(host), each.metadata.name) for each in tenants]
    await operator.start()
    await operator.leads()
    older, younger = sorted(made, key=_age)
    loser = younger["metadata"]["namespace"]
    await api.condition(loser, reasons.HOSTS_TAKEN, holds=True)
    await operator.stop()
    await api.delete(INGRESSES, "i", older["metadata"]["namespace"])
    await operator.start()
    await operator.leads()
    await api.condition(loser, reasons.HOSTS_TAKEN, holds=False)
    uid = next(each.metadata.uid for each in tenants if each.metadata.name == loser)

    async def has_it() -> bool:
        return (await register(api)).get(host) == uid

    await until(has_it, "the host is whose it was not")


async def test_a_parent_is_told_that_a_host_is_taken_and_not_which(
    api: Api, operator: Operator, trees: Trees, tenants: tuple[Tenant, Tenant]
) -> None:
    """E15, E05: the Subtenant's events name host and object; its Subnamespace, which the parent reads, does not."""
    top, other = (each.metadata.name for each in tenants)
    inside = await trees.make(top, "shop", subtenant("carol"))
    host = f"secret.{top}.example"
    await operator.stop()
    first = await api.create(INGRESSES, ingress(host), other)

    async def younger() -> Json | None:
        made = await api.create(INGRESSES, ingress(host), inside)
        if made["metadata"]["creationTimestamp"] > first["metadata"]["creationTimestamp"]:
            return made
        await api.delete(INGRESSES, "i", inside)
        return None

    second = await until(younger, "a second has passed")
    await operator.start()
    await operator.leads()
    await trees.condition(top, "shop", reasons.HOSTS_TAKEN, holds=True)
    message = await trees.message(top, "shop", reasons.HOSTS_TAKEN)
    assert message == "hosts inside that another tenant or Subtenant had first: 1; events in the namespace name them"
    notes = await until(lambda: _said(api, second), "an event says which")
    assert host in notes[0]
    assert find((await api.tenant(top)).status.conditions, reasons.HOSTS_TAKEN) is None


@pytest.mark.long
async def test_an_api_server_that_has_just_started_takes_ingresses_and_knows_whose_hosts_are(
    tenantry_home: Path, tmp_path: Path, names: tuple[str, str]
) -> None:
    """E15, H06: no request waits until it knows custom kinds, with the operator down."""
    local = LocalCluster("hosts", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, install=_install, timeout_seconds=3 * SECONDS))
    ours, theirs = names
    host, free = f"web.{ours}.example", f"web.{theirs}.example"
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        api = Api(client)
        async with running(local.paths.kubeconfig("operator"), tmp_path / "log") as replica:
            await replica.leads()
            await api.make_tenant(ours)
            await api.make_tenant(theirs)
            await api.create(INGRESSES, ingress(host), ours)
            await known(api, host)
        await local.restart_component(components.APISERVER, timeout_seconds=2 * SECONDS)
        made = await api.create(INGRESSES, ingress(free), theirs)
        assert made["metadata"]["uid"]

        async def refused() -> bool:
            assert not await refusal(api, INGRESSES, ingress(free, name="again"), theirs)
            return await taken(api, theirs, host) == [host]

        await until(refused, "the policy is in force")
    await local.down(purge=True)

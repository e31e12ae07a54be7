"""Who is served at which priority level of a real API server: it says so on every answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.flowcontrol import FlowSchema, PriorityLevelConfiguration
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.bench.levels import HEADER
from tenantry.engine.conditions import find, is_true
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, SERVICE_ACCOUNTS, Api, until
from testkit.operators import Operator
from testkit.people import as_person

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.early

Json = dict[str, Any]
LEVELS = PriorityLevelConfiguration.resource
OURS = "tenantry-tenants"


async def level_of(api: Api, client: Client) -> str:
    """Return the name of the level that serves a user's requests."""
    async with client.open("GET", "/apis") as answer:
        await answer.read()
        uid = answer.headers[HEADER]
    # A level serves for a moment after it is gone.
    return next((each["metadata"]["name"] for each in await api.list(LEVELS) if each["metadata"]["uid"] == uid), "gone")


async def served(api: Api, client: Client, level: str) -> None:
    """Wait until a level serves a user's requests: the API server applies a change a moment later."""

    async def so() -> bool:
        return await level_of(api, client) == level

    await until(so, f"{level} serves whom it should")


@asynccontextmanager
async def as_service_account(
    tenancy: LocalCluster, api: Api, namespace: str, name: str = "default"
) -> AsyncGenerator[Client]:
    """Be a ServiceAccount, by a token of its own."""

    async def there() -> Json | None:
        return await api.find(SERVICE_ACCOUNTS, name, namespace)

    await until(there, f"the ServiceAccount {namespace}/{name}")
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    token = msgspec.json.decode(await api.client.request("POST", path, body=body))["status"]["token"]
    admin = kubeconfig.load([tenancy.kubeconfig_path])
    async with Client(msgspec.structs.replace(admin, certificate=None, key=None, token=token)) as client:
        yield client


@asynccontextmanager
async def defaults(api: Api, fairness: Json) -> AsyncGenerator[None]:
    """Have TenancyDefaults say this while the context is open."""
    await api.delete(TenancyDefaults.resource, "default")
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"fairness": fairness}})
    try:
        yield
    finally:
        await api.delete(TenancyDefaults.resource, "default")


async def test_tenants_people_and_pods_share_a_level_and_the_system_does_not(
    tenancy: LocalCluster, api: Api, operator: Operator, name: str, tmp_path: Path
) -> None:
    """H06: also while the operator is down."""
    await api.make_tenant(name)
    await operator.stop()
    async with as_person(tenancy, tmp_path, "alice") as alice:
        await served(api, alice.client, OURS)
    async with as_service_account(tenancy, api, name) as pod:
        await served(api, pod, OURS)
    async with as_service_account(tenancy, api, "kube-system") as controller:
        assert await level_of(api, controller) == "workload-high"
    async with Client(kubeconfig.load([tenancy.paths.kubeconfig("operator")])) as client:
        assert await level_of(api, client) == "workload-high"
    async with Client(kubeconfig.load([tenancy.paths.kubeconfig("kwok")])) as client:
        assert await level_of(api, client) == "system"
    assert await level_of(api, api.client) == "exempt"


@pytest.mark.usefixtures("operator")
async def test_a_named_tenant_has_a_level_of_its_own_while_the_defaults_say_so(
    tenancy: LocalCluster, api: Api, name: str, tmp_path: Path
) -> None:
    """H06: for its owners and its pods; and whom an administrator trusts is served as without Tenantry."""
    await api.make_tenant(name, owners=[{"kind": "User", "name": "gina"}])
    trusted = [{"kind": "User", "name": "tracy"}, {"kind": "Namespace", "name": "default"}]
    reserved = f"tenantry-reserved-{name}"

    async def is_unreserved() -> bool:
        return await api.find(LEVELS, reserved) is None and await api.find(FlowSchema.resource, reserved) is None

    async with (
        as_person(tenancy, tmp_path, "gina") as gina,
        as_person(tenancy, tmp_path, "tracy") as tracy,
        as_service_account(tenancy, api, name) as own,
        as_service_account(tenancy, api, "default") as other,
    ):
        expected = {gina.client: reserved, own: reserved, tracy.client: "workload-low", other: "workload-low"}
        async with defaults(api, {"reserved": [{"tenant": name, "shares": 2}], "trusted": trusted}):
            for client, wanted in expected.items():
                await served(api, client, wanted)
        await until(is_unreserved, "the level is gone with the defaults")
        for client in expected:
            await served(api, client, OURS)


@pytest.mark.usefixtures("operator")
async def test_a_reserved_tenant_that_is_not_there_is_told(api: Api, name: str) -> None:
    """H06: a level without a tenant is a misspelt name; it works once the tenant exists."""

    async def told(text: str) -> bool:
        found = await api.client.get(TenancyDefaults, "default")
        missing = find(found.status.conditions, reasons.TENANTS_MISSING)
        # What others say there stays as it is.
        others = is_true(found.status.conditions, reasons.READY)
        return others and text in (missing.message if missing is not None else "none is missing")

    async with defaults(api, {"reserved": [{"tenant": name}]}):
        await until(lambda: told(f"no such tenants in spec.fairness.reserved: '{name}'"), "it is missing")
        await api.make_tenant(name)
        await until(lambda: told("none is missing"), "it is there")
        await api.delete(Tenant.resource, name)
        await until(lambda: told(f"'{name}'"), "it is missing again")


@pytest.mark.usefixtures("operator")
async def test_manual_changes_are_reverted(api: Api) -> None:
    """H06: the level's seats, and what sends people there."""
    more = {"spec": {"limited": {"nominalConcurrencyShares": 500, "borrowingLimitPercent": None}}}
    await api.patch(LEVELS, OURS, more)
    await api.delete(FlowSchema.resource, OURS)

    async def back() -> bool:
        found = await api.find(LEVELS, OURS)
        limited: Json = found["spec"]["limited"] if found else {}
        kept = (limited.get("nominalConcurrencyShares"), limited.get("borrowingLimitPercent")) == (1, 0)
        return kept and await api.find(FlowSchema.resource, OURS) is not None

    await until(back, "the level and its FlowSchema are as they were")


@pytest.mark.parametrize(
    "fairness",
    [
        pytest.param({"shares": 0}, id="no seats for any tenant"),
        pytest.param({"reserved": [{"tenant": f"t{number}"} for number in range(5)]}, id="a fifth level"),
        pytest.param({"reserved": [{"tenant": "a"}, {"tenant": "a"}]}, id="the same twice"),
        pytest.param({"trusted": [{"kind": "Pod", "name": "a"}]}, id="a kind that is none"),
    ],
)
async def test_what_cannot_be_is_refused(api: Api, fairness: Json) -> None:
    """H06: a level for all users would starve the system's own."""
    value = {"metadata": {"name": "default"}, "spec": {"fairness": fairness}}
    with pytest.raises(ApiError, match=r"spec\.fairness"):
        await api.create(TenancyDefaults.resource, value)


@pytest.mark.usefixtures("operator")
async def test_an_owner_changes_no_level(tenancy: LocalCluster, api: Api, name: str, tmp_path: Path) -> None:
    """H06: nor sees where others are served."""
    await api.make_tenant(name)
    async with as_person(tenancy, tmp_path, "alice") as alice:
        with pytest.raises(Forbidden):
            await alice.patch(LEVELS, OURS, {"spec": {"limited": {"nominalConcurrencyShares": 500}}})
        with pytest.raises(Forbidden):
            await alice.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, "kube-system")
        with pytest.raises(Forbidden):
            await alice.list(FlowSchema.resource)

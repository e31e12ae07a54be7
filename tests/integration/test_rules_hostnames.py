"""Which hosts rules refuse, tried with the owner's own certificate."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.tenant import Tenant
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, until
from testkit.hosts import (
    GATEWAYS,
    INGRESSES,
    ROUTES,
    gateway,
    gateway_api,
    ingress,
    may_have_gateways,
    path,
    route,
)
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal
from testkit.trees import WORKSPACE, Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

STANDARD = "(rule hostnames.catchAll of Tenantry's standard)"
ALIAS = "nginx.ingress.kubernetes.io/server-alias"


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


@pytest_asyncio.fixture(scope="module")
async def gateways(api: Api) -> AsyncGenerator[None]:
    """The kinds of the Gateway API."""
    async with gateway_api(api):
        yield


async def test_a_host_that_matches_all_names_is_refused(api: Api, alice: Api, operator: Operator, name: str) -> None:
    """E15, H06: an Ingress without a host, or of a top-level domain, is refused; the operator is down."""
    await api.make_tenant(name)
    await operator.stop()
    backend = ingress()["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    bare: Json = {"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}}
    both: Json = {"metadata": {"name": "i"}, "spec": {**ingress("a.free")["spec"], "defaultBackend": backend}}
    for value in (
        ingress(),
        ingress("a.free", ""),
        bare,
        both,
        ingress("*.com"),
        ingress("a.free", annotations={ALIAS: "b.free, *.free"}),
        ingress("a.free", annotations={ALIAS: "~^.*$"}),
    ):
        assert STANDARD in await refusal(alice, INGRESSES, value, name), value
    await alice.create(INGRESSES, ingress("a.free"), name)
    for patch in ({"spec": {"rules": [path("")]}}, {"metadata": {"annotations": {ALIAS: "*.free"}}}):
        assert STANDARD in await refusal(alice, INGRESSES, patch, name, patch="i")
    assert not await refusal(alice, INGRESSES, {"metadata": {"labels": {"a": "b"}}}, name, patch="i")


@pytest.mark.usefixtures("operator")
async def test_hosts_match_the_patterns_of_the_rules(api: Api, alice: Api, name: str) -> None:
    """E15: in rules, for certificates, by annotations; an IngressClass is one of those allowed, by any of its names."""
    rules = {"hostnames": {"allowed": ["([a-z]+[.])?acme[.]example"], "ingressClasses": ["public"]}}
    await api.make_tenant(name, rules=rules)
    told = f"(rule hostnames.allowed of Tenant '{name}'): must match one of ([a-z]+[.])?acme[.]example"
    good = ingress("acme.example", "www.acme.example", cls="public")
    assert not await refusal(alice, INGRESSES, good, name)
    stolen: Json = {**good, "spec": {**good["spec"], "tls": [{"hosts": ["acme.example", "other.example"]}]}}
    for value, host in (
        (ingress("acme.example.evil", cls="public"), "acme.example.evil"),
        (ingress("xacme.example", cls="public"), "xacme.example"),
        (ingress("*.acme.example", cls="public"), "*.acme.example"),
        (stolen, "other.example"),
        (ingress("acme.example", cls="public", annotations={ALIAS: "www.acme.example, b.example"}), "b.example"),
    ):
        assert f"ingress 'i' has the host '{host}' {told}" in await refusal(alice, INGRESSES, value, name)
    told = f"(rule hostnames.ingressClasses of Tenant '{name}'): must be one of public"
    old_name = {"kubernetes.io/ingress.class": "private"}
    for value in (
        ingress("acme.example"),
        ingress("acme.example", cls="private"),
        ingress("acme.example", annotations=old_name),
    ):
        assert told in await refusal(alice, INGRESSES, value, name)


@pytest.mark.usefixtures("operator", "gateways")
async def test_gateways_and_routes_go_by_the_same_rules(api: Api, alice: Api, name: str) -> None:
    """E15: listeners and routes have hosts, which match; a route at one's own Gateway may leave them out."""
    rules = {"hostnames": {"allowed": ["(.*[.])?acme[.]example"], "gatewayClasses": ["public"]}}
    await api.make_tenant(name, rules=rules)
    await may_have_gateways(api, "alice", name)
    assert not await refusal(alice, GATEWAYS, gateway("acme.example", "*.acme.example"), name)
    assert not await refusal(alice, ROUTES, route("www.acme.example", at="infra"), name)
    assert not await refusal(alice, ROUTES, route(), name)
    assert "must be one of public" in await refusal(alice, GATEWAYS, gateway("acme.example", cls="other"), name)
    for resource, value, told in (
        (
            GATEWAYS,
            gateway(""),
            f"gateway 'g' has a listener without a host, which matches every host {STANDARD}",
        ),
        (GATEWAYS, gateway("evil.example"), f"has the host 'evil.example' (rule hostnames.allowed of Tenant '{name}')"),
        (
            ROUTES,
            route(at="infra"),
            f"route 'r' has no host, and so matches every host of a Gateway in another namespace {STANDARD}",
        ),
        (ROUTES, route("evil.example"), f"has the host 'evil.example' (rule hostnames.allowed of Tenant '{name}')"),
    ):
        assert told in await refusal(alice, resource, value, name)


@pytest.mark.usefixtures("operator")
async def test_each_tenant_has_its_part_of_a_domain(api: Api, alice: Api, name: str) -> None:
    """E15: no other tenant can have hosts below the tenant's own name, regardless of the order of requests."""
    await api.make_tenant(name, rules={"hostnames": {"domain": "apps.example"}})
    for host in (f"{name}.apps.example", f"www.{name}.apps.example", f"*.{name}.apps.example"):
        assert not await refusal(alice, INGRESSES, ingress(host), name)
    for host in ("apps.example", "*.apps.example", f"x{name}.apps.example", f"{name}x.apps.example", "other.example"):
        assert (
            f"ingress 'i' has the host '{host}' (rule hostnames.domain of Tenant '{name}'): must be"
            f" {name}.apps.example or below it"
        ) in await refusal(alice, INGRESSES, ingress(host), name)


@pytest.mark.usefixtures("operator")
async def test_a_domain_that_was_set_below_first_does_not_block_the_tenants(api: Api, alice: Api, name: str) -> None:
    """E15: never looser below: of two domains the upper one holds, whichever was there first."""
    await api.make_tenant(name)
    mine: Json = {**WORKSPACE, "rules": {"hostnames": {"domain": "evil.example"}}}
    child = await Trees(api).make(name, "web", mine)
    await api.patch(Tenant.resource, name, {"spec": {"rules": {"hostnames": {"domain": "apps.example"}}}})

    async def holds() -> bool:
        told = await refusal(alice, INGRESSES, ingress(f"{name}.evil.example"), child)
        return f"(rule hostnames.domain of Tenant '{name}'): must be {name}.apps.example" in told

    await until(holds, "the tenant's domain holds in the child, too")
    assert not await refusal(alice, INGRESSES, ingress(f"{name}.apps.example"), child)

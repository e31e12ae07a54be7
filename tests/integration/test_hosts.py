"""No host has two tenants, nor is one of the cluster's own a tenant's: tried with the certificates of two owners."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api.kubernetes import Namespace
from tenantry.api.tenant import Tenant
from tenantry.install.hosts import MOST_HOSTS, MOST_WILDCARDS
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, tenant_json, until
from testkit.hosts import (
    GATEWAYS,
    INGRESSES,
    ROUTES,
    TAKEN,
    gateway,
    gateway_api,
    ingress,
    known,
    may_have_gateways,
    route,
    taken,
)
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """One owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


@pytest_asyncio.fixture
async def mallory(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """Another one."""
    async with as_person(tenancy, tmp_path, "mallory") as person:
        yield person


@pytest.fixture
def names(name: str) -> tuple[str, str]:
    """Two tenants."""
    return f"{name}a", f"{name}m"


@pytest_asyncio.fixture
async def tenants(api: Api, operator: Operator, names: tuple[str, str]) -> None:  # noqa: ARG001 - it has to run
    """Alice's and Mallory's tenants."""
    await api.make_tenant(names[0])
    # The most hosts of one Ingress are more than 64 KiB.
    rules = {"objects": {"maxSizes": {"others": "1Mi"}}}
    await api.create(Tenant.resource, tenant_json(names[1], owners=[{"kind": "User", "name": "mallory"}], rules=rules))
    await api.ready(names[1])
    await api.open(names[1])


@pytest.mark.usefixtures("tenants")
async def test_no_host_has_two_tenants(
    api: Api, alice: Api, mallory: Api, operator: Operator, names: tuple[str, str]
) -> None:
    """E15, H06: who has a host first keeps it, and what lies below a wildcard; also while the operator is down."""
    ours, theirs = names
    # All below a domain of this test's alone: a wildcard above it is refused because of any tenant's hosts there.
    web, domain = f"web.{ours}.example", f"{ours}-wild.example"
    wild = f"*.a.{domain}"
    await alice.create(INGRESSES, ingress(web, wild), ours)
    await known(api, web, wild)
    await operator.stop()
    wanted = [web, wild, f"b.a.{domain}", f"c.b.a.{domain}", f"*.{domain}", f"*.{ours}.example"]

    async def all_refused() -> bool:
        return await taken(mallory, theirs, *wanted) == wanted

    await until(all_refused, "the policy knows the register")
    alias = {"nginx.ingress.kubernetes.io/server-alias": f"free.example, {web}"}
    assert TAKEN in await refusal(mallory, INGRESSES, ingress("free.example", annotations=alias), theirs)
    free = [f"{ours}.example", f"a.{domain}", f"x{web}", f"www.{theirs}.example"]
    assert not await taken(mallory, theirs, *free)
    assert not await taken(alice, ours, *wanted)
    await mallory.create(INGRESSES, ingress(free[0]), theirs)
    patch = {"spec": ingress(web)["spec"]}
    assert TAKEN in await refusal(mallory, INGRESSES, patch, theirs, patch="i")


@pytest.mark.usefixtures("tenants")
async def test_no_host_has_two_zones_of_one_tenant(
    api: Api, operator: Operator, trees: Trees, names: tuple[str, str]
) -> None:
    """E15, E05: Subtenants take no host of each other or their parent, nor it theirs; Workspaces share the parent's."""
    top, _ = names
    shop, desk = await trees.make(top, "shop", subtenant("carol")), await trees.make(top, "desk", subtenant("dave"))
    inside = await trees.make(top, "team")
    hosts = {namespace: f"web.{namespace}.example" for namespace in (top, shop, desk)}
    for namespace, host in hosts.items():
        await api.create(INGRESSES, ingress(host), namespace)
    await known(api, *hosts.values())
    await operator.stop()
    for namespace, own in hosts.items():
        others = sorted(host for host in hosts.values() if host != own)

        async def refused(namespace: str = namespace, others: list[str] = others) -> bool:
            return await taken(api, namespace, *others) == others

        await until(refused, f"{namespace} gets no host of the others")
        assert not await taken(api, namespace, own)
    assert await taken(api, inside, *hosts.values()) == [hosts[shop], hosts[desk]]


@pytest.mark.usefixtures("tenants")
async def test_a_tenant_cannot_keep_the_api_server_busy_with_hosts(
    api: Api, mallory: Api, names: tuple[str, str]
) -> None:
    """H06: an object has a few wildcards, and some hundred hosts."""
    _, theirs = names
    await api.create(INGRESSES, ingress(f"any.{theirs}.example", name=theirs), "default")
    await known(api, f"any.{theirs}.example")
    for most, form in ((MOST_WILDCARDS, f"*.h{{}}.{theirs}.test"), (MOST_HOSTS, f"h{{}}.{theirs}.test")):
        hosts = [form.format(number) for number in range(most + 1)]

        async def refused(hosts: list[str] = hosts) -> bool:
            return "it must not have more than" in await refusal(mallory, INGRESSES, ingress(*hosts), theirs)

        await until(refused, f"{len(hosts)} are too many")
        assert not await refusal(mallory, INGRESSES, ingress(*hosts[1:]), theirs)
    await api.delete(INGRESSES, theirs, "default")


@pytest.mark.usefixtures("tenants")
async def test_a_host_that_is_given_up_is_free(api: Api, alice: Api, mallory: Api, names: tuple[str, str]) -> None:
    """E15: a host is its tenant's as long as anything there has it."""
    ours, theirs = names
    host = f"web.{ours}.example"
    await alice.create(INGRESSES, ingress(host, name="one"), ours)
    await alice.create(INGRESSES, ingress(host, name="two"), ours)

    async def refused() -> bool:
        return await taken(mallory, theirs, host) == [host]

    await until(refused, "it is alice's")
    await alice.delete(INGRESSES, "one", ours)
    marker = f"marker.{ours}.example"
    await alice.create(INGRESSES, ingress(marker, name="marker"), ours)
    await known(api, marker)
    assert await refused()
    await alice.delete(INGRESSES, "two", ours)

    async def is_free() -> bool:
        return not await refused()

    await until(is_free, "it is free")


@pytest.mark.usefixtures("tenants")
async def test_hosts_of_the_cluster_are_no_tenants(api: Api, mallory: Api, names: tuple[str, str]) -> None:
    """H06: what administrators have in namespaces of no tenant counts, and is a tenant's once the namespace is."""
    _, theirs = names
    await api.create(Namespace.resource, {"metadata": {"name": f"{theirs}-infra"}})
    host = f"console.{theirs}.example"
    await api.create(INGRESSES, ingress(host), f"{theirs}-infra")

    async def refused() -> bool:
        return await taken(mallory, theirs, host) == [host]

    await until(refused, "it is the cluster's")
    uid = (await api.tenant(theirs)).metadata.uid
    marked = {"metadata": {"labels": {"tenantry.dev/tenant-uid": uid}}}
    await api.patch(Namespace.resource, f"{theirs}-infra", marked)

    async def is_theirs() -> bool:
        return not await refused()

    await until(is_theirs, "it is the tenant's own")


@pytest.mark.usefixtures("tenants")
async def test_gateways_and_routes_have_hosts_too(api: Api, alice: Api, mallory: Api, names: tuple[str, str]) -> None:
    """E15, H06: one register for all kinds, whenever the cluster gets them."""
    ours, theirs = names
    async with gateway_api(api):
        host, wild = f"web.{ours}.example", f"*.{ours}.example.org"
        await may_have_gateways(api, "alice", ours)
        await may_have_gateways(api, "mallory", theirs)
        await alice.create(ROUTES, route(host), ours)
        await alice.create(GATEWAYS, gateway(wild), ours)

        async def refused() -> bool:
            return await taken(mallory, theirs, host, wild) == [host, wild]

        await until(refused, "they are alice's")
        assert TAKEN in await refusal(mallory, ROUTES, route(host), theirs)
        assert TAKEN in await refusal(mallory, GATEWAYS, gateway(f"a.{ours}.example.org"), theirs)
        assert not await refusal(mallory, ROUTES, route(f"web.{theirs}.example"), theirs)


@pytest.mark.usefixtures("tenants")
async def test_what_the_clusters_gateways_offer_is_theirs_who_take_it(
    api: Api, alice: Api, mallory: Api, names: tuple[str, str]
) -> None:
    """E15: a Gateway of the cluster gives its hosts to the routes that it admits, each to who has it first."""
    ours, theirs = names
    infra = f"{ours}-infra"
    await api.create(Namespace.resource, {"metadata": {"name": infra}})
    async with gateway_api(api):
        await may_have_gateways(api, "alice", ours)
        await may_have_gateways(api, "mallory", theirs)
        kept, offered = f"own.{ours}.example", f"apps.{ours}.example"
        own = {**gateway(kept), "metadata": {"name": "own"}}
        await api.create(GATEWAYS, own, infra)
        await api.create(GATEWAYS, gateway(f"*.{offered}", offered="All"), infra)
        await known(api, kept)
        host = f"web.{offered}"
        await alice.create(ROUTES, route(host, at=infra), ours)

        async def refused() -> bool:
            return TAKEN in await refusal(mallory, ROUTES, route(host, at=infra), theirs)

        await until(refused, "it is alice's")
        assert TAKEN in await refusal(mallory, ROUTES, route(kept), theirs)
        assert not await refusal(mallory, ROUTES, route(f"shop.{offered}", at=infra), theirs)
    await api.delete(Namespace.resource, infra)

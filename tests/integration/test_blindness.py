"""Who sees what across the edge of a Subtenant: everything that there is, tried with people's own certificates.

The world: alice owns a tenant, in it a team of hers and two customers, carl's and erik's. Below carl's are a team of
his and his own customer, dora's. ursula owns another tenant.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.mirror.podevents import EVENTS
from testkit.api import CONFIG_MAPS, SECRETS, Api, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.trees import WORKSPACE, Trees, subnamespace_json, subtenant

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
HUSHED = "hushed"
"""What the names of everything inside carl's begin with."""


class World(msgspec.Struct, frozen=True):
    """Namespaces by owner, and all users.

    Args:
        top: alice's core namespace.
        team: alice's, too.
        customer: carl's, a Subtenant of alice's.
        inside: carl's team, below that.
        deep: dora's, a Subtenant of carl's.
        sibling: erik's, another Subtenant of alice's.
        other: ursula's core namespace.
        people: Name to what they speak to the API server with.
    """

    top: str
    team: str
    customer: str
    inside: str
    deep: str
    sibling: str
    other: str
    people: dict[str, Api]


@pytest_asyncio.fixture(scope="module")
async def world(
    api: Api, tenancy: LocalCluster, the_operator: Operator, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[World]:
    """Two tenants with all users; each child is created by a permitted user, and has content."""
    if not the_operator.is_running:
        await the_operator.start()
    await the_operator.leads()
    top, other = "blind-top", "blind-other"
    await api.make_tenant(top)
    await api.make_tenant(other, owners=[{"kind": "User", "name": "ursula"}])
    trees = Trees(api)
    async with AsyncExitStack() as stack:
        folder = tmp_path_factory.mktemp("people")
        people = {
            user: await stack.enter_async_context(as_person(tenancy, folder, user))
            for user in ("alice", "carl", "dora", "erik", "ursula")
        }

        async def make(user: str, parent: str, name: str, spec: Json) -> str:
            await people[user].create(Subnamespace.resource, subnamespace_json(name, spec), parent)
            return await trees.open(parent, name)

        customer = await make("alice", top, "customer", subtenant("carl"))
        made = World(
            top=top,
            team=await make("alice", top, "team", WORKSPACE),
            customer=customer,
            inside=await make("carl", customer, f"{HUSHED}-team", WORKSPACE),
            deep=await make("carl", customer, f"{HUSHED}-deep", subtenant("dora")),
            sibling=await make("alice", top, "sibling", subtenant("erik")),
            other=other,
            people=people,
        )
        for namespace in (made.top, made.team, made.customer, made.inside, made.deep, made.sibling, made.other):
            await api.create(SECRETS, {"metadata": {"name": f"{HUSHED}-secret"}}, namespace)
        yield made
    for tenant in (top, other):
        await api.delete(Tenant.resource, tenant)


# -- every verb on everything ---------------------------------------------------------------------


BLIND = [
    ("alice", "customer"),
    ("alice", "inside"),
    ("alice", "deep"),
    ("carl", "deep"),
    ("carl", "top"),
    ("carl", "team"),
    ("carl", "sibling"),
    ("carl", "other"),
    ("dora", "customer"),
    ("dora", "inside"),
    ("dora", "top"),
    ("alice", "other"),
]


@pytest.mark.parametrize(("user", "where"), BLIND)
async def test_nothing_can_be_done_in_a_namespace_beyond_the_edge(
    api: Api, world: World, user: str, where: str
) -> None:
    """E05: every verb on every namespaced resource and subresource that the API server has is forbidden."""
    namespace: str = getattr(world, where)
    client = world.people[user].client
    tried, allowed = 0, list[str]()
    async for method, path, query in _everything(api.client, namespace):
        tried += 1
        body = None if method in {"GET", "DELETE"} else b"{}"
        kind = MERGE if method == "PATCH" else "application/json"
        try:
            await client.request(method, path, query=query, body=body, content_type=kind)
        except Forbidden:
            continue
        except ApiError as error:  # it was let through, and found to be nothing
            allowed.append(f"{method} {path} {query}: {error.status}")
        else:
            allowed.append(f"{method} {path} {query}")
    assert allowed == []
    assert tried > 300


async def _everything(client: Client, namespace: str) -> AsyncGenerator[tuple[str, str, dict[str, str]]]:
    """Yield method, path and query of everything that can be asked of a namespace, by the server's discovery."""
    root = f"/api/v1/namespaces/{namespace}"
    for path in (root, f"{root}/status"):
        for method in ("GET", "PUT", "PATCH"):
            yield method, path, {}
    yield "DELETE", root, {}
    yield "PUT", f"{root}/finalize", {}
    for version in await _versions(client):
        for resource in await _resources(client, version):
            if resource["namespaced"]:
                plural, _, sub = resource["name"].partition("/")
                collection = f"{version}/namespaces/{namespace}/{plural}"
                for request in _requests(collection, sub, resource["verbs"]):
                    yield request


async def _versions(client: Client) -> list[str]:
    groups: list[Json] = msgspec.json.decode(await client.request("GET", "/apis"))["groups"]
    return ["/api/v1", *(f"/apis/{each['groupVersion']}" for group in groups for each in group["versions"])]


async def _resources(client: Client, version: str) -> list[Json]:
    try:
        resources: list[Json] = msgspec.json.decode(await client.request("GET", version))["resources"]
    except NotFound:
        return []  # The last kind of its group has gone, with the test that made it.
    return resources


def _requests(collection: str, sub: str, verbs: Iterable[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    one = f"{collection}/{HUSHED}-secret" + (f"/{sub}" if sub else "")
    for verb in verbs:
        match verb:
            case "list":
                yield "GET", collection, {}
            case "watch":
                yield "GET", collection, {"watch": "true", "timeoutSeconds": "1"}
            case "create":
                yield "POST", one if sub else collection, {}
            case "deletecollection":
                yield "DELETE", collection, {}
            case _:
                yield {"get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}[verb], one, {}


# -- around the namespace -------------------------------------------------------------------------

CLUSTER_WIDE = [
    ("GET", "/api/v1/secrets"),
    ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/events"),
    ("GET", "/apis/tenantry.dev/v1alpha1/subnamespaces"),
    ("GET", "/api/v1/namespaces"),
    ("POST", "/api/v1/namespaces"),
    ("GET", "/apis/tenantry.dev/v1alpha1/tenants"),
    ("GET", "/apis/tenantry.dev/v1alpha1/tenants/blind-top"),
    ("PATCH", "/apis/tenantry.dev/v1alpha1/tenants/blind-top"),
    ("GET", "/apis/tenantry.dev/v1alpha1/tenantresourcequotas/blind-top"),
    ("PATCH", "/apis/tenantry.dev/v1alpha1/tenantresourcequotas/blind-top"),
    ("POST", "/apis/tenantry.dev/v1alpha1/tenancydefaults"),
    ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
    ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval"),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
    ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/tenantry-subtenants"),
    ("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/subnamespaces.tenantry.dev"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/persistentvolumes"),
]


@pytest.mark.parametrize("user", ["alice", "carl"])
async def test_nothing_can_be_done_from_the_cluster(world: World, user: str) -> None:
    """E05: neither lists over all namespaces, nor what stands above them."""
    for method, path in CLUSTER_WIDE:
        body = None if method in {"GET", "DELETE"} else b"{}"
        kind = MERGE if method == "PATCH" else "application/json"
        with pytest.raises(Forbidden):
            await world.people[user].client.request(method, path, body=body, content_type=kind)


@pytest.mark.parametrize(
    ("who", "groups"),
    [
        ("carl", ()),
        ("tenantry:operator", ()),
        ("system:serviceaccount:kube-system:namespace-controller", ()),
        ("system:serviceaccount:{customer}:default", ()),
        ("alice", ("system:masters",)),
    ],
)
async def test_a_parent_cannot_impersonate_another_user(world: World, who: str, groups: tuple[str, ...]) -> None:
    """E05: no impersonation except of the parent's own service accounts."""
    alice = world.people["alice"].client.connection
    as_other = msgspec.structs.replace(
        alice, impersonate=who.format(customer=world.customer), impersonate_groups=groups
    )
    async with Client(as_other) as client:
        with pytest.raises(Forbidden, match="cannot impersonate"):
            await Api(client).list(CONFIG_MAPS, world.top)


# -- what comes out by itself ---------------------------------------------------------------------


async def test_nothing_that_a_parent_reads_names_what_is_inside(api: Api, world: World) -> None:
    """E05: specs, status, conditions and events of its own namespaces tell totals, and no name below."""
    alice = world.people["alice"]

    async def counted() -> bool:
        return (await api.client.get(Subnamespace, "customer", world.top)).status.children == 2

    await until(counted, "what is inside is counted")
    seen = [await alice.list(resource, world.top) for resource in (Subnamespace.resource, EVENTS, CONFIG_MAPS)]
    seen.append([await alice.get(Namespace.resource, world.top)])
    for secret in (HUSHED, world.inside, world.deep, "dora"):
        assert secret not in str(seen)


async def test_nothing_that_a_subtenant_reads_names_what_is_above_or_beside(world: World) -> None:
    """E05: it knows whose it is, and nothing of the others."""
    carl = world.people["carl"]
    seen = [await carl.list(resource, world.customer) for resource in (Subnamespace.resource, EVENTS, CONFIG_MAPS)]
    seen.append([await carl.get(Namespace.resource, world.customer)])
    for secret in ("erik", "sibling", world.sibling, world.team, "alice"):
        assert secret not in str(seen)


async def test_the_owners_of_a_subtenant_do_in_it_what_owners_do(world: World) -> None:
    """E05: what is refused to the parent is the child's own right: the refusals above are no accident."""
    carl = world.people["carl"]
    for namespace in (world.customer, world.inside):
        assert [each["metadata"]["name"] for each in await carl.list(SECRETS, namespace)] == [f"{HUSHED}-secret"]
        await carl.create(CONFIG_MAPS, {"metadata": {"name": "own"}}, namespace)
        await carl.delete(CONFIG_MAPS, "own", namespace)

"""What pods of tenants resolve: our CoreDNS on a real API server, asked from the pods' addresses."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import dns.message
import dns.rcode
import dns.reversename
import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import SilentProgress
from tenantry.mirror import names
from testkit.api import PODS, SERVICE_ACCOUNTS, Api, until
from testkit.coredns import USER, CoreDns, values
from testkit.operators import Operator
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

# The first test builds CoreDNS if the cache has none.
pytestmark = pytest.mark.timeout(1200)

Json = dict[str, Any]
SERVICES = Resource("", "v1", "services", "Service")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
# As docs/concepts/dns.md says.
RULES = [
    {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]
ZONE = "cluster.local"
UNKNOWN = "127.9.9.9"
"""An address that no pod has."""


@dataclass(frozen=True)
class Place:
    """A namespace with a Service `web`, a headless Service `db` with the pod `db-0`, and a pod.

    Args:
        namespace: Its name.
        pod: The address of its pod.
        web: The address of its Service.
        db: The address behind its headless Service.
    """

    namespace: str
    pod: str
    web: str
    db: str

    def name(self, *labels: str) -> str:
        """Return the name of a Service, or of what is below it."""
        return ".".join([*labels, self.namespace, "svc", ZONE])


@dataclass(frozen=True)
class World:
    """Two tenants, one with a team and a customer below it; a shared namespace and one of the cluster's own.

    Args:
        api: An administrator.
        dns: CoreDNS.
        addresses: Addresses that no pod has had.
    """

    api: Api
    dns: CoreDns
    addresses: Iterator[str]
    acme: Place
    team: Place
    customer: Place
    beta: Place
    shared: Place
    system: Place

    async def resolves(self, client: str, name: str, kind: str = "A", *, server: str = "main") -> list[str]:
        """Return what a name that exists is resolved to."""
        answer = await self.dns.ask(client, name, kind, server=server)
        assert answer.rcode() == dns.rcode.NOERROR, answer
        return values(answer)

    async def denied(self, client: str, name: str, kind: str = "A") -> str:
        """Check that there is no such name, and return all of the answer but the question."""
        answer = await self.dns.ask(client, name, kind)
        assert answer.rcode() == dns.rcode.NXDOMAIN, answer
        assert not answer.answer
        assert not answer.additional
        return bare(answer)


def bare(answer: dns.message.Message) -> str:
    """Return an answer without its id, its question and the serial number of its zone, which counts any change."""
    answer.id, answer.question = 0, []
    return " ".join("SERIAL" if word.isdigit() and len(word) == 10 else word for word in answer.to_text().split(" "))


def reverse(address: str) -> str:
    """Return the reverse name of an address."""
    return dns.reversename.from_address(address).to_text()


async def add_pod(
    api: Api, namespace: str, name: str, *, host: bool = False, metadata: Json | None = None, spec: Json | None = None
) -> None:
    """Create a pod that no node runs.

    Args:
        api: An administrator.
        namespace: On the host.
        name: On the host.
        host: Whether it uses the network of its node.
        metadata: Its labels and annotations.
        spec: Further fields of its spec.
    """
    careful: Json = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "main", "image": "example.com/app:1", "securityContext": careful}
    body: Json = {"containers": [container], "hostNetwork": host, **(spec or {})}
    await api.create(PODS, {"metadata": {**(metadata or {}), "name": name}, "spec": body}, namespace)


async def set_pod(api: Api, namespace: str, name: str, address: str, phase: str = "Running") -> None:
    """Say of a pod what its node would say."""
    status = {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]}
    await api.client.merge_patch(PODS, namespace, name, {"status": status}, subresource="status")


async def furnish(api: Api, namespace: str, address: str, number: int) -> Place:
    """Put a pod and Services into a namespace."""
    await until(lambda: api.find(SERVICE_ACCOUNTS, "default", namespace), f"pods can be made in {namespace}")
    await add_pod(api, namespace, "first")
    await set_pod(api, namespace, "first", address)
    ports = [{"name": "http", "port": 80}]
    web = await api.create(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": ports}}, namespace)
    await api.create(SERVICES, {"metadata": {"name": "db"}, "spec": {"clusterIP": "None", "ports": ports}}, namespace)
    slice_: Json = {
        "metadata": {"name": "db", "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [f"10.77.0.{number}"], "hostname": "db-0", "conditions": {"ready": True}}],
        "ports": ports,
    }
    await api.create(SLICES, slice_, namespace)
    return Place(namespace, address, web["spec"]["clusterIP"], f"10.77.0.{number}")


@pytest_asyncio.fixture(scope="module")
async def world(
    tenancy: LocalCluster, api: Api, the_operator: Operator, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[World]:
    """The world that all tests look at."""
    if not the_operator.is_running:
        await the_operator.start()
    await the_operator.leads()
    binary = (await asyncio.to_thread(build.ensure, SilentProgress(), build.DNS)).coredns
    await api.create(CLUSTER_ROLES, {"metadata": {"name": "test-coredns"}, "rules": RULES})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-coredns"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
    await api.create(BINDINGS, {"metadata": {"name": "test-coredns"}, "roleRef": role, "subjects": subjects})

    mark = uuid.uuid4().hex[:8]
    acme, beta, shared, system = (f"{each}-{mark}" for each in ("acme", "beta", "tools", "infra"))
    for tenant in (acme, beta):
        # No sandbox is here, and none is needed: nothing runs. Names of others are to be kept by DNS alone.
        rules = {"services": {"externalName": "Allow"}}
        await api.make_tenant(tenant, isolation={"runtime": "Shared"}, rules=rules)
    trees = Trees(api)
    team = await trees.make(acme, "team")
    customer = await trees.make(acme, "customer", subtenant("carol"))
    await api.create(Namespace.resource, {"metadata": {"name": shared, "labels": {marks.SHARED: "true"}}})
    await api.create(Namespace.resource, {"metadata": {"name": system}})
    addresses = (f"127.{a}.{b}.1" for a, b in itertools.product(range(2, 9), range(256)))
    places = [
        await furnish(api, namespace, next(addresses), number)
        for number, namespace in enumerate((acme, team, customer, beta, shared, system), start=1)
    ]
    folder = tmp_path_factory.mktemp("coredns")
    async with CoreDns(binary, tenancy.kubeconfig_path, folder, wait="0s") as running:
        yield World(api, running, addresses, *places)
    await api.delete(BINDINGS, "test-coredns")
    await api.delete(CLUSTER_ROLES, "test-coredns")


async def test_own_and_shared_names_and_the_rest_of_the_world_resolve(world: World) -> None:
    """H06: in all the forms of Kubernetes' DNS specification."""
    me, team = world.acme, world.team
    for place in (me, team, world.shared):
        assert await world.resolves(me.pod, place.name("web")) == [place.web]
        assert await world.resolves(me.pod, place.name("WEB").upper()) == [place.web]
        assert await world.resolves(me.pod, place.name("db")) == [place.db]
        assert await world.resolves(me.pod, place.name("db-0", "db")) == [place.db]
        assert await world.resolves(me.pod, place.name("_http", "_tcp", "web"), "SRV") == [
            f"0 100 80 {place.name('web')}."
        ]
        assert await world.resolves(me.pod, reverse(place.web), "PTR") == [f"{place.name('web')}."]
    assert await world.resolves(me.pod, f"10-1-1-1.{me.namespace}.pod.{ZONE}") == ["10.1.1.1"]
    assert await world.resolves(me.pod, f"kubernetes.default.svc.{ZONE}")
    assert await world.resolves(me.pod, "example.com") == ["192.0.2.1"]
    assert values(await world.dns.ask(me.pod, me.name("web"), tcp=True)) == [me.web]


def names_of(place: Place) -> list[tuple[str, str]]:
    """Return every way to ask for what is in a namespace, with types of records."""
    pod_name = f"10-1-1-1.{place.namespace}.pod.{ZONE}"
    forms = [
        place.name("web"),
        place.name("WEB").swapcase(),
        place.name("db"),
        place.name("db-0", "db"),
        place.name("_http", "_tcp", "web"),
        place.name("_http", "_tcp", "db"),
        place.name("*"),
        place.name("any", "web"),
        place.name("a", "b", "c", "web"),
        place.name(),
        pod_name,
        f"{place.pod.replace('.', '-')}.{place.namespace}.pod.{ZONE}",
        f"{place.namespace}.pod.{ZONE}",
        f"web.{place.namespace}.svc.in-addr.arpa",
        f"web.{place.namespace}.svc.ip6.arpa",
        # What a search list makes of a name that is complete already.
        f"{place.name('web')}.{place.namespace}.svc.{ZONE}",
    ]
    kinds = ("A", "AAAA", "SRV", "ANY", "TXT", "PTR", "NS", "MX", "CNAME", "SOA", "DS", "HTTPS")
    return list(itertools.product(forms, kinds))


async def test_names_of_others_are_as_if_there_were_none(world: World) -> None:
    """H06: the answers are, word for word, those for a namespace that does not exist."""
    nothing = Place("none-such", "127.9.9.1", "", "")
    expected = [await world.denied(world.acme.pod, name, kind) for name, kind in names_of(nothing)]
    for place in (world.beta, world.customer, world.system):
        told = [await world.denied(world.acme.pod, name, kind) for name, kind in names_of(place)]
        assert told == expected
    # They are there: whose they are sees them.
    assert await world.resolves(world.beta.pod, world.beta.name("web")) == [world.beta.web]


async def test_a_customer_and_its_provider_do_not_see_each_other(world: World) -> None:
    """H06: the zone is the nearest Subtenant; a team is one with its parent."""
    assert await world.resolves(world.customer.pod, world.customer.name("web")) == [world.customer.web]
    await world.denied(world.customer.pod, world.acme.name("web"))
    await world.denied(world.customer.pod, world.team.name("web"))
    await world.denied(world.team.pod, world.customer.name("web"))


async def test_addresses_of_others_have_no_names(world: World) -> None:
    """H06: Services', endpoints' and pods'; also written as IPv4 in IPv6. No other server is asked for them."""
    expected = await world.denied(world.acme.pod, reverse("10.99.99.99"), "PTR")
    for address in (world.beta.web, world.beta.db, world.beta.pod, world.customer.web, world.system.web):
        assert await world.denied(world.acme.pod, reverse(address), "PTR") == expected
        await world.denied(world.acme.pod, reverse(address), "ANY")
        octets = "".join(f"{int(part):02x}" for part in address.split("."))
        mapped = ".".join(reversed(f"{'0' * 20}ffff{octets}")) + ".ip6.arpa"
        await world.denied(world.acme.pod, mapped, "PTR")
    assert await world.resolves(world.beta.pod, reverse(world.beta.web), "PTR") == [f"{world.beta.name('web')}."]


async def test_an_external_name_does_not_resolve_to_another_tenants_name(world: World) -> None:
    """H06: CoreDNS follows it by itself, and keeps the answer; neither tells whether what it leads to exists."""
    # The one that is waited for below comes last: CoreDNS hears of them in the order in which they are made.
    for name, target in (("absent", world.beta.name("absent")), ("there", world.beta.name("web"))):
        for place in (world.acme, world.shared):
            spec = {"type": "ExternalName", "externalName": target}
            await world.api.create(SERVICES, {"metadata": {"name": name}, "spec": spec}, place.namespace)
    # Who may know what it leads to is told, and fills the cache.
    there = world.shared.name("there")

    async def told() -> bool:
        return world.beta.web in values(await world.dns.ask(world.system.pod, there))

    await until(told, "the Service of type ExternalName is known to CoreDNS")
    for place in (world.acme, world.shared):
        # Asked in turns, so that the one is not younger in the cache than the other.
        answers = [await world.dns.ask(world.acme.pod, place.name(name)) for name in ("there", "absent")]
        assert [answer.answer for answer in answers] == [[], []]
        assert answers[0].rcode() == answers[1].rcode() == dns.rcode.NOERROR
        for answer in answers:
            assert world.beta.web not in answer.to_text()
            for records in answer.authority:
                # It counts down in the cache; they are a moment apart.
                assert records.ttl in range(6)
                records.ttl = 0
        assert bare(answers[0]) == bare(answers[1])
    assert world.beta.web in await world.resolves(world.beta.pod, there)


@pytest.mark.long
async def test_the_cache_keeps_nothing_for_others(world: World) -> None:
    """H06: the client is checked before the cache, regardless of the first client."""
    for place, other in ((world.acme, world.beta), (world.beta, world.acme)):
        for _ in range(2):
            assert await world.resolves(place.pod, place.name("web")) == [place.web]
            await world.denied(other.pod, place.name("web"))


@pytest.mark.parametrize("kind", ["AXFR", "IXFR"])
async def test_zones_are_not_transferred(world: World, kind: str) -> None:
    """H06: although CoreDNS is configured to transfer them to any client."""
    for client in (world.acme.pod, UNKNOWN):
        for zone in (ZONE, ZONE.upper(), "in-addr.arpa", f"svc.{ZONE}", world.beta.name()):
            # As a question of its own: a client of transfers would hide what else is said.
            answer = await world.dns.ask(client, zone, kind, tcp=True)
            assert answer.rcode() == dns.rcode.REFUSED, answer
            assert not answer.answer


async def test_pods_of_no_tenant_see_everything(world: World) -> None:
    """H06: such as what watches all tenants."""
    for place in (world.acme, world.customer, world.beta, world.shared, world.system):
        assert await world.resolves(world.system.pod, place.name("web")) == [place.web]
        assert await world.resolves(world.system.pod, reverse(place.web), "PTR") == [f"{place.name('web')}."]


async def test_who_is_not_known_sees_no_tenants_names(world: World) -> None:
    """H06: nor do nodes, behind whose address pods of any tenant may be."""
    node = next(world.addresses)
    await add_pod(world.api, world.system.namespace, "on-node", host=True)
    await set_pod(world.api, world.system.namespace, "on-node", node)
    for client in (UNKNOWN, node):
        assert await world.resolves(client, world.system.name("web")) == [world.system.web]
        for place in (world.acme, world.beta, world.customer):
            await world.denied(client, place.name("web"))
            await world.denied(client, reverse(place.web), "PTR")


async def test_an_address_is_its_next_pods(world: World) -> None:
    """H06: a pod that has ended keeps its address in its status, but not what it may see."""
    address = next(world.addresses)
    await add_pod(world.api, world.beta.namespace, "ends")
    await set_pod(world.api, world.beta.namespace, "ends", address)

    async def sees(place: Place) -> bool:
        return (await world.dns.ask(address, place.name("web"))).rcode() == dns.rcode.NOERROR

    await until(lambda: sees(world.beta), "the first pod sees its own")
    await set_pod(world.api, world.beta.namespace, "ends", address, "Succeeded")
    await add_pod(world.api, world.acme.namespace, "follows")
    await set_pod(world.api, world.acme.namespace, "follows", address)
    await until(lambda: sees(world.acme), "the second pod sees its own")
    await world.denied(address, world.beta.name("web"))


async def test_search_lists_that_the_server_expands_find_no_foreign_names(world: World) -> None:
    """H06: with autopath the names that are tried are not the one that was asked for."""
    me = world.acme

    async def expands() -> bool:
        asked = me.name("web", me.namespace)
        return me.web in values(await world.dns.ask(me.pod, asked, server="autopath"))

    await until(expands, "the server expands the search list of the pod")
    # From the pod's own search list: web.<namespace>.svc.cluster.local is what it gets to.
    answers: list[str] = []
    for namespace in (world.beta.namespace, f"none-{world.beta.namespace[5:]}"):
        answer = await world.dns.ask(me.pod, me.name("web", namespace), server="autopath")
        assert answer.rcode() == dns.rcode.NXDOMAIN, answer
        answers.append(bare(answer))
    assert answers[0] == answers[1]
    assert world.shared.web in await world.resolves(me.pod, me.name("web", world.shared.namespace), server="autopath")


async def test_a_pod_that_asks_before_its_node_has_told_of_it_is_answered(
    world: World, tenancy: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """H06: its first question waits for word of it."""
    binary = (await asyncio.to_thread(build.ensure, SilentProgress(), build.DNS)).coredns
    address = next(world.addresses)
    await add_pod(world.api, world.acme.namespace, "early")
    async with CoreDns(binary, tenancy.kubeconfig_path, tmp_path_factory.mktemp("waits"), wait="10s") as waits:
        asked = asyncio.create_task(waits.ask(address, world.acme.name("web")))
        other = asyncio.create_task(waits.ask(address, world.beta.name("web")))
        # Both questions are on their way; one that is known is answered meanwhile.
        assert values(await waits.ask(world.acme.pod, world.acme.name("web"))) == [world.acme.web]
        assert not asked.done()
        await set_pod(world.api, world.acme.namespace, "early", address)
        assert values(await asked) == [world.acme.web]
        assert (await other).rcode() == dns.rcode.NXDOMAIN


@dataclass(frozen=True)
class ControlPlane:
    """A control plane: objects with its marks, as the mirror writes them, in a namespace of the host.

    Args:
        world: The cluster.
        host: The namespace on the host.
        uid: Of the control plane.
    """

    world: World
    host: str
    uid: str

    def metadata(self, namespace: str, name: str, **labels: str) -> Json:
        """Return the labels and annotations of the copy of an object inside."""
        marked = {"namespace": namespace, "name": name, "uid": f"uid-of-{name}"}
        return {
            "labels": {f"{PREFIX}/owner": self.uid, f"{PREFIX}/namespace": namespace, **labels},
            "annotations": {f"{PREFIX}/{key}": value for key, value in marked.items()},
        }

    async def pod(self, namespace: str, name: str, address: str, spec: Json | None = None, **labels: str) -> None:
        """Create the copy of a pod, and give it an address."""
        copy = names.lower_name(self.uid, "Pod", namespace, name)
        metadata = self.metadata(namespace, name, **labels)
        await add_pod(self.world.api, self.host, copy, metadata=metadata, spec=spec)
        await set_pod(self.world.api, self.host, copy, address)

    async def service(self, namespace: str, name: str, spec: Json | None = None) -> str:
        """Create the copy of a Service, and return its address."""
        copy = names.lower_name(self.uid, "Service", namespace, name)
        metadata = {**self.metadata(namespace, name), "name": copy}
        body = {"metadata": metadata, "spec": {"ports": [{"name": "http", "port": 80}], **(spec or {})}}
        return (await self.world.api.create(SERVICES, body, self.host))["spec"]["clusterIP"]


async def test_pods_of_a_control_plane_resolve_its_names_alone(world: World) -> None:
    """H01: from objects of the host alone, while no API server of the control plane runs."""
    host = world.acme.namespace
    mine, other = (ControlPlane(world, host, str(uuid.uuid4())) for _ in range(2))
    me, neighbour, beside = (next(world.addresses) for _ in range(3))
    web, others_web = await mine.service("shop", "web"), await other.service("shop", "web")
    api, server = await mine.service("data", "api"), await mine.service("default", "kubernetes")
    # Kubernetes finds the endpoints of the copy by itself, without the hostname: the Service has another name.
    headless: Json = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": mine.uid}}
    await mine.service("shop", "db", headless)
    await mine.pod("shop", "db-0", "10.77.9.1", {"hostname": "db-0", "subdomain": "db"}, app=mine.uid)
    await mine.pod("shop", "front", me)
    await mine.pod("data", "job", beside)
    await other.pod("shop", "front", neighbour)

    async def found() -> bool:
        return values(await world.dns.ask(me, f"db-0.db.shop.svc.{ZONE}")) == ["10.77.9.1"]

    await until(found, "CoreDNS knows the endpoints of the copy")
    await until(
        lambda: _resolves(world, neighbour, f"web.shop.svc.{ZONE}"), "CoreDNS knows the pod of the other control plane"
    )
    for name, kind, expected in (
        (f"web.shop.svc.{ZONE}", "A", web),
        (f"web.{host}.svc.{ZONE}", "A", web),
        (f"db.{host}.svc.{ZONE}", "A", "10.77.9.1"),
        (f"api.data.svc.{ZONE}", "A", api),
        (f"kubernetes.default.svc.{ZONE}", "A", server),
        (f"_http._tcp.db.shop.svc.{ZONE}", "SRV", f"0 100 80 db-0.db.shop.svc.{ZONE}."),
        (reverse(web), "PTR", f"web.shop.svc.{ZONE}."),
        (reverse("10.77.9.1"), "PTR", f"db-0.db.shop.svc.{ZONE}."),
        ("example.com", "A", "192.0.2.1"),
        (world.shared.name("web"), "A", world.shared.web),
    ):
        assert await world.resolves(me, name, kind) == [expected], name
    assert await world.resolves(me, f"web.{host}.svc.{ZONE}", server="autopath") == [web]
    assert await world.resolves(beside, f"api.{host}.svc.{ZONE}") == [api]
    assert await world.resolves(neighbour, f"web.shop.svc.{ZONE}") == [others_web]

    copy = names.lower_name(mine.uid, "Service", "shop", "web")
    nothing = await world.denied(me, f"web.none.svc.{ZONE}")
    for place in (world.beta, world.customer, world.team, world.system):
        assert await world.denied(me, place.name("web")) == nothing
    for name in (f"{copy}.{host}.svc.{ZONE}", f"web.{host}.svc.{ZONE}", f"other.default.svc.{ZONE}"):
        await world.denied(beside, name)
    for name in (f"api.data.svc.{ZONE}", f"kubernetes.default.svc.{ZONE}", f"db.{host}.svc.{ZONE}"):
        await world.denied(neighbour, name)
    for address in (others_web, world.acme.web, world.acme.pod, world.beta.web, neighbour):
        await world.denied(me, reverse(address), "PTR")
    # Pods of the host, and of other tenants, have no names inside; the tenant's own see the copy as any Service.
    for client in (world.acme.pod, world.beta.pod, UNKNOWN):
        await world.denied(client, f"web.shop.svc.{ZONE}")
    assert await world.resolves(world.acme.pod, f"{copy}.{host}.svc.{ZONE}") == [web]
    assert await world.resolves(world.acme.pod, f"web.{host}.svc.{ZONE}") == [world.acme.web]


async def _resolves(world: World, client: str, name: str) -> bool:
    return (await world.dns.ask(client, name)).rcode() == dns.rcode.NOERROR

"""Ways out of a control plane: a real API server inside, webhooks by URL, Services, APIServices; who may open them."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.marks import NODE_ADDRESSES
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.hosting.destinations import Destination, Outside, Refused
from tenantry.hosting.dialling import OutsideInputs
from tenantry.hosting.gate import Gate
from tenantry.hosting.outside import OutsideRule
from tenantry.hosting.resolver import NameResolver
from tenantry.kube.client import Client
from tenantry.local import x509
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, until
from testkit.hosted import running
from testkit.planes import Planes
from testkit.refusals import refusal
from testkit.webhooks import API_SERVICES, SERVICES, SLICES, WEBHOOKS, configured, told

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

NAME = "hooks.example.com"
LOOPBACK = "127.0.0.1"
POD = "10.1.0.7"
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")


def certificates(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return the context of a server that is `NAME`, and its authority, as a webhook names it."""
    now = dt.datetime.now(dt.UTC)
    end = now + dt.timedelta(hours=1)
    x509.write_authority(folder, "hooks", now, end)
    x509.write_leaf(
        folder, "server", LeafCertificate(ca="hooks", user=NAME, use=CertificateUse.SERVER, names=(NAME,)), now, end
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context, base64.b64encode((folder / "hooks.crt").read_bytes()).decode()


@asynccontextmanager
async def webhook(context: ssl.SSLContext) -> AsyncGenerator[int]:
    """Serve a webhook on loopback that refuses everything, and return its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            asked = msgspec.json.decode(await reader.readexactly(length))
            status = {"message": "refused by the webhook outside", "code": 403}
            answer = {"uid": asked["request"]["uid"], "allowed": False, "status": status}
            body = msgspec.json.encode({**asked, "request": None, "response": answer})
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, LOOPBACK, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Way:
    """The gate of a control plane, whose rule the test changes, and what the API server asked it for.

    Args:
        path: Its socket.
    """

    def __init__(self, path: Path) -> None:
        self.asked: list[tuple[str, int]] = []
        self.rule = OutsideRule(advice="ask an administrator")
        self.answer: Sequence[str] = (LOOPBACK,)
        self._leads_to_loopback = False
        inputs = OutsideInputs(
            refusal=self._refusal,
            resolve=NameResolver(lambda _: self.answer).addresses,
            is_own=lambda _: False,
        )
        self.gate = Gate(path, self._decide, outside=inputs)

    def _decide(self, host: str, port: int) -> Destination:
        self.asked.append((host, port))
        reason = self.rule.refusal_of_host(host)
        return Refused(reason=reason) if reason else Outside(host=host, port=port)

    def _refusal(self, host: str, address: str) -> str:
        if self._leads_to_loopback and (host, address) == (NAME, LOOPBACK):
            return ""
        return self.rule.refusal(host, address)

    @contextmanager
    def led_to_loopback(self) -> Generator[None]:
        """Admit the server of the test, which the real rule never does."""
        self._leads_to_loopback = True
        try:
            yield
        finally:
            self._leads_to_loopback = False


async def test_a_webhook_by_url_leaves_only_as_the_rule_says(tenancy: LocalCluster, tmp_path: Path, name: str) -> None:
    """VCP-4: refused by default, refused if an allowed name leads inside, reached if the rule admits the address."""
    context, authority = certificates(tmp_path)
    async with AsyncExitStack() as stack:
        place, plane, first = await stack.enter_async_context(running(tenancy, name))
        inside = Api(await stack.enter_async_context(Client(first.connection)))
        way = Way(place.gate(plane.uid))
        await stack.enter_async_context(way.gate.serve())
        port = await stack.enter_async_context(webhook(context))
        await inside.default_account("default")
        client = {"url": f"https://{NAME}:{port}/", "caBundle": authority}
        await inside.create(WEBHOOKS, configured("named", client))

        message = await told(inside, "named")
        assert f"{NAME} is not an allowed host: ask an administrator" in message
        assert (NAME, port) in way.asked, "the API server resolves no name"

        way.rule = OutsideRule(hosts=(NAME,))
        for address in (LOOPBACK, "169.254.169.254", "10.96.0.1", "::ffff:127.0.0.1"):
            way.answer = (address,)
            message = await told(inside, "named")
            assert f"{NAME} resolves to an address that is" in message
            assert address not in message

        way.answer = (LOOPBACK,)
        with way.led_to_loopback():
            assert "refused by the webhook outside" in await told(inside, "named")

        # The one host that the API server dials without the gate is itself: no name server is asked for it.
        await inside.create(WEBHOOKS, configured("own", {"url": "https://kubernetes.default.svc:443/apis"}))
        assert "converting (v1.APIGroupList)" in await told(inside, "own"), "its own answer to this path"

        # The same server by its address, and by other spellings of it.
        for count, host in enumerate((LOOPBACK, "127.1", "2130706433", "0x7f.1", "[::ffff:7f00:1]", "localhost")):
            await inside.create(WEBHOOKS, configured(f"other{count}", {**client, "url": f"https://{host}:{port}/"}))
            message = await told(inside, f"other{count}")
            assert "refused by the webhook outside" not in message
            assert "403" in message or "400" in message


async def test_services_are_dialled_at_their_endpoints(tenancy: LocalCluster, name: str) -> None:
    """VCP-4: for webhooks and APIServices, the gate sees the address of a pod, and not that of the Service."""
    async with AsyncExitStack() as stack:
        place, plane, first = await stack.enter_async_context(running(tenancy, name))
        inside = Api(await stack.enter_async_context(Client(first.connection)))
        way = Way(place.gate(plane.uid))
        await stack.enter_async_context(way.gate.serve())
        await inside.default_account("default")
        ports = [{"port": 443, "targetPort": 8443}]
        made = await inside.create(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": ports}}, "default")
        await inside.create(
            SLICES,
            {
                "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [POD], "conditions": {"ready": True}}],
                "ports": [{"name": "", "port": 8443}],
            },
            "default",
        )
        service = {"namespace": "default", "name": "web"}
        await inside.create(WEBHOOKS, configured("served", {"service": service}))

        async def dialled() -> bool:
            # Until the API server knows the endpoints, it dials nothing.
            return f"{POD} is not in an allowed CIDR" in await told(inside, "served")

        await until(dialled, "the webhook is dialled at the pod", seen=lambda: way.asked)
        assert set(way.asked) == {(POD, 8443)}

        way.asked.clear()
        spec = {"group": "x.example.com", "version": "v1", "service": service, "insecureSkipTLSVerify": True}
        spec |= {"groupPriorityMinimum": 100, "versionPriority": 100}
        await inside.create(API_SERVICES, {"metadata": {"name": "v1.x.example.com"}, "spec": spec})

        async def asked() -> bool:
            return bool(way.asked)

        await until(asked, "the APIService is dialled")
        assert set(way.asked) == {(POD, 8443)}

        # Only a URL names the address of a Service.
        address = made["spec"]["clusterIP"]
        await inside.delete(API_SERVICES, "v1.x.example.com")
        await inside.create(WEBHOOKS, configured("numbered", {"url": f"https://{address}:443/"}))
        await told(inside, "numbered")
        assert (address, 443) in way.asked


async def test_spec_egress_is_in_force_at_once(planes: Planes, name: str) -> None:
    """VCP-4: with the operator: allowed, never for the host's own addresses, and taken back."""
    kind = VirtualControlPlane.resource
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        hosts = {"outside": "203.0.113.9", "metadata": "169.254.169.254", "loopback": LOOPBACK, "service": "10.96.0.1"}
        # Simulated nodes have no address.
        node = (await planes.host.list(Node.resource))[0]["metadata"]["name"]
        hosts["node"] = "203.0.113.77"
        await planes.host.patch(Node.resource, node, {"metadata": {"annotations": {NODE_ADDRESSES: hosts["node"]}}})
        for each, host in hosts.items():
            # Nothing answers at the one outside, once it is allowed.
            seconds = 10 if each == "outside" else 30
            await inside.create(WEBHOOKS, configured(each, {"url": f"https://{host}/"}, seconds=seconds))
            reason = f"{host} is not in an allowed CIDR: an administrator of the host can allow it"
            assert reason in await told(inside, each)

        wide = ["203.0.113.0/24", "10.0.0.0/8", "169.254.0.0/16", "127.0.0.0/8", "0.0.0.0/0"]
        await planes.host.patch(kind, "web", {"spec": {"egress": {"allowedCidrs": wide}}}, name)

        async def are_allowed() -> bool:
            return "which is never dialled" in await told(inside, "metadata")

        # Not by the host outside: a slow answer looks as if it were allowed.
        await until(are_allowed, "the range of the metadata service is allowed")
        assert "is not in an allowed CIDR" not in await told(inside, "outside")
        for each in ("metadata", "loopback"):
            assert "which is never dialled" in await told(inside, each)
        for each in ("service", "node"):
            assert "belongs to the cluster that hosts this API server" in await told(inside, each)

        await planes.host.patch(kind, "web", {"spec": {"egress": None}}, name)

        async def is_refused() -> bool:
            return "is not in an allowed CIDR" in await told(inside, "outside")

        await until(is_refused, "the host is not allowed any more")
    await planes.host.patch(Node.resource, node, {"metadata": {"annotations": {NODE_ADDRESSES: None}}})


# -- who opens a way out --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("egress", "path"),
    [
        ({"allowedCidrs": ["10.1.2.3/16"]}, "allowedCidrs"),
        ({"allowedCidrs": ["10.1.0.0"]}, "allowedCidrs"),
        ({"allowedCidrs": ["FD00::/8"]}, "allowedCidrs"),
        ({"allowedCidrs": ["::ffff:10.0.0.0/104"]}, "allowedCidrs"),
        ({"allowedCidrs": [f"10.{n}.0.0/16" for n in range(33)]}, "allowedCidrs"),
        *(
            ({"allowedHosts": [host]}, "allowedHosts")
            for host in ("localhost", "Example.com", "example.com.", "*", "*.com", "a.*.com", "10.1.2.3", "x..com")
        ),
        ({"allowedHosts": [f"h{n}.example.com" for n in range(65)]}, "allowedHosts"),
        ({"allowedHosts": ["a." * 126 + "example.com"]}, "allowedHosts"),
    ],
)
async def test_invalid_lists_are_refused(api: Api, egress: Json, path: str) -> None:
    value = {"metadata": {"name": "web"}, "spec": {"egress": egress}}
    assert f"spec.egress.{path}" in await refusal(api, VirtualControlPlane.resource, value, "default")


async def test_only_administrators_open_a_way_out(api: Api, name: str) -> None:
    """VCP-12: a user who may write VirtualControlPlanes neither opens, nor changes, nor closes one."""
    kind = VirtualControlPlane.resource
    verbs = ["create", "update", "patch", "get"]
    rules = [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs}]
    await api.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await api.create(BINDINGS, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}, "default")

    async def may() -> bool:
        return await api.may(subject, "create", kind.group, kind.plural, "default")

    await until(may, f"{name} has the right")
    some = {"allowedCidrs": ["203.0.113.0/24"], "allowedHosts": ["*.example.com"]}
    async with Client(replace(api.client.connection, impersonate=name)) as client:
        user = Api(client)
        for lists in (some, {"allowedHosts": ["hooks.example.com"]}, {"allowedCidrs": ["203.0.113.0/24"]}):
            value = {"metadata": {"name": name}, "spec": {"egress": lists}}
            assert "only administrators allow hosts" in await refusal(user, kind, value, "default")
        none: list[Json] = [{}, {"egress": {}}, {"egress": {"allowedHosts": []}}]
        for empty in none:
            assert not await refusal(user, kind, {"metadata": {"name": name}, "spec": empty}, "default")
        # No namespace of a tenant: its process is not started.
        await api.create(kind, {"metadata": {"name": name}, "spec": {"egress": some}}, "default")
        try:
            others: list[Json | None] = [{"allowedHosts": ["*.example.org"]}, {"allowedCidrs": []}, None]
            for lists in others:
                patch: Json = {"spec": {"egress": lists}}
                assert "only administrators" in await refusal(user, kind, patch, "default", patch=name)
                assert not await refusal(api, kind, patch, "default", patch=name)
            allowed: list[Json] = [{"metadata": {"labels": {"mine": "1"}}}, {"spec": {"egress": some}}]
            for patch in allowed:
                assert not await refusal(user, kind, patch, "default", patch=name)
        finally:
            await api.delete(kind, name, "default")

"""Machines that join a control plane by a token, with real requests for certificates, and no kubelet (H04)."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Unauthorized
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.signing import CLIENT, SERVING, SigningRequest
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.hosting.plane import SIGNED_HOURS
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from testkit.api import SECRETS, Api, until
from testkit.nodecsrs import CLIENT_USAGES, SERVING_USAGES, csr
from testkit.planes import Planes
from testkit.webhooks import WEBHOOKS, configured, told

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
HANDOVERS = NodeHandover.resource
REQUESTS = SigningRequest.resource
GROUP = "system:nodes"
USAGES = {CLIENT: CLIENT_USAGES, SERVING: SERVING_USAGES}
ADDRESS = "192.0.2.77"
"""The address of the machine: of TEST-NET-1, so that nothing is there."""


def own_address() -> str:
    """Return an address of this machine that is not loopback: that of the pods of the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        # Nothing is sent.
        found.connect(("192.0.2.1", 9))
        return str(found.getsockname()[0])


@asynccontextmanager
async def listener(host: str) -> AsyncGenerator[tuple[int, list[str]]]:
    """Listen; return the port and who has connected."""
    came: list[str] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(str(writer.get_extra_info("peername")))
        writer.transport.abort()

    server = await asyncio.start_server(accept, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1], came


class Machine:
    """A machine that was handed over, as far as the API servers see it.

    Args:
        planes: The control planes of the host.
        name: The name of the node.
    """

    def __init__(self, planes: Planes, name: str) -> None:
        self._planes = planes
        self.name = name
        self.user = f"system:node:{name}"
        self.key = ec.generate_private_key(ec.SECP256R1())

    async def hand_over(self, plane: Json, pods: str) -> None:
        """Hand it over to a control plane, as what has wiped it does."""
        meta = plane["metadata"]
        of = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        spec = {"plane": of, "slice": "none", "labels": {"pool": "blue"}, "drainSeconds": 0}
        await self._planes.host.create(HANDOVERS, {"metadata": {"name": self.name}, "spec": spec})
        status = {"stage": "Wiped", "kind": "Real", "addresses": [ADDRESS], "podRange": pods}
        await self._planes.host.client.merge_patch(HANDOVERS, "", self.name, {"status": status}, subresource="status")

    async def handover(self) -> Json:
        """Return its NodeHandover."""
        return await self._planes.host.get(HANDOVERS, self.name)

    async def offered(self) -> Json:
        """Return how it joins, when the control plane has answered."""

        async def so() -> Json | None:
            found: Json | None = (await self.handover())["status"].get("join")
            return found

        return await until(so, "the control plane offers a token")

    async def staged(self, stage: str) -> None:
        """Wait for a stage."""

        async def so() -> bool:
            return (await self.handover())["status"]["stage"] == stage

        await until(so, f"the handover is {stage}")

    async def refused(self) -> str:
        """Return what keeps it out; "" for nothing."""
        found = (await self.handover())["status"].get("conditions", [])
        return next((each["message"] for each in found if each["type"] == reasons.JOIN_REFUSED), "")


async def decided(api: Api, inside: Api, name: str, text: str, signer: str) -> Json:
    """Request a certificate, and return the request with a verdict, and with the certificate if it is approved."""
    spec = {"request": text, "signerName": signer, "usages": [*USAGES[signer]]}
    await api.create(REQUESTS, {"metadata": {"name": name}, "spec": spec})

    async def so() -> Json | None:
        found = await inside.get(REQUESTS, name)
        types = {each["type"] for each in found["status"].get("conditions", ())}
        is_done = "Denied" in types or ("Approved" in types and found["status"].get("certificate"))
        return found if is_done else None

    return await until(so, f"request {name} is decided")


def verdict(found: Json) -> tuple[str, str]:
    """Return type and message of the decision about a request."""
    (condition,) = found["status"]["conditions"]
    return condition["type"], condition["message"]


@pytest.mark.long
async def test_a_machine_joins_by_a_token_for_its_own_name_and_once(planes: Planes, name: str) -> None:  # noqa: PLR0915
    """H04: no other name, group, address or second certificate; the gate reaches its pods until it has left."""
    await planes.host.make_tenant(name)
    await planes.host.create(
        VirtualControlPlane.resource, {"metadata": {"name": "prod"}, "spec": {"nodes": "Own"}}, name
    )
    plane = await planes.ready(name, "prod")
    here = own_address()
    machine = Machine(planes, f"{name}-m1")
    async with planes.entered(name, "prod") as inside, listener(here) as (port, came):
        await inside.create(WEBHOOKS, configured("pods", {"url": f"https://{here}:{port}/"}))
        assert "403" in await told(inside, "pods")
        # An earlier Node of its name, which users inside have made.
        await inside.create(Node.resource, {"metadata": {"name": machine.name, "finalizers": ["example.com/keep"]}})
        await machine.hand_over(plane, f"{here}/32")
        await until(partial(_is_told, machine, "'example.com/keep'"), "the condition names the finalizer")
        # A webhook that does not answer, which users inside have made for Secrets.
        refusing = configured("tokens", {"url": f"https://{here}:1/"})
        refusing["webhooks"][0]["rules"][0]["resources"] = ["secrets"]
        refusing["webhooks"][0] |= {"objectSelector": {}, "matchPolicy": "Exact"}
        await inside.create(WEBHOOKS, refusing)
        await _until_secrets_are_refused(inside)
        await inside.patch(Node.resource, machine.name, {"metadata": {"finalizers": None}})
        await until(partial(_is_told, machine, "tokens.example.com"), "the condition names the webhook")
        await inside.delete(WEBHOOKS, "tokens")
        await until(partial(_is_free, machine), "nothing keeps it out")
        join = await machine.offered()
        secret = await planes.host.get(SECRETS, join["secret"]["name"], join["secret"]["namespace"])
        token = base64.b64decode(secret["data"]["token"]).decode()
        reach = Connection(server=join["server"], source="the test", ca=join["ca"].encode())
        async with Client(msgspec.structs.replace(reach, token=token)) as client:
            by_token = Api(client)
            for number, (user, groups) in enumerate(
                [("system:node:other", (GROUP,)), (machine.user, (GROUP, "system:masters"))]
            ):
                found = await decided(by_token, inside, f"bad{number}", csr(user, *groups), CLIENT)
                assert verdict(found)[0] == "Denied"
            await until(partial(_is_told, machine, "in 'system:nodes' only"), "the condition names what may be")
            found = await decided(by_token, inside, "first", csr(machine.user, GROUP, key=machine.key), CLIENT)
            assert verdict(found)[0] == "Approved"

            again = await decided(by_token, inside, "again", csr(machine.user, GROUP), CLIENT)
            assert verdict(again)[0] == "Denied"
            assert "was used before" in verdict(again)[1]
        pem = base64.b64decode(found["status"]["certificate"])
        (leaf, *_) = x509.load_pem_x509_certificates(pem)
        assert [each.value for each in leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == [GROUP]
        assert leaf.not_valid_after_utc - leaf.not_valid_before_utc <= timedelta(hours=SIGNED_HOURS, minutes=10)
        key = machine.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        async with Client(msgspec.structs.replace(reach, certificate=pem, key=key)) as client:
            kubelet = Api(client)
            await _joins(kubelet, inside, machine)
            await _is_over(msgspec.structs.replace(reach, token=token))
            await _is_not_left(kubelet, inside, machine, came)
        # The pods of the machine are reached, as a webhook is: only now.
        assert came == []
        await told(inside, "pods")
        assert came
        await planes.host.delete(HANDOVERS, machine.name)

        # Nothing here wipes its machine.
        await machine.staged("Remaking")
        assert await inside.find(Node.resource, machine.name) is None
        await planes.host.patch(HANDOVERS, machine.name, {"metadata": {"finalizers": None}})
        before = len(came)

        async def is_closed() -> bool:
            return "403" in await told(inside, "pods")

        await until(is_closed, "its pods are not reached any more")
        await told(inside, "pods")
        assert len(came) - before <= 1
        # Its key is with its owner: it gets no other certificate.
        async with Client(msgspec.structs.replace(reach, certificate=pem, key=key)) as client:
            text = csr(machine.user, GROUP, key=machine.key)
            spec = {"request": text, "signerName": CLIENT, "usages": [*CLIENT_USAGES]}
            await Api(client).create(REQUESTS, {"metadata": {"name": "late"}, "spec": spec})
        assert not (await inside.get(REQUESTS, "late"))["status"].get("conditions")


async def _is_over(reach: Connection) -> None:
    """Wait until a token is worth nothing any more."""
    async with Client(reach) as client:

        async def so() -> bool:
            try:
                await Api(client).list(REQUESTS)
            except Unauthorized:
                return True
            return False

        await until(so, "the token is worth nothing any more")


async def _until_secrets_are_refused(inside: Api) -> None:
    """Wait until the API server knows the webhook for Secrets."""

    async def so() -> bool:
        try:
            await inside.create(SECRETS, {"metadata": {"generateName": "s-"}}, "default")
        except ApiError as error:
            return "webhook" in str(error)
        return False

    await until(so, "the API server knows the webhook")


async def _is_free(machine: Machine) -> bool:
    return not await machine.refused()


async def _is_told(machine: Machine, words: str) -> bool:
    return words in await machine.refused()


async def _joins(kubelet: Api, inside: Api, machine: Machine) -> None:
    """Register the Node, as its kubelet does, and request the other certificates."""
    address = {"type": "InternalIP", "address": ADDRESS}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    node: Json = {"metadata": {"name": machine.name}, "status": {"addresses": [address], "conditions": [ready]}}
    await kubelet.create(Node.resource, node)
    await machine.staged("Joined")
    labels = (await inside.get(Node.resource, machine.name))["metadata"]["labels"]
    assert labels["pool"] == "blue"
    own = csr(machine.user, GROUP, names=[ADDRESS, machine.name])
    assert verdict(await decided(kubelet, inside, "own", own, SERVING))[0] == "Approved"
    renewal = csr(machine.user, GROUP)
    assert verdict(await decided(kubelet, inside, "renewal", renewal, CLIENT))[0] == "Approved"
    for number, host in enumerate(["kubernetes.default.svc", "10.96.0.1"]):
        text = csr(machine.user, GROUP, names=[ADDRESS, host])
        type_, message = verdict(await decided(kubelet, inside, f"lie{number}", text, SERVING))
        assert type_ == "Denied"
        assert host in message


async def _is_not_left(kubelet: Api, inside: Api, machine: Machine, came: list[str]) -> None:
    """Check that an address that users inside write into the Node is not dialled."""
    async with listener("127.0.0.1") as (loopback, others):
        edited = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status: Json = {"addresses": edited, "daemonEndpoints": {"kubeletEndpoint": {"Port": loopback}}}
        await inside.create(Node.resource, {"metadata": {"name": "foreign"}, "status": status})
        await inside.client.merge_patch(Node.resource, "", machine.name, {"status": status}, subresource="status")
        for node in ("foreign", machine.name):
            with pytest.raises(ApiError):
                await inside.client.request("GET", f"/api/v1/nodes/{node}/proxy/pods", attempts=1)
        assert others == []
    assert came == []
    # The kubelet of another machine is no reason, either: its user may only read.
    with pytest.raises(ApiError):
        await kubelet.client.request("GET", f"/api/v1/nodes/{machine.name}/proxy/pods", attempts=1)

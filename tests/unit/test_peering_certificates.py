"""The certificates of a virtual node, from requests to renewals, in a world that signs."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tenantry.api.errors import InputError, RetryableError, TenantryError, Unauthorized
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.signing import CLIENT, SERVING, SigningRequest
from tenantry.controllers.peering.link.certificates import (
    LIFE_SECONDS,
    RETRY_SECONDS,
    NodeAccess,
    NodeCertificate,
    NodeCertificates,
    NodeSecret,
)
from tenantry.engine.reader import Reader
from tenantry.engine.writer import Writer
from testkit.clock import ManualClock
from testkit.signingworld import SigningWorld, UserClient, common_name, names

PLACE = ("tenantry-peers", "edge-node")
OPERATOR = "tenantry:operator"
ADDRESSES = ("10.0.0.7", "FD00::7")


class Scene:
    """A home cluster, and the certificates of its node "edge"."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.world = SigningWorld(self.clock)
        self.world.create(Namespace(metadata=ObjectMeta(name=PLACE[0])))
        self.certificates = self.restarted()

    def restarted(self, *, node: str = "edge", seconds: float = 5.0) -> NodeCertificates:
        """Return the certificates as a new process sees them."""
        operator = UserClient(self.world, OPERATOR)
        home = NodeAccess(reader=Reader(operator), writer=Writer(operator), as_node=self._as_node, clock=self.clock)
        return NodeCertificates(node, PLACE, home=home, sign_seconds=seconds, poll_seconds=0.001, least_seconds=0.001)

    @asynccontextmanager
    async def _as_node(self, certificate: NodeCertificate) -> AsyncGenerator[Writer]:
        yield Writer(UserClient(self.world, common_name(certificate.certificate)))

    def wrote(self) -> list[str]:
        """Return the writes since the last call."""
        found = [*self.world.writes]
        self.world.writes.clear()
        return found


async def test_the_operator_requests_and_approves_the_client_certificate() -> None:
    there = Scene()
    found = await there.certificates.client()
    assert common_name(found.certificate) == "system:node:edge"
    certificate = x509.load_pem_x509_certificate(found.certificate)
    assert load_pem_private_key(found.key, None).public_key() == certificate.public_key()
    assert (found.expires - there.clock.now()).total_seconds() == LIFE_SECONDS
    (asked,) = there.world.list(SigningRequest.resource)
    assert asked["spec"]["signerName"] == CLIENT
    assert asked["spec"]["usages"] == ["digital signature", "client auth"]
    assert there.wrote() == [
        f"{OPERATOR}: POST certificatesigningrequests",
        f"{OPERATOR}: PATCH certificatesigningrequests/approval",
        f"{OPERATOR}: PATCH secrets",
        f"{OPERATOR}: POST secrets",
    ]


async def test_the_node_requests_its_serving_certificate_itself() -> None:
    """The operator only approves it; it names the addresses and nothing else."""
    there = Scene()
    found = await there.certificates.serving(ADDRESSES)
    assert found.addresses == {"10.0.0.7", "fd00::7"}
    asked = next(e for e in there.world.list(SigningRequest.resource) if e["spec"]["signerName"] == SERVING)
    assert asked["spec"]["username"] == "system:node:edge"
    assert asked["spec"]["usages"] == ["digital signature", "server auth"]
    assert common_name(found.certificate) == "system:node:edge"
    writes = there.wrote()
    assert "system:node:edge: POST certificatesigningrequests" in writes
    assert not [each for each in writes if each.startswith("system:node:edge") and "approval" in each]


async def test_a_restart_requests_nothing() -> None:
    there = Scene()
    first = await there.certificates.client(), await there.certificates.serving(ADDRESSES)
    there.wrote()
    again = there.restarted()
    assert (await again.client(), await again.serving(reversed(ADDRESSES))) == first
    assert there.wrote() == []
    stored = there.world.get(NodeSecret.resource, "/".join(PLACE))
    assert stored["type"] == "kubernetes.io/tls"
    assert base64.b64decode(stored["data"]["tls.crt"]) == first[0].certificate


async def test_other_addresses_need_another_certificate() -> None:
    there = Scene()
    first = await there.certificates.serving(ADDRESSES)
    second = await there.certificates.serving(ADDRESSES[:1])
    assert second.addresses == {"10.0.0.7"}
    assert second.key != first.key
    assert await there.restarted().serving(ADDRESSES[:1]) == second


async def test_certificates_are_renewed_at_two_thirds_of_their_life() -> None:
    there = Scene()
    first = await there.certificates.client()
    there.clock.advance(LIFE_SECONDS * 2 / 3 - 1)
    assert await there.certificates.client() == first
    there.clock.advance(2)
    second = await there.certificates.client()
    assert second.expires > first.expires
    assert await there.restarted().client() == second


async def test_a_certificate_that_cannot_be_renewed_is_used_to_its_end() -> None:
    """And not asked for at every call."""
    there = Scene()
    first = await there.certificates.client()
    there.world.denied = True
    there.clock.advance(LIFE_SECONDS * 2 / 3 + 1)
    there.wrote()
    assert await there.certificates.client() == first
    assert there.wrote() == [f"{OPERATOR}: POST certificatesigningrequests"]
    assert await there.certificates.client() == first
    assert there.wrote() == []
    there.clock.advance(RETRY_SECONDS)
    assert await there.certificates.client() == first
    assert there.wrote() == [f"{OPERATOR}: POST certificatesigningrequests"]
    there.clock.advance(LIFE_SECONDS)
    with pytest.raises(TenantryError, match="is Denied: No: n"):
        await there.certificates.client()


async def test_a_cluster_that_does_not_sign_is_named_and_asked_once() -> None:
    there = Scene()
    there.world.unsigned.add(SERVING)
    slow = there.restarted(seconds=0.02)
    for _ in range(2):
        with pytest.raises(RetryableError, match=f"the cluster does not sign {SERVING}: .* of the node 'edge' has no"):
            await slow.serving(ADDRESSES)
    waiting = [e for e in there.world.list(SigningRequest.resource) if e["spec"]["signerName"] == SERVING]
    assert len(waiting) == 1
    there.world.unsigned.clear()
    there.world.sign(waiting[0]["metadata"]["name"])
    assert (await slow.serving(ADDRESSES)).addresses == {"10.0.0.7", "fd00::7"}


async def test_a_request_that_was_denied_or_deleted_is_made_again_by_the_next_try() -> None:
    there = Scene()
    there.world.unsigned.add(CLIENT)
    slow = there.restarted(seconds=0.02)
    with pytest.raises(RetryableError):
        await slow.client()
    (name,) = names(there.world, SigningRequest)
    there.world.delete(SigningRequest.resource, name)
    with pytest.raises(TenantryError, match="was deleted before it was signed"):
        await slow.client()
    there.world.unsigned.clear()
    assert common_name((await slow.client()).certificate) == "system:node:edge"


async def test_a_request_of_another_content_is_not_approved() -> None:
    """One that has taken the place of ours."""
    there = Scene()
    there.world.unsigned.add(CLIENT)
    slow = there.restarted(seconds=0.02)
    with pytest.raises(RetryableError):
        await slow.client()
    (asked,) = there.world.list(SigningRequest.resource)
    name = asked["metadata"]["name"]
    there.world.delete(SigningRequest.resource, name)
    spec = {**asked["spec"], "request": "b3RoZXI="}
    there.world.put_in(SigningRequest.resource, {"metadata": {"name": name}, "spec": spec})
    with pytest.raises(TenantryError, match="was replaced"):
        await slow.client()
    assert "status" not in there.world.get(SigningRequest.resource, name)


async def test_an_unknown_client_certificate_is_replaced() -> None:
    """The authority of clients was replaced: the next try begins with a new client certificate."""
    there = Scene()
    first = await there.certificates.client()
    there.world.unknown.add("system:node:edge")
    with pytest.raises(Unauthorized):
        await there.certificates.serving(ADDRESSES)
    there.world.unknown.clear()
    await there.certificates.serving(ADDRESSES)
    assert await there.certificates.client() != first


@pytest.mark.parametrize("data", [{}, {"tls.crt": "eA==", "tls.key": "eA=="}, {"tls.crt": "not base64"}])
async def test_a_secret_without_a_certificate_counts_as_none(data: dict[str, str]) -> None:
    there = Scene()
    meta = ObjectMeta(name=PLACE[1], namespace=PLACE[0])
    there.world.create(NodeSecret(metadata=meta, type="kubernetes.io/tls", data=data))
    assert common_name((await there.certificates.client()).certificate) == "system:node:edge"


async def test_a_secret_of_another_node_counts_as_none() -> None:
    there = Scene()
    await there.restarted(node="other").client()
    assert common_name((await there.certificates.client()).certificate) == "system:node:edge"


def test_names_that_do_not_fit_into_a_certificate_are_refused() -> None:
    there = Scene()
    there.restarted(node="n" * 52)
    with pytest.raises(InputError, match="at most 52 characters"):
        there.restarted(node="n" * 53)


async def test_renewals_report_both_certificates_when_they_are_due() -> None:
    there = Scene()
    first = await there.certificates.pair(ADDRESSES)
    renewals = there.certificates.renewals(first, ADDRESSES)
    there.clock.advance(LIFE_SECONDS * 2 / 3 + 1)
    second = await anext(renewals)
    assert second.client != first.client
    assert second.serving != first.serving


async def test_renewals_end_when_a_certificate_ends_that_cannot_be_renewed() -> None:
    there = Scene()
    first = await there.certificates.pair(ADDRESSES)
    there.world.denied = True
    there.clock.advance(LIFE_SECONDS + 1)
    with pytest.raises(TenantryError, match="is Denied"):
        await anext(there.certificates.renewals(first, ADDRESSES))

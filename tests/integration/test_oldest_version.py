"""Tenantry on the oldest supported version of Kubernetes, whose API server has no mutating policies.

The other tests of admission run on it with `pytest --kubernetes-version`; see docs/reference/versions.md.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ipaddress
import ssl
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from cryptography import x509

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ClusterRole, NetworkPolicy
from tenantry.api.marks import MADE_BY, SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.api.requests import TenantRequest
from tenantry.controllers.webhook import keys
from tenantry.controllers.webhook.controller import CONFIGURATIONS
from tenantry.controllers.webhook.keys import KeyPair
from tenantry.controllers.webhook.mutations import CONFIGURATION, KEYS_OBJECT, ROLE
from tenantry.hosting.selfsigned import self_signed
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import components
from tenantry.local.cluster import LocalCluster, UpOptions
from testkit import ports, versions
from testkit.api import PODS, SECONDS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.installation import install, without_repairs
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal, tried

Json = dict[str, Any]
_MISSING = versions.why_not_built(versions.OLDEST)
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

LIMITS: Json = {"limits": {"cpu": "10m", "memory": "10Mi"}, "requests": {"cpu": "10m", "memory": "10Mi"}}
POD: Json = {"containers": [{"name": "web", "image": "busybox", "resources": LIMITS}]}
ASKED = {"kubernetes.io/egress-bandwidth": "10M"}


@pytest_asyncio.fixture(scope="module")
async def oldest(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster of the oldest version with Tenantry in it."""
    local = LocalCluster("oldest", root=tenantry_home)
    options = UpOptions(throwaway=True, install=install, kubernetes=versions.OLDEST, timeout_seconds=3 * SECONDS)
    await local.up(options)
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="module")
async def admin_of_oldest(oldest: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of it."""
    async with Client(kubeconfig.load([oldest.kubeconfig_path])) as client:
        yield Api(client)


@pytest_asyncio.fixture(scope="module")
async def leader(oldest: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Operator]:
    """The operator of all tests of this module."""
    log = tmp_path_factory.mktemp("oldest") / "log"
    shared = Operator(oldest.paths.kubeconfig("operator"), log, *versions.webhook_flags(oldest))
    yield shared
    await shared.stop()


@pytest_asyncio.fixture
async def operator(leader: Operator, admin_of_oldest: Api, name: str) -> Operator:
    """The operator: it leads, and the API server asks its webhook."""
    if not leader.is_running:
        await leader.start()
    await leader.leads()
    await asks(admin_of_oldest, name)
    return leader


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest_asyncio.fixture
async def alice(oldest: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(oldest, tmp_path, "alice") as person:
        yield person


async def asks(admin: Api, name: str) -> None:
    """Wait until the API server asks the webhook, whose configuration the operator has just written."""

    async def so() -> bool:
        return not await refusal(admin, TenantRequest.resource, asks_for(name), "")

    await until(so, "the API server asks the webhook", seconds=SECONDS)


def asks_for(name: str, requester: Json | None = None) -> Json:
    """Return a TenantRequest, and who claims to have made it."""
    return {"metadata": {"name": name}, "spec": {"tenant": name, **({"requester": requester} if requester else {})}}


def _typed(resource: Resource) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _served(cluster: LocalCluster) -> bytes:
    """Return the certificate that the webhook shows, PEM."""
    return ssl.get_server_certificate((components.LOOPBACK, cluster.spec().ports.webhook)).encode()


# -- mutations ------------------------------------------------------------------------------------


async def changed(person: Api, resource: Resource, value: Json, namespace: str) -> Json:
    """Create an object that is refused as it is; without the webhook's answer in three seconds, it stays so."""

    async def made() -> Json | None:
        try:
            return await person.create(resource, value, namespace)
        except Forbidden:
            return None

    return await until(made, f"the webhook changes the {resource.kind}")


async def test_the_webhook_makes_the_changes_that_policies_make(
    admin_of_oldest: Api, alice: Api, operator: Operator, name: str
) -> None:
    """Issue 20, point 1: the same rule objects, for owners, controllers and requesters."""
    assert operator.is_running
    zone = (await admin_of_oldest.make_tenant(name)).metadata.uid
    account = await changed(alice, SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, name)
    assert account["metadata"]["annotations"][MADE_BY] == "alice"
    spec: Json = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    policy = await changed(alice, NetworkPolicy.resource, {"metadata": {"name": "open"}, "spec": spec}, name)
    zoned = {"namespaceSelector": {"matchLabels": {"tenantry.dev/zone": zone}}}
    assert policy["spec"]["ingress"] == [{"from": [zoned]}]
    pod = await changed(alice, PODS, {"metadata": {"name": "p", "annotations": ASKED}, "spec": POD}, name)
    assert pod["spec"]["containers"][0]["resources"]["limits"]["tenantry.dev/egress-mbps"] == "10"
    forged = asks_for(name, {"name": "bob", "groups": ["system:masters"]})
    found = await tried(alice, TenantRequest.resource, forged, "")
    assert found["spec"]["requester"]["name"] == "alice"
    assert "system:masters" not in found["spec"]["requester"]["groups"]


async def test_a_replica_that_does_not_lead_serves_the_webhook_too(
    oldest: LocalCluster, admin_of_oldest: Api, operator: Operator, tmp_path: Path
) -> None:
    """Issue 20, point 1: the Service has both replicas behind it, and a wrong path tells nothing."""
    assert operator.is_running
    (port,) = ports.free(1)
    address = f"{components.LOOPBACK}:{port}"
    second = Operator(oldest.paths.kubeconfig("operator"), tmp_path / "log", "--webhook-address", address)
    known = keys.read(await admin_of_oldest.get(keys.SECRETS, KEYS_OBJECT, SYSTEM_NAMESPACE))
    assert known is not None
    trusted = ssl.create_default_context(cadata=known.authorities.decode())
    asked: Json = {"request": {"uid": "1", "object": {"metadata": {}}, "userInfo": {"username": "alice"}}}
    await second.start()
    try:
        async with aiohttp.ClientSession() as session:

            async def answered(path: str) -> tuple[int, bytes] | None:
                try:
                    async with session.post(f"https://{address}{path}", json=asked, ssl=trusted) as found:
                        return found.status, await found.read()
                except aiohttp.ClientConnectorError:
                    return None

            async def so() -> tuple[int, bytes] | None:
                return await answered(f"/{known.token}/tenantry-makers")

            status, body = await until(so, "the second replica answers", seconds=SECONDS)
            assert (status, b'"patch"' in body) == (200, True)
            for path in ("/", "/tenantry-makers", "/wrong/tenantry-makers", f"/{known.token}/other"):
                assert await answered(path) == (404, b"")
        assert await second.sample("leader_election_master_status") == 0
    finally:
        await second.stop()


# -- certificates ---------------------------------------------------------------------------------


async def test_certificates_are_replaced_without_a_restart(
    oldest: LocalCluster, admin_of_oldest: Api, operator: Operator, name: str
) -> None:
    """Issue 20, point 11: at two thirds of the life of one; the API server trusts each before it is served."""
    begin = dt.datetime.now(dt.UTC) - keys.LIFE * 3 / 4
    address = x509.IPAddress(ipaddress.ip_address(components.LOOPBACK))
    due = KeyPair(*self_signed("due", [address], now=begin, life=keys.LIFE))
    known = keys.read(await admin_of_oldest.get(keys.SECRETS, KEYS_OBJECT, SYSTEM_NAMESPACE))
    assert known is not None
    first = await asyncio.to_thread(_served, oldest)
    written = keys.written(msgspec.structs.replace(known, serving=due, former=known.serving.certificate))
    await admin_of_oldest.client.apply(keys.SECRETS, SYSTEM_NAMESPACE, KEYS_OBJECT, {**_typed(keys.SECRETS), **written})

    async def so() -> bytes | None:
        shown = await asyncio.to_thread(_served, oldest)
        return shown if shown not in {first, due.certificate} else None

    shown = await until(so, "the webhook shows a new certificate", seconds=SECONDS)
    found = await admin_of_oldest.get(CONFIGURATIONS, CONFIGURATION)
    (bundle,) = {each["clientConfig"]["caBundle"] for each in found["webhooks"]}
    assert shown.strip() in base64.b64decode(bundle)
    assert operator.is_running
    await asks(admin_of_oldest, name)


async def test_a_configuration_that_another_client_changes_is_restored(
    admin_of_oldest: Api, operator: Operator, name: str
) -> None:
    """Issue 20, point 1: as the installed policies are."""
    assert operator.is_running
    for change in ("deleted", "disarmed"):
        if change == "deleted":
            await admin_of_oldest.delete(CONFIGURATIONS, CONFIGURATION)
        else:
            found = await admin_of_oldest.get(CONFIGURATIONS, CONFIGURATION)
            for each in found["webhooks"]:
                each["namespaceSelector"] = {"matchLabels": {"no": "namespace"}}
            await admin_of_oldest.patch(CONFIGURATIONS, CONFIGURATION, {"webhooks": found["webhooks"]})
        await asks(admin_of_oldest, name)

        async def so() -> bool:
            found = await admin_of_oldest.find(CONFIGURATIONS, CONFIGURATION)
            selectors = [each.get("namespaceSelector") for each in found["webhooks"]] if found else []
            return bool(selectors) and {"matchLabels": {"no": "namespace"}} not in selectors

        await until(so, "the configuration is restored", seconds=SECONDS)


async def test_the_webhook_ends_with_its_role_while_the_operator_runs(
    oldest: LocalCluster, admin_of_oldest: Api, operator: Operator, name: str
) -> None:
    """Issue 20, point 1: Helm deletes what its chart has; the garbage collector deletes what the operator wrote."""
    async with without_repairs(admin_of_oldest.client):
        await admin_of_oldest.delete(ClusterRole.resource, ROLE)

        async def gone() -> bool:
            left = await admin_of_oldest.find(CONFIGURATIONS, CONFIGURATION)
            return left is None and await admin_of_oldest.find(keys.SECRETS, KEYS_OBJECT, SYSTEM_NAMESPACE) is None

        await until(gone, "the configuration and the keys of the webhook are gone", seconds=SECONDS)
    assert operator.is_running
    await install(oldest.kubeconfig_path)
    await asks(admin_of_oldest, name)


# -- without the operator -------------------------------------------------------------------------


async def test_without_the_operator_what_was_not_changed_is_refused(
    admin_of_oldest: Api, alice: Api, operator: Operator, name: str
) -> None:
    """Issue 20, point 1: TOKEN-2, FLOW-1, REQ: no guard depends on the webhook."""
    await admin_of_oldest.make_tenant(name)
    await operator.stop()
    spec: Json = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    attempts = {
        "must be the user who creates": alice.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, name),
        "made-by": alice.create(
            SECRETS,
            {
                "metadata": {"name": "s", "annotations": {"kubernetes.io/service-account.name": "default"}},
                "type": "kubernetes.io/service-account-token",
            },
            name,
        ),
        "must have the bandwidth": alice.create(
            PODS, {"metadata": {"name": "p", "annotations": ASKED}, "spec": POD}, name
        ),
        "NetworkPolicy|open|ingress": alice.create(
            NetworkPolicy.resource, {"metadata": {"name": "open"}, "spec": spec}, name
        ),
        "must be the user who asks": tried(
            alice, TenantRequest.resource, asks_for(name, {"name": "alice", "groups": ["system:masters"]}), ""
        ),
    }
    for told, attempt in attempts.items():
        with pytest.raises(Forbidden, match=told):
            await attempt
    # What needs no change passes.
    await alice.create(PODS, {"metadata": {"name": "plain"}, "spec": POD}, name)

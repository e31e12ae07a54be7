"""Tokens of the home at a peer, for allowed audiences only; and counts of objects in the quota of a home."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import OFFLOADING, NamespaceOffloading, PodStrategy
from tenantry.api.peercluster import AUDIENCES_ALLOWED_IN, PEERS_NAMESPACE, PREFIX, PeerCluster
from tenantry.api.tenant import Tenant
from tenantry.engine import request
from tenantry.engine.writer import Writer
from tenantry.mirror.podlimits import PodLimits, unfit
from tenantry.mirror.tokens import RENEW
from testkit.api import PODS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.peerings import Peering, federated, offloading, peering, placed

pytestmark = pytest.mark.long
"""Each pair of clusters costs minutes on a busy machine; `make test` has test_peers.py and docs/federation.md."""

EVENTS = Resource("", "v1", "events", "Event")
VAULT, BANK = "vault.example.com", "bank.example.com"


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with a simulated node, connected."""
    async with peering(tenantry_home, "tokens", "--nodes", "1") as found:
        await found.connect()
        yield found


def keyed(namespace: str, name: str, *audiences: str, **more: object) -> Json:
    """Return a pod for a peer with tokens; those of the audience "" are for the API server."""
    sources = [{"serviceAccountToken": {"path": f"t{i}", "audience": each}} for i, each in enumerate(audiences)]
    return placed(namespace, name, volumes=[{"name": "keys", "projected": {"sources": sources}}], **more)


async def own_audiences(home: Api) -> list[str]:
    """Return the audiences of the API server."""
    asked = request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, "default", seconds=600)
    return msgspec.json.decode(await Writer(home.client).send(asked))["spec"]["audiences"]


async def accepted(home: Api, token: str, *audiences: str) -> bool:
    """Return whether the API server accepts a token, for itself or for audiences."""
    answer: Json = msgspec.json.decode(await Writer(home.client).send(request.token_review(token, audiences)))
    return answer["status"].get("authenticated", False)


async def allow(both: Peering, *audiences: str) -> None:
    """Allow audiences at the peer, as an administrator of the home, and wait until the operator has taken them in."""
    half = {"spec": {"host": {"tokenAudiences": list(audiences)}}}
    await both.home.patch(PeerCluster.resource, both.peer_name, half)
    expected = sorted(set(audiences) - set(await own_audiences(both.home)))

    async def so() -> bool:
        status: Json = (await both.home.get(PeerCluster.resource, both.peer_name))["status"]
        ready = next(each for each in status["conditions"] if each["type"] == "Ready")
        return status.get("tokenAudiences", []) == expected and ready["status"] == "True"

    await until(so, f"tokens for {expected} go to the peer")


async def marked(both: Peering, namespace: str, audiences: str) -> None:
    """Wait until the pods of a namespace may have tokens for audiences."""

    async def so() -> bool:
        found = await both.home.get(Namespace.resource, namespace)
        return found["metadata"].get("annotations", {}).get(marks.AUDIENCES, "") == audiences

    await until(so, f"namespace {namespace!r} is marked with {audiences!r}")


async def remote(both: Peering, name: str) -> str:
    """Make a tenant whose pods all run at the peer; return its namespace there."""
    await both.home.create(Tenant.resource, federated(name, both.peer_name))
    await both.home.ready(name)
    wanted = offloading(name, both.peer_name)
    wanted["spec"]["podStrategy"] = PodStrategy.REMOTE.value
    await both.home.create(NamespaceOffloading.resource, wanted, name)
    return await both.accepted(name)


async def tokens_below(both: Peering, there: str, uid: str) -> tuple[Json, list[str]]:
    """Wait for the Secret with the tokens of a pod at the peer; return it, and the tokens."""

    async def so() -> Json | None:
        for each in await both.peer.list(SECRETS, there):
            notes = each["metadata"].get("annotations", {})
            if notes.get(f"{PREFIX}/uid") == uid and f"{PREFIX}/{RENEW}" in notes:
                return each
        return None

    found = await until(so, "the tokens of the pod are at the peer")
    return found, [base64.b64decode(each).decode() for each in found["data"].values()]


async def _is_refused(home: Api, token: str) -> bool:
    return not await accepted(home, token, VAULT)


def claims(token: str) -> Json:
    """Return what a JSON Web Token says."""
    text = token.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


async def test_no_token_that_the_home_accepts_leaves_it_and_others_only_with_permission(both: Peering) -> None:
    """PEER-16: an administrator even lists the audience of the API server."""
    there = await remote(both, "vault")
    own = await own_audiences(both.home)
    await allow(both, VAULT, *own)
    await marked(both, "vault", VAULT)
    ready = (await both.home.get(PeerCluster.resource, both.peer_name))["status"]["conditions"]
    assert any(own[0] in each["message"] for each in ready if each["type"] == "Ready")
    limits = PodLimits(audiences=(VAULT,), allowed_by=AUDIENCES_ALLOWED_IN)
    bad = {"own": [own[0]], "none": [""], "other": [BANK], "both": [VAULT, own[0]], "many": [VAULT] * 5}
    for name, audiences in bad.items():
        pod = keyed("vault", name, *audiences)
        with pytest.raises((Forbidden, Invalid)) as refused:
            await both.home.create(PODS, pod, "vault")
        assert f"NotFederable: {unfit(pod['spec'], limits)}" in str(refused.value), name
    # The second one has the name of the first one.
    for _ in range(2):
        pod = await both.home.create(PODS, keyed("vault", "web", VAULT), "vault")
        uid = pod["metadata"]["uid"]
        secret, (token,) = await tokens_below(both, there, uid)
        await both.pod("web", "vault")
        said = claims(token)
        assert said["aud"] == [VAULT]
        assert said["sub"] == "system:serviceaccount:vault:default"
        assert said["kubernetes.io"]["pod"] == {"name": "web", "uid": uid}
        assert said["exp"] - said["iat"] == 600
        assert await accepted(both.home, token, VAULT)
        assert not await accepted(both.home, token)
        below = await both.peer.get(PODS, "web", there)
        assert [each["uid"] for each in secret["metadata"]["ownerReferences"]] == [below["metadata"]["uid"]]
        await both.home.delete(PODS, "web", "vault")
        await both.home.gone(PODS, "web", "vault")
        await both.peer.gone(SECRETS, secret["metadata"]["name"], there)
        # The API server remembers for ten seconds which tokens it has accepted.
        await until(partial(_is_refused, both.home, token), "the token ends with its pod")


async def test_a_permission_that_ends_stops_renewals_and_not_the_pod(both: Peering) -> None:
    """PEER-16: what the pod has by then is valid for ten minutes."""
    there = await remote(both, "safe")
    await allow(both, VAULT)
    await marked(both, "safe", VAULT)
    named = {"envFrom": [{"secretRef": {"name": "named"}}]}
    await both.home.create(SECRETS, {"metadata": {"name": "named"}, "stringData": {"key": "1"}}, "safe")
    pod = await both.home.create(PODS, keyed("safe", "web", VAULT, container=named), "safe")
    await tokens_below(both, there, pod["metadata"]["uid"])
    await both.pod("web", "safe")
    await allow(both)
    await marked(both, "safe", "")
    with pytest.raises((Forbidden, Invalid), match=r"NotFederable.*tokenAudiences"):
        await both.home.create(PODS, keyed("safe", "late", VAULT), "safe")

    async def told() -> bool:
        found = await both.home.list(EVENTS, "safe")
        return any(each["involvedObject"]["name"] == "web" and "audience" in each["message"] for each in found)

    await until(told, "an event of the pod reports that a field does not travel any more")
    assert (await both.home.get(PODS, "web", "safe"))["status"]["phase"] == "Running"
    assert await both.peer.find(SECRETS, "named", there) is not None, "what it names stays with it"
    await both.home.delete(NamespaceOffloading.resource, OFFLOADING, "safe")

"""Bootstrap tokens inside that no machine joins with (H04): they would outlive the replacement of credentials."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.nodehandover import (
    HandoverPlane,
    HandoverStage,
    JoinSecret,
    MachineKind,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
    NodeJoin,
)
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.joining import tokens
from tenantry.controllers.joining.controller import JoinController
from tenantry.controllers.joining.strangetokens import RETRY_SECONDS, StrangeTokenController, head
from tenantry.controllers.joining.tokens import LIFE, SECRETS, JoinToken, OfferedTokens
from tenantry.controllers.virtualcontrolplane.nodeslink import NodesLink
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster

Json = dict[str, Any]

NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
TOKEN = JoinToken(id="abc123", secret="0123456789abcdef", expires=NOW + LIFE)
JOIN = JoinSecret(namespace="tenantry-system", name=tokens.secret_name("blue-1", TOKEN.id))
HANDOVER = NodeHandover(
    metadata=ObjectMeta(name="blue-1", uid="h-1"),
    spec=NodeHandoverSpec(plane=HandoverPlane(namespace="acme", name="prod", uid="p-1"), slice="s"),
    status=NodeHandoverStatus(
        stage=HandoverStage.JOINING, kind=MachineKind.REAL, join=NodeJoin(server="https://s", ca="CA", secret=JOIN)
    ),
)


def offered(token: JoinToken = TOKEN) -> Json:
    """Return the Secret inside that the operator has written."""
    return stored(cast("Json", tokens.offered("blue-1", token).request.body))


def stored(value: Json) -> Json:
    """Return an object as the API server has it."""
    value["metadata"] |= {"uid": "u-1", "resourceVersion": "5"}
    return value


def strange(token_id: str) -> Json:
    """Return a token as an administrator inside creates it, without an expiration."""
    data = {"token-id": token_id, "token-secret": "ffffffffffffffff", "usage-bootstrap-authentication": "true"}
    return stored(
        {
            "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"},
            "type": tokens.TYPE,
            "data": {key: base64.b64encode(each.encode()).decode() for key, each in data.items()},
        }
    )


class _Side:
    """As much of a cluster as the controller uses."""

    def __init__(self, *objects: Json, cached: dict[Any, dict[str, Any]], refusal: ApiError | None = None) -> None:
        self._objects = {each["metadata"]["name"]: each for each in objects}
        self._cached = cached
        self._refusal = refusal
        self.removed: list[str] = []
        self.said: list[str] = []
        self.now = NOW
        self.live = self.writer = self
        self.clock = SimpleNamespace(now=lambda: self.now)
        self.recorder = self

    def say(self, _about: object, _kind: object, _reason: str, note: str) -> None:
        self.said.append(note)

    def cache(self, resource: Resource) -> object:
        found = self._cached.get(resource, {})
        return SimpleNamespace(get=found.get) if resource != NodeHandover.resource else found.values()

    async def listed(self, *resources: Resource) -> None:
        assert resources == (NodeHandover.resource,)

    async def find(self, resource: Resource, namespace: str, name: str) -> bytes | None:
        assert (resource, namespace in {"kube-system", "tenantry-system"}) == (SECRETS, True)
        found = self._objects.get(name)
        return msgspec.json.encode(found) if found is not None else None

    async def remove(self, resource: Resource, namespace: str, name: str, *, uid: str) -> bool:
        assert (resource, namespace, uid) == (SECRETS, "kube-system", "u-1")
        if self._refusal is not None:
            raise self._refusal
        self.removed.append(name)
        return True


def sides(
    secret: Json, handover: NodeHandover | None = HANDOVER, refusal: ApiError | None = None
) -> tuple[_Side, _Side]:
    """Return the host and the cluster inside, which has one Secret."""
    record = stored(cast("Json", tokens.recorded(HANDOVER, TOKEN).request.body))
    cached = {
        NodeHandover.resource: {"blue-1": handover} if handover is not None else {},
        VirtualControlPlane.resource: {"acme/prod": VirtualControlPlane(metadata=ObjectMeta(name="prod"))},
    }
    seen = head(msgspec.Raw(msgspec.json.encode(secret)))
    return _Side(record, cached=cached), _Side(secret, cached={SECRETS: {seen.key: seen}}, refusal=refusal)


def reconciled(home: _Side, inside: _Side, name: str, offers: OfferedTokens | None = None) -> float | None:
    """Reconcile one Secret twice, and return when it is looked at again."""
    made = StrangeTokenController("acme/prod", "p-1", cast("Cluster", home), offers or OfferedTokens())
    asyncio.run(made.reconcile(cast("Cluster", inside), f"kube-system/{name}", 0))
    return asyncio.run(made.reconcile(cast("Cluster", inside), f"kube-system/{name}", 0))


def test_a_token_of_no_machine_is_deleted() -> None:
    home, inside = sides(strange("abcdef"))
    assert reconciled(home, inside, "bootstrap-token-abcdef") is None
    assert set(inside.removed) == {"bootstrap-token-abcdef"}


def test_the_token_of_a_machine_stays_until_it_is_late() -> None:
    home, inside = sides(offered())
    assert reconciled(home, inside, "bootstrap-token-abc123") == LIFE.total_seconds()
    assert inside.removed == []
    inside.now = NOW + LIFE
    reconciled(home, inside, "bootstrap-token-abc123")
    assert set(inside.removed) == {"bootstrap-token-abc123"}


@pytest.mark.parametrize("key", ["token-secret", "expiration", "auth-extra-groups", ""])
def test_another_token_under_the_name_of_a_machines_is_deleted(key: str) -> None:
    """Also one that never expires: users inside can read the id of a machine that joins, or has joined."""
    changed = offered() if key else strange("abc123")
    changed["data"].pop(key, None)
    home, inside = sides(changed)
    reconciled(home, inside, "bootstrap-token-abc123")
    assert set(inside.removed) == {"bootstrap-token-abc123"}


@pytest.mark.parametrize(("minutes", "stays"), [(15, True), (16, False)])
def test_cluster_api_may_extend_a_token_of_a_machine_that_has_not_joined(minutes: int, *, stays: bool) -> None:
    """Its record says until when it is accepted: the operator deletes it then."""
    until = TOKEN.expires + dt.timedelta(minutes=minutes)
    home, inside = sides(offered(replace(TOKEN, expires=until)))
    left = reconciled(home, inside, "bootstrap-token-abc123")
    assert (inside.removed == [], left == LIFE.total_seconds()) == (stays, stays)


@pytest.mark.parametrize("token", ["", "abc123", "abc123.short", "ABC123.0123456789abcdef", None])
def test_a_kubeadm_config_without_a_token_gives_none(token: str | None) -> None:
    spec: Json = {} if token is None else {"joinConfiguration": {"discovery": {"bootstrapToken": {"token": token}}}}
    assert tokens.given_by(msgspec.json.encode({"spec": spec}), NOW) is None


def test_the_token_of_a_kubeadm_config_is_read() -> None:
    discovery: Json = {
        "bootstrapToken": {"token": TOKEN.text, "apiServerEndpoint": "x:1", "caCertHashes": ["sha256:0"]}
    }
    config: Json = {"spec": {"joinConfiguration": {"discovery": discovery, "nodeRegistration": {}}}}
    assert tokens.given_by(msgspec.json.encode(config), TOKEN.expires) == replace(TOKEN, is_given=True)


def test_a_token_of_a_machine_of_another_control_plane_or_of_none_is_deleted() -> None:
    other = replace(HANDOVER, spec=replace(HANDOVER.spec, plane=HandoverPlane(namespace="x", name="y", uid="p-2")))
    for handover in (other, None):
        home, inside = sides(offered(), handover)
        reconciled(home, inside, "bootstrap-token-abc123")
        assert set(inside.removed) == {"bootstrap-token-abc123"}


def test_a_token_that_was_just_offered_stays_before_a_status_names_it() -> None:
    offers = OfferedTokens()
    offers.put("blue-1", TOKEN, NOW)
    home, inside = sides(offered(), None)
    assert reconciled(home, inside, "bootstrap-token-abc123", offers) == LIFE.total_seconds()
    assert inside.removed == []
    # What is late is forgotten.
    offers.put("blue-2", replace(TOKEN, id="abc124", expires=NOW + 2 * LIFE), NOW + LIFE)
    assert offers.get("bootstrap-token-abc123") is None


def test_a_refusal_inside_is_told_once_and_tried_again() -> None:
    home, inside = sides(strange("abcdef"), refusal=Forbidden("denied by a policy", status=403))
    assert reconciled(home, inside, "bootstrap-token-abcdef") == RETRY_SECONDS
    (told,) = home.said
    assert "'kube-system/bootstrap-token-abcdef'" in told
    assert "denied by a policy" in told


def test_only_heads_of_tokens_are_watched_and_a_join_that_ends_wakes_its_token() -> None:
    made = StrangeTokenController("acme/prod", "p-1", cast("Cluster", None), OfferedTokens())
    watched, handovers = made.watches()
    assert watched.selectors == {"fieldSelector": "metadata.namespace=kube-system,type=bootstrap.kubernetes.io/token"}
    large = strange("abcdef")
    large["metadata"]["annotations"] = {"large": "x" * 100_000}
    seen = watched.decode(msgspec.Raw(msgspec.json.encode(large)))
    assert len(msgspec.json.encode(seen)) < 1000
    assert [*watched.keys(Change(None, seen))] == ["kube-system/bootstrap-token-abcdef"]
    assert [*handovers.keys(Change(HANDOVER, None))] == ["kube-system/bootstrap-token-abc123"]


def test_every_control_plane_with_nodes_of_its_own_has_the_controller() -> None:
    plane = VirtualControlPlane(metadata=ObjectMeta(name="prod", namespace="acme", uid="p-1"))
    nothing = cast("Any", None)
    made = NodesLink(nothing, nothing, nothing, nothing, plane).joining(lambda: None)
    assert [type(each) for each in made] == [JoinController, StrangeTokenController]

"""Machines that join a control plane by a token for one name (H04): pure."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from cryptography import x509
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import provider_id
from tenantry.api.errors import Conflict
from tenantry.api.marks import HANDOVER_RECORD
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeCondition, NodeSpec, NodeStatus
from tenantry.api.nodehandover import (
    PENDING,
    BootstrapConfig,
    HandoverPlane,
    HandoverStage,
    JoinSecret,
    MachineKind,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
    NodeJoin,
    NodeTaint,
    TaintEffect,
)
from tenantry.api.signing import CLIENT, SERVING, SigningCondition, SigningRequest, SigningSpec, SigningStatus
from tenantry.controllers import signingrequests
from tenantry.controllers.contributions.controller import ContributionController
from tenantry.controllers.joining import desired, machines, tokens
from tenantry.controllers.joining.controller import JoinController
from tenantry.controllers.joining.machines import JoinMachineInputs, MachineDecision, decide
from tenantry.controllers.joining.tokens import LIFE, JoinToken, OfferedTokens
from tenantry.engine.plan import DirectWrite
from tenantry.engine.request import Verb
from tenantry.hosting.noderuntime import NodeEndpoint
from testkit.nodecsrs import CLIENT_USAGES, MALFORMED, SERVING_USAGES, csr

Json = dict[str, Any]

NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
NAME, USER, GROUP = "blue-1", "system:node:blue-1", "system:nodes"
ADDRESS = "10.113.200.11"
TOKEN = JoinToken(id="abc123", secret="0123456789abcdef", expires=NOW + LIFE)
FRESH = JoinToken(id="fresh1", secret="fedcba9876543210", expires=NOW + LIFE)
ENDPOINT = NodeEndpoint(server="https://10.113.0.1:4000", ca="CA")
SECRET = JoinSecret(namespace="tenantry-system", name=tokens.secret_name(NAME, TOKEN.id))
WIPED = NodeHandover(
    metadata=ObjectMeta(name=NAME, uid="h-1"),
    spec=NodeHandoverSpec(
        plane=HandoverPlane(namespace="acme", name="prod", uid="p-1"),
        slice="s",
        labels={"pool": "blue"},
        taints=(NodeTaint(key="only", value="blue", effect=TaintEffect.NO_SCHEDULE),),
    ),
    status=NodeHandoverStatus(
        stage=HandoverStage.WIPED, kind=MachineKind.REAL, addresses=(ADDRESS,), pod_range="10.113.1.0/24"
    ),
)
OFFERED = replace(
    WIPED,
    status=replace(
        WIPED.status,
        stage=HandoverStage.JOINING,
        inside=PENDING,
        join=NodeJoin(server=ENDPOINT.server, ca="CA", secret=SECRET),
    ),
)
USED = replace(TOKEN, used="c-1")
READY = NodeStatus(conditions=(NodeCondition(type="Ready", status="True"),))
NODE = Node(metadata=ObjectMeta(name=NAME, uid="i-1", resource_version="7"), status=READY)


def asked(
    text: str = "",
    *,
    by: str = "system:bootstrap:abc123",
    signer: str = CLIENT,
    usages: tuple[str, ...] = CLIENT_USAGES,
    uid: str = "c-1",
    decided: tuple[SigningCondition, ...] = (),
) -> SigningRequest:
    """Return a request for a certificate: by default, the first one of the machine."""
    return SigningRequest(
        metadata=ObjectMeta(name=f"csr-{uid}", uid=uid, resource_version="1"),
        spec=SigningSpec(request=text or csr(USER, GROUP), signer_name=signer, username=by, usages=usages),
        status=SigningStatus(conditions=decided),
    )


def done(  # noqa: PLR0917 - the inputs
    handover: NodeHandover = OFFERED,
    token: JoinToken | None = TOKEN,
    inside: Node | None = None,
    requests: Sequence[SigningRequest] = (),
    endpoint: NodeEndpoint | None = ENDPOINT,
    now: dt.datetime = NOW,
) -> MachineDecision:
    """Return the decision."""
    return decide(
        JoinMachineInputs(
            handover=handover,
            inside=inside,
            token=token,
            fresh=FRESH,
            endpoint=endpoint,
            requests=requests,
            now=now,
        )
    )


def verdicts(found: MachineDecision) -> list[tuple[str, str]]:
    """Return name and verdict of each request that is decided."""
    bodies = [(each.request.name, each.request.body) for each in found.inside if each.request.subresource == "approval"]
    return [(name, body["status"]["conditions"][0]["type"]) for name, body in bodies if isinstance(body, dict)]


def body(write: DirectWrite) -> Json:
    """Return the body of a write as JSON."""
    found: Json = msgspec.to_builtins(write.request.body)
    return found


def test_a_token_is_recorded_on_the_host_then_offered_inside_then_named_in_the_status() -> None:
    found = done(WIPED, None)
    (record,) = found.home
    kept = body(record)
    assert base64.b64decode(kept["data"]["token"]).decode() == "fresh1.fedcba9876543210"
    assert kept["metadata"]["namespace"] == "tenantry-system"
    assert kept["metadata"]["ownerReferences"][0]["uid"] == "h-1"
    (offer,) = found.inside
    inside = body(offer)
    assert (inside["metadata"]["name"], inside["type"]) == ("bootstrap-token-fresh1", "bootstrap.kubernetes.io/token")
    data = {key: base64.b64decode(value).decode() for key, value in inside["data"].items()}
    assert data["auth-extra-groups"] == "system:bootstrappers:tenantry"
    assert data["expiration"] == "2026-11-28T12:10:00Z"
    assert "usage-bootstrap-signing" not in data
    join = found.status.join
    assert join is not UNSET
    assert (join.server, join.ca, join.secret.name) == (ENDPOINT.server, "CA", "join-blue-1-fresh1")
    assert found.status.inside == PENDING
    # What the record says is what is read of it.
    again = tokens.read(join.secret, msgspec.json.encode(kept))
    assert again == FRESH
    # A second decision changes nothing on the host: users inside may have deleted the token there.
    settled = done(replace(WIPED, status=found.status), FRESH)
    assert (settled.home, settled.status) == ((), found.status)
    assert settled.again_seconds == LIFE.total_seconds()


def test_without_an_endpoint_a_condition_reports_it() -> None:
    found = done(WIPED, None, endpoint=None)
    assert (found.home, found.inside, found.status) == ((), (), WIPED.status)
    assert found.obstacle is not None
    assert found.obstacle.reason == reasons.NO_NODE_ENDPOINT
    assert "no endpoint for nodes" in found.obstacle.message


def test_the_first_request_is_recorded_before_it_is_approved() -> None:
    first = done(requests=[asked()])
    (record,) = first.home
    assert body(record)["metadata"]["annotations"] == {"tenantry.dev/join-used": "c-1"}
    assert (first.inside, first.again_seconds) == ((), 0.0)
    second = done(token=USED, requests=[asked()])
    assert second.home == ()
    assert verdicts(second) == [("csr-c-1", "Approved")]
    # The kubelet waits for its certificate with the token: it goes when the Node is there.
    assert len(second.inside) == 1
    third = done(token=USED, inside=NODE)
    assert [each.request.name for each in third.inside if each.request.verb is Verb.DELETE] == [
        "bootstrap-token-abc123"
    ]


def test_a_token_is_worth_one_certificate() -> None:
    found = done(token=USED, requests=[asked(decided=(SigningCondition(type="Approved"),)), asked(uid="c-2")])
    assert verdicts(found) == [("csr-c-2", "Denied")]
    assert found.obstacle is not None
    assert found.obstacle.reason == reasons.CERTIFICATE_REFUSED
    assert "was used before" in found.obstacle.message
    assert [each.message for each in found.events] == [found.obstacle.message]
    # It stays in the condition while the request is there, and is not reported again.
    denied = SigningCondition(type="Denied", reason=reasons.CERTIFICATE_REFUSED, message=found.obstacle.message)
    later = done(token=USED, requests=[asked(uid="c-2", decided=(denied,))])
    assert (verdicts(later), later.events, later.obstacle) == ([], (), found.obstacle)
    # Two at once: one is used, and the other one is not.
    both = done(requests=[asked(), asked(uid="c-2")])
    assert len(both.home) == 1


@pytest.mark.parametrize(
    ("text", "usages", "why"),
    [
        (csr("system:node:red-1", GROUP), CLIENT_USAGES, "may be for 'system:node:blue-1'"),
        (csr(USER, GROUP, "system:masters"), CLIENT_USAGES, "in 'system:nodes' only"),
        (csr(USER), CLIENT_USAGES, "in 'system:nodes' only"),
        (csr(USER, "system:masters"), CLIENT_USAGES, "in 'system:nodes' only"),
        (csr("kubernetes-admin", GROUP), CLIENT_USAGES, "may be for 'system:node:blue-1'"),
        (csr(USER, GROUP, names=["kubernetes.default"]), CLIENT_USAGES, "must not have names"),
        (csr(USER, GROUP, names=["root@example.com"]), CLIENT_USAGES, "must not have names"),
        (csr(USER, GROUP, names=["https://example.com"]), CLIENT_USAGES, "must not have names"),
        (csr(USER, GROUP), SERVING_USAGES, "usages client auth, digital signature only"),
        (csr(USER, GROUP), (*CLIENT_USAGES, "server auth"), "usages"),
        (csr(USER, GROUP), (*CLIENT_USAGES, "cert sign"), "usages"),
        (csr(USER, GROUP), (), "usages"),
        (base64.b64encode(b"nonsense").decode(), CLIENT_USAGES, "cannot be read"),
    ],
)
def test_a_client_certificate_is_for_the_one_name_only(text: str, usages: tuple[str, ...], why: str) -> None:
    for by, token in (("system:bootstrap:abc123", TOKEN), (USER, USED)):
        found = done(token=token, requests=[asked(text, usages=usages, by=by)])
        assert verdicts(found) == [("csr-c-1", "Denied")]
        assert found.home == ()
        assert why in found.events[0].message


@pytest.mark.parametrize("extension", MALFORMED)
def test_a_malformed_request_is_denied_and_others_go_on(extension: x509.UnrecognizedExtension) -> None:
    malformed = asked(csr(USER, GROUP, more=[extension]), by=USER, uid="c-2")
    found = done(token=USED, requests=[malformed, asked()])
    assert verdicts(found) == [("csr-c-2", "Denied"), ("csr-c-1", "Approved")]
    assert "cannot be read" in found.events[0].message
    # Nor does it keep the first one from being recorded.
    (record,) = done(requests=[asked(malformed.spec.request, uid="c-2"), asked()]).home
    assert body(record)["metadata"]["annotations"] == {"tenantry.dev/join-used": "c-1"}


def test_a_token_is_used_only_in_the_record_that_was_read() -> None:
    """Another operator may have used it in between, while it loses its leadership: that is not overwritten."""
    kept = body(done(WIPED, None).home[0])
    kept["metadata"]["resourceVersion"] = "41"
    token = tokens.read(JoinSecret(namespace="tenantry-system", name="join-blue-1-fresh1"), msgspec.json.encode(kept))
    found = done(token=token, requests=[asked()])
    (record,) = found.home
    assert body(record)["metadata"]["resourceVersion"] == "41"
    # After a Conflict, nothing is approved before the record is read again.
    assert Conflict in record.ignores
    assert (found.inside, found.again_seconds) == ((), 0.0)


def test_of_requests_in_memory_only_what_may_be_approved_is_whole() -> None:
    """Users inside create as many as they like, of any size."""
    text = csr(USER, GROUP)
    own = bounded_as(asked(text))
    assert (own.spec.request, own.spec.usages, own.metadata.uid) == (text, CLIENT_USAGES, "c-1")
    assert verdicts(done(token=USED, requests=[own])) == [("csr-c-1", "Approved")]
    other = bounded_as(asked(text, signer="example.com/any"))
    assert (other.spec, other.status, other.metadata.name) == (SigningSpec(), SigningStatus(), "csr-c-1")
    long = bounded_as(asked("x" * (signingrequests.MOST_REQUEST + 1)))
    assert long.spec.request == ""
    assert verdicts(done(token=USED, requests=[long])) == [("csr-c-1", "Denied")]
    decided = bounded_as(asked(text, decided=(SigningCondition(type="Approved", message="m" * 100_000),)))
    assert (decided.spec.request, decided.status.certificate) == ("", "")
    assert len(msgspec.json.encode(decided)) < 4000


def test_both_controllers_of_nodes_cache_requests_like_this() -> None:
    nothing = cast("Any", None)
    joining = JoinController("p-1", nothing, lambda: None, lambda: None, OfferedTokens())
    watches = [joining.requests(), *ContributionController().watches()]
    decoders = [each.decode for each in watches if each.resource == SigningRequest.resource]
    assert decoders == [signingrequests.bounded] * 2


def bounded_as(whole: SigningRequest) -> SigningRequest:
    """Return a request as it is cached: of one with labels and a certificate."""
    meta = replace(whole.metadata, annotations={"large": "x" * 100_000})
    given = replace(whole, metadata=meta, status=replace(whole.status, certificate="x" * 100_000))
    return signingrequests.bounded(msgspec.Raw(msgspec.json.encode(given)))


def test_a_token_that_is_late_is_refused_and_replaced() -> None:
    late = NOW + LIFE
    found = done(requests=[asked()], now=late)
    assert verdicts(found) == [("csr-c-1", "Denied")]
    assert [each.reason for each in found.events] == [reasons.CERTIFICATE_REFUSED, reasons.JOIN_TOKEN_EXPIRED]
    assert [each.request.verb for each in found.home] == [Verb.CREATE, Verb.DELETE]
    deleted = [each.request.name for each in found.inside if each.request.verb is Verb.DELETE]
    assert deleted == ["bootstrap-token-abc123"]
    join = found.status.join
    assert join is not UNSET
    assert join.secret.name.endswith("-fresh1")


def test_requests_of_other_tokens_and_other_nodes_are_not_this_nodes() -> None:
    for by in ("system:bootstrap:other1", "system:node:red-1", "system:bootstrap:", "alice"):
        assert not machines.signing.is_of(asked(by=by), OFFERED)
    assert not machines.signing.is_of(asked(by="system:bootstrap:"), WIPED)
    assert not machines.signing.is_of(asked(by=USER, signer="kubernetes.io/kube-apiserver-client"), OFFERED)


@pytest.mark.parametrize(
    ("names", "verdict"),
    [
        ([ADDRESS, NAME], "Approved"),
        ([ADDRESS], "Approved"),
        ([], "Denied"),
        ([ADDRESS, "10.113.0.1"], "Denied"),
        (["kubernetes.default.svc"], "Denied"),
        (["localhost"], "Denied"),
        (["127.0.0.1"], "Denied"),
        ([ADDRESS, "https://example.com"], "Denied"),
    ],
)
def test_a_node_serves_at_the_addresses_that_the_host_knows(names: list[str], verdict: str) -> None:
    """Whatever the Node inside says: users inside may have edited it."""
    text = csr(USER, GROUP, names=names)
    found = done(token=USED, inside=NODE, requests=[asked(text, by=USER, signer=SERVING, usages=SERVING_USAGES)])
    assert verdicts(found) == [("csr-c-1", verdict)]


def test_a_node_renews_its_certificate_by_itself() -> None:
    joined = replace(OFFERED, status=replace(OFFERED.status, stage=HandoverStage.JOINED, inside="i-1"))
    usages = (*CLIENT_USAGES, "key encipherment")
    found = done(joined, USED, NODE, [asked(by=USER, uid="c-9", usages=usages)])
    assert verdicts(found) == [("csr-c-9", "Approved")]
    # Also after its record was deleted by hand.
    assert verdicts(done(joined, None, NODE, [asked(by=USER, uid="c-9")])) == [("csr-c-9", "Approved")]


def test_an_earlier_node_of_its_name_is_deleted_and_a_finalizer_of_it_is_reported() -> None:
    found = done(inside=NODE)
    assert [(each.request.verb, each.request.resource) for each in found.inside] == [(Verb.DELETE, Node.resource)]
    meta = replace(NODE.metadata, deletion_timestamp="2026-11-28T11:00:00Z", finalizers=("example.com/keep",))
    kept = done(inside=replace(NODE, metadata=meta))
    assert kept.inside == ()
    assert kept.obstacle is not None
    assert (kept.obstacle.reason, "'example.com/keep'" in kept.obstacle.message) == (reasons.NODE_BLOCKED, True)


def test_a_token_of_cluster_api_takes_the_place_of_the_secret_that_cluster_api_has_made() -> None:
    """H04: with the group whose rights the operator keeps, and worth one certificate, as any other."""
    of = replace(WIPED, spec=replace(WIPED.spec, bootstrap=BootstrapConfig(namespace="acme", name="web-a")))
    given = replace(FRESH, is_given=True)
    first = decide(JoinMachineInputs(handover=of, inside=None, token=None, fresh=given, endpoint=ENDPOINT, now=NOW))
    assert [each.request.verb for each in first.inside] == [Verb.DELETE, Verb.CREATE]
    assert first.status.join is not UNSET
    assert first.status.join.secret.name == "join-blue-1-fresh1"
    # What deletes tokens of no machine may have taken the one of Cluster API for ours: no event reports it.
    again = done(replace(of, status=first.status), FRESH)
    assert again.again_seconds is not None
    assert again.again_seconds < LIFE.total_seconds()


def test_its_node_gets_the_labels_and_taints_of_its_pool_and_then_has_joined() -> None:
    found = done(token=USED, inside=NODE)
    (_, write) = found.inside
    patch = body(write)
    assert patch["metadata"]["labels"] == {"pool": "blue"}
    assert patch["metadata"]["annotations"] == {HANDOVER_RECORD: "h-1"}
    assert patch["metadata"]["resourceVersion"] == "7"
    assert [(each["key"], each["effect"]) for each in patch["spec"]["taints"]] == [("only", "NoSchedule")]
    assert (found.status.stage, found.status.inside) == (HandoverStage.JOINED, "i-1")
    assert patch["spec"]["providerID"] == provider_id(OFFERED)
    meta = replace(NODE.metadata, labels={"pool": "blue"}, annotations={HANDOVER_RECORD: "h-1"})
    known = replace(NODE, metadata=meta, spec=NodeSpec(provider_id="cloud://1"))
    settled = done(replace(OFFERED, status=found.status), USED, known)
    assert (settled.inside, settled.home, settled.status) == ((), (), found.status)
    away = done(replace(OFFERED, status=found.status), USED, replace(NODE, metadata=meta, status=NodeStatus()))
    assert away.status.stage is HandoverStage.JOINING


def test_a_node_that_was_deleted_inside_is_reported_when_its_time_is_over() -> None:
    joined = replace(OFFERED, status=replace(OFFERED.status, stage=HandoverStage.JOINED, inside="i-1"))
    found = done(joined, USED)
    assert (found.status.stage, found.status.inside, found.obstacle) == (HandoverStage.JOINING, PENDING, None)
    late = done(joined, USED, now=NOW + LIFE)
    assert late.obstacle is not None
    assert "no Node inside" in late.obstacle.message


def test_a_machine_that_leaves_before_it_has_joined_loses_its_token() -> None:
    meta = replace(OFFERED.metadata, deletion_timestamp="2026-11-28T12:00:00Z")
    inputs = desired.JoinInputs(handover=replace(OFFERED, metadata=meta), below=None, inside=None, pods=(), now=NOW)
    found = desired.decide(inputs)
    assert [each.request.name for each in found.writes] == ["bootstrap-token-abc123"]
    assert (found.status.inside, found.status.join) == ("", UNSET)


def test_every_prefix_of_the_writes_grants_one_certificate_at_most() -> None:
    """The next process continues: it knows the record, and nothing of what an ended one was about to do."""
    two = [asked(), asked(uid="c-2")]
    granted: set[str] = set()
    token: JoinToken = TOKEN
    for carried in ((True, False), (False, False), (True, True)):
        found = done(token=token, requests=two)
        if found.home and carried[0]:
            token = USED
        elif not found.home and carried[1]:
            granted |= {name for name, verdict in verdicts(found) if verdict == "Approved"}
    found = done(token=token, requests=two)
    granted |= {name for name, verdict in verdicts(found) if verdict == "Approved"}
    assert granted == {"csr-c-1"}

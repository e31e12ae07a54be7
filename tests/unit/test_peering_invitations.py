"""L14: what an invitation must contain, who may use it, and when it is over."""

from __future__ import annotations

import datetime as dt
import json

import msgspec
import pytest

from tenantry.api.errors import InputError
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.peercluster import (
    GuestInvitation,
    InvitationPhase,
    InvitationStatus,
    PeerCluster,
    PeerClusterSpec,
    PeerGuest,
    renewer_name,
)
from tenantry.api.peerinvitation import MAX_FILE_BYTES, PeerInvitation, PeerRequest
from tenantry.controllers.peering.guests import invitations
from testkit.certificates import authority

NOW = dt.datetime(2027, 1, 1, 12, tzinfo=dt.UTC)
EXPIRES = "2027-01-01T12:30:00Z"
CA = authority("peer", NOW)
ASKED = GuestInvitation(expires=EXPIRES)


def spec(**changed: object) -> Json:
    """Return the spec of an invitation."""
    return {
        "server": "https://berlin.example.com:6443",
        "ca": CA,
        "guest": "home",
        "clusterId": "peer-id",
        "homeId": "home-id",
        "quota": {"hard": {"cpu": "4"}},
        "expires": EXPIRES,
        "token": "canary.eyJp.c2ln",
        **changed,
    }


def document(changed: Json | None = None, **top: object) -> bytes:
    """Return the file of an invitation."""
    value = {
        "apiVersion": "federation.tenantry.dev/v1alpha1",
        "kind": "PeerInvitation",
        "metadata": {"name": "berlin"},
        "spec": spec(**(changed or {})),
        **top,
    }
    return json.dumps(value).encode()


def test_a_file_is_read_as_it_was_written() -> None:
    found = invitations.read(document(), PeerInvitation)
    assert found.metadata.name == "berlin"
    assert found.spec.quota.hard == {"cpu": "4"}
    # Numbers, times and the words of YAML 1.1 are strings.
    request = (
        b"{apiVersion: federation.tenantry.dev/v1alpha1, kind: PeerRequest, metadata: {name: no}, spec: {homeId: 12}}"
    )
    asked = invitations.read(request, PeerRequest)
    assert (asked.metadata.name, asked.spec.home_id) == ("no", "12")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (document({"server": "http://berlin"}), "spec.server"),
        (document({"server": "https://berlin/path"}), "spec.server"),
        (document({"server": "https://user@berlin"}), "spec.server"),
        (document({"ca": "none"}), "spec.ca must be certificates in PEM"),
        (document({"ca": "x" * 70_000}), "spec.ca must be at most 65536"),
        (document({"guest": "Home"}), "spec.guest must be"),
        (document({"guest": "-"}), "spec.guest must be"),
        (document({"guest": "a" * 41}), "spec.guest must be at most 40"),
        (document({"clusterId": ""}), "spec.clusterId must not be empty"),
        (document({"homeId": "x" * 65}), "spec.homeId must be at most 64"),
        (document({"expires": "tomorrow"}), "spec.expires must be a time"),
        (document({"expires": "2027-01-01T12:00:00"}), "spec.expires must be a time"),
        (document({"token": "two words"}), "spec.token must be a token"),
        (document({"token": "x" * 17_000}), "spec.token must be at most 16384"),
        (document({"quota": {"hard": {"cpu": "-1"}}}), "spec.quota.hard must be a quota"),
        (document({"quota": {"hard": {"cups": "1"}}}), "spec.quota.hard must be a quota"),
        (document({"quota": {"hard": {f"requests.a.com/{i}": "1" for i in range(65)}}}), "spec.quota.hard has 65 keys"),
        (document({"run": "this"}), "spec.run must not be set"),
        (document({}, metadata={"name": "Berlin"}), "metadata.name must be"),
        (document({}, metadata={}), "metadata.name must be given"),
        (document({}, kind="PeerRequest"), "kind is 'PeerRequest'"),
        (document({}, apiVersion="v2"), "apiVersion is 'v2'"),
        (document({}, spec=[]), "spec must be a map"),
        (b"[" * 100_000, "not one document"),
        # References could repeat one value for ever, or 2^30 times.
        (b"a: &a [*a]", "not one document"),
        (b"a: &a {b: *a}", "not one document"),
        (b"a: &a {b: 1}\nc: *a", "not one document"),
        (b"a: {\n", "line 2"),
        (b"\xff\xfe", "not one document"),
        (document() + b"\n---\n" + document(), "not one document"),
        (b" " * (MAX_FILE_BYTES + 1), "bytes long"),
        (b"", "must be a map"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field(data: bytes, field: str) -> None:
    with pytest.raises(InputError) as refused:
        invitations.read(data, PeerInvitation)
    assert field in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "home_id", "words"),
    [
        ({}, "home-id", ""),
        ({"homeId": ""}, "any-id", ""),
        ({}, "other-id", "spec.homeId must be the id of this cluster, 'other-id', and is 'home-id'"),
        ({"clusterId": "home-id"}, "home-id", "spec.clusterId must not be the id of this cluster"),
        ({"expires": "2027-01-01T12:00:00Z"}, "home-id", "spec.expires must not be past"),
        ({"expires": "2027-01-01T14:00:00+02:00"}, "home-id", "spec.expires must not be past"),
    ],
)
def test_an_invitation_is_for_one_cluster_and_one_hour(changed: Json, home_id: str, words: str) -> None:
    found = invitations.refusal(invitations.read(document(changed), PeerInvitation), home_id, NOW)
    assert found.startswith(words)
    assert bool(found) == bool(words)


OPEN = InvitationStatus(expires=EXPIRES, phase=InvitationPhase.OPEN)
LAST_YEARS = InvitationStatus(expires="2026-01-01T00:00:00Z", phase=InvitationPhase.USED)
LIVE: Json = {"metadata": {"annotations": {invitations.EXPIRES: EXPIRES}}}
EARLIER: Json = {"metadata": {"annotations": {invitations.EXPIRES: "2026-01-01T00:00:00Z"}}}


@pytest.mark.parametrize(
    ("before", "live", "minutes", "phase"),
    [
        (None, None, 0, InvitationPhase.OPEN),
        (None, LIVE, 0, InvitationPhase.OPEN),
        (OPEN, LIVE, 0, InvitationPhase.OPEN),
        (OPEN, None, 0, InvitationPhase.USED),
        # Another client has made a Secret of the name.
        (OPEN, EARLIER, 0, InvitationPhase.USED),
        (OPEN, LIVE, 30, InvitationPhase.EXPIRED),
        (None, None, 30, InvitationPhase.EXPIRED),
        # What is over stays so, also if the Secret is made again, and after a restart.
        (msgspec.structs.replace(OPEN, phase=InvitationPhase.USED), LIVE, 0, InvitationPhase.USED),
        (msgspec.structs.replace(OPEN, phase=InvitationPhase.USED), None, 60, InvitationPhase.USED),
        (msgspec.structs.replace(OPEN, phase=InvitationPhase.EXPIRED), LIVE, 0, InvitationPhase.EXPIRED),
        # Another one is a new invitation.
        (
            InvitationStatus(expires="2026-01-01T00:00:00Z", phase=InvitationPhase.USED),
            EARLIER,
            0,
            InvitationPhase.OPEN,
        ),
    ],
)
def test_an_invitation_is_over_when_its_secret_is_gone(
    before: InvitationStatus | None, live: Json | None, minutes: int, phase: InvitationPhase
) -> None:
    assert invitations.phase(ASKED, before, live, NOW + dt.timedelta(minutes=minutes)) is phase


def test_the_account_of_an_invitation_may_request_one_token_and_end_itself() -> None:
    meta = ObjectMeta(name="home", uid="p1")
    found = PeerCluster(metadata=meta, spec=PeerClusterSpec(guest=PeerGuest(invitation=ASKED)))
    made: dict[str, Json] = {resource.kind: value for resource, value in invitations.objects(found)}
    granted = [(rule["resources"], rule["verbs"], rule["resourceNames"]) for rule in made["Role"]["rules"]]
    assert granted == [
        (["serviceaccounts/token"], ["create"], [renewer_name("home")]),
        (["secrets"], ["delete"], ["home-invite"]),
        (["rolebindings"], ["delete"], ["home-invite"]),
    ]
    assert made["RoleBinding"]["subjects"][0]["name"] == "home-invite"
    for value in (*made.values(), invitations.secret(found, ASKED)):
        assert [each["uid"] for each in value["metadata"]["ownerReferences"]] == ["p1"]

"""L13: what a peer offers, what a home makes of it, and what it does with an offer that lies."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction

import msgspec
import pytest

from tenantry.api.model import Json, ObjectMeta
from tenantry.api.peercluster import (
    GuestOffer,
    OfferAmounts,
    OfferStatus,
    PeerCluster,
    PeerClusterSpec,
    PeerGuest,
)
from tenantry.api.quota import Quota
from tenantry.controllers.peering.guests import offering, offers

NOW = dt.datetime(2027, 1, 1, 12, tzinfo=dt.UTC)
PAST, LATER = "2027-01-01T11:59:59Z", "2027-01-01T12:00:10Z"
HARD: dict[str, int | str] = {"cpu": "4", "limits.cpu": "8", "requests.memory": "8Gi", "count/secrets": "5"}
WHOLE = {"cpu": "4", "memory": "8Gi", "pods": "110"}
FREE = {"cpu": Fraction(6), "memory": Fraction(4 * 2**30), "pods": Fraction(301)}


def half(**offer: object) -> PeerGuest:
    """Return a guest half with an offer."""
    return PeerGuest(quota=Quota(hard=HARD), offer=msgspec.convert(offer, GuestOffer))


@pytest.mark.parametrize(
    ("given", "hard"),
    [
        (PeerGuest(quota=Quota(hard=HARD)), WHOLE),
        (half(), WHOLE),
        (half(amounts="Share", percent=50), {"cpu": "3", "memory": "2Gi", "pods": "110"}),
        (half(amounts="Share", percent=100), {"cpu": "4", "memory": "4Gi", "pods": "110"}),
        (half(amounts="Share", percent=1), {"cpu": "60m", "memory": "40Mi", "pods": "3"}),
        (half(amounts="None"), dict.fromkeys(WHOLE, "0")),
        (half(expires=PAST), dict.fromkeys(WHOLE, "0")),
        (half(amounts="Share", expires=PAST), dict.fromkeys(WHOLE, "0")),
        (half(expires=LATER), WHOLE),
    ],
)
def test_an_offer_is_at_most_the_quota(given: PeerGuest, hard: dict[str, str]) -> None:
    assert offers.offered(given, FREE, None, NOW).hard == hard


@pytest.mark.parametrize(
    ("cpu", "before", "after"),
    [
        # Less than a tenth: it stays. More: it follows. To and from nothing: at once.
        ("6.5", "3", "3"),
        ("5.4", "3", "3"),
        ("5.3", "3", "2650m"),
        ("8", "3", "4"),
        ("0", "3", "0"),
        ("-1", "3", "0"),
        ("6", "0", "3"),
        # An earlier offer above today's quota does not stay.
        ("9", "4100m", "4"),
    ],
)
def test_a_share_does_not_change_all_the_time(cpu: str, before: str, after: str) -> None:
    known = OfferStatus(hard={"cpu": before})
    found = offers.offered(half(amounts="Share", percent=50), {**FREE, "cpu": Fraction(cpu)}, known, NOW)
    assert found.hard["cpu"] == after


def test_a_share_is_looked_at_again_and_an_end_is_not_missed() -> None:
    assert offering.next_look(half(), NOW, 300) == 300
    assert offering.next_look(half(amounts="Share"), NOW, 300) == offering.SHARE_SECONDS
    assert offering.next_look(half(amounts="Share", expires=LATER), NOW, 300) == 11
    assert offering.next_look(half(expires=PAST), NOW, 300) == 300


@pytest.mark.parametrize(
    ("offer", "hard"),
    [
        (None, {"cpu": "2", "example.com/gpu": "1"}),
        (OfferStatus(hard={"cpu": "8", "example.com/gpu": "4"}), {"cpu": "2", "example.com/gpu": "1"}),
        (OfferStatus(hard={"cpu": "500m", "memory": "1Gi"}), {"cpu": "500m", "example.com/gpu": "0"}),
        (OfferStatus(hard={"cpu": "8"}, expires=PAST), {"cpu": "0", "example.com/gpu": "0"}),
        (OfferStatus(hard={"cpu": "1"}, expires=LATER), {"cpu": "1", "example.com/gpu": "0"}),
    ],
)
def test_a_node_has_the_least_of_offer_and_acceptance(offer: OfferStatus | None, hard: dict[str, str]) -> None:
    assert offers.least({"cpu": "2", "example.com/gpu": "1"}, offer, NOW) == hard


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{" * 1000,
        '{"hard": {"cpu": 4}}',
        '{"hard": {"cpu": "many"}}',
        '{"hard": {"cpu": "1e999"}}',
        '{"expires": "tomorrow"}',
        '{"hard": {' + ",".join(f'"r{i}": "1"' for i in range(65)) + "}}",
        '{"hard": {"cpu": "1"}, "labels": {"a": "' + "x" * offers.MOST_BYTES + '"}}',
    ],
)
def test_an_offer_that_is_none_is_not_read(text: str) -> None:
    assert offers.read(text) is None


def test_an_offer_is_read_as_it_was_written_without_negative_amounts() -> None:
    made = offers.offered(half(expires=LATER), {}, None, NOW)
    assert offers.read(msgspec.json.encode(made).decode()) == made
    found = offers.read('{"hard": {"cpu": "-1", "memory": "1Gi"}}')
    assert found is not None
    assert found.hard == {"memory": "1Gi"}


def test_a_home_may_read_its_offer_and_nothing_else() -> None:
    meta = ObjectMeta(name="home", uid="p1")
    found = PeerCluster(metadata=meta, spec=PeerClusterSpec(guest=half(amounts=OfferAmounts.NONE)))
    made: dict[str, Json] = {resource.kind: value for resource, value in offers.objects(found, OfferStatus())}
    (rule,) = made["Role"]["rules"]
    assert (rule["resources"], rule["verbs"], rule["resourceNames"]) == (["configmaps"], ["get"], ["home-offer"])
    assert [each["name"] for each in made["RoleBinding"]["subjects"]] == ["home"]

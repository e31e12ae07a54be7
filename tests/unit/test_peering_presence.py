"""A guest that is silent, or another cluster than before: L13, L14, and section 9 of the design."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import ObjectMeta
from tenantry.api.peercluster import CONTENDER, PeerCluster, PeerClusterSpec, PeerClusterStatus, PeerGuest
from tenantry.api.quota import Quota
from tenantry.api.tenant import Tenant
from tenantry.controllers.peering import status
from tenantry.controllers.peering.guests import guest, presence
from tenantry.controllers.peering.guests.presence import GuestPresence, Stage
from tenantry.engine.clock import rfc3339
from tenantry.engine.lease import Lease, LeaseSpec

START = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
HALF = PeerGuest(quota=Quota(hard={"cpu": "4"}), lease_seconds=600, keep_seconds=300)


def peer(*, contact: str = "", guest_id: str = "", cluster_id: str = "") -> PeerCluster:
    known = PeerClusterStatus(last_contact=contact, guest_id=guest_id, cluster_id=cluster_id)
    return PeerCluster(metadata=ObjectMeta(name="home", uid="p1"), spec=PeerClusterSpec(guest=HALF), status=known)


def lease(at: dt.datetime, holder: str = "id/one", waits: str = "") -> Lease:
    meta = ObjectMeta(name="home", annotations={CONTENDER: waits} if waits else {})
    return Lease(metadata=meta, spec=LeaseSpec(holder_identity=holder, renew_time=rfc3339(at)))


def look(found: PeerCluster, held: Lease | None, seconds: float, *, seen: str | None = None) -> GuestPresence:
    now = START + dt.timedelta(seconds=seconds)
    return presence.judge(found, HALF, held, seen=seen, taken={"this", "another"}, now=now)


@pytest.mark.parametrize(
    ("seconds", "stage"),
    [(0, Stage.SERVED), (599, Stage.SERVED), (600, Stage.SUSPENDED), (899, Stage.SUSPENDED), (900, Stage.ENDED)],
)
def test_a_silent_guest_is_suspended_and_then_ended(seconds: float, stage: Stage) -> None:
    held = lease(START)
    state = look(peer(contact=rfc3339(START)), held, seconds, seen=held.spec.renew_time)
    assert state.stage is stage
    assert (state.problem is None) == (stage is Stage.SERVED)
    if state.problem is not None:
        assert state.problem.reason == reasons.GUEST_SILENT


@pytest.mark.parametrize("seconds", [700, 5000])
def test_the_first_renewal_resumes_a_guest(seconds: float) -> None:
    now = START + dt.timedelta(seconds=seconds)
    state = look(peer(contact=rfc3339(START)), lease(now), seconds, seen=rfc3339(START))
    assert (state.stage, state.last_contact) == (Stage.SERVED, rfc3339(now))


def test_a_renewal_by_a_wrong_clock_counts_when_it_is_seen_to_change() -> None:
    """The clock of the home cannot keep its Tenant: only changes count, by the clock of this cluster."""
    future = lease(START + dt.timedelta(days=3650))
    renewed = future.spec.renew_time
    state = look(peer(contact=rfc3339(START)), future, 700, seen=renewed)
    assert state.stage is Stage.SUSPENDED
    past = lease(START - dt.timedelta(days=10))
    assert look(peer(contact=rfc3339(START)), past, 700, seen=renewed).stage is Stage.SERVED


def test_the_time_begins_with_the_first_look() -> None:
    state = look(peer(), None, 0)
    assert (state.stage, state.last_contact) == (Stage.SERVED, rfc3339(START))


def test_the_time_of_the_contact_is_not_written_with_each_renewal() -> None:
    renewed = START + dt.timedelta(seconds=30)
    assert look(peer(contact=rfc3339(START)), lease(renewed), 30, seen="").last_contact == rfc3339(START)
    renewed = START + dt.timedelta(seconds=60)
    assert look(peer(contact=rfc3339(START)), lease(renewed), 60, seen="").last_contact == rfc3339(renewed)


@pytest.mark.parametrize(
    ("before", "holder", "reason"),
    [
        ("", "id/one", ""),
        ("id", "id/two", ""),
        ("id", "other/one", reasons.IDENTITY_CHANGED),
        ("", "this/one", reasons.IDENTITY_TAKEN),
        ("", "another/one", reasons.IDENTITY_TAKEN),
    ],
)
def test_a_home_is_one_cluster_and_no_other_guest(before: str, holder: str, reason: str) -> None:
    state = look(peer(contact=rfc3339(START), guest_id=before), lease(START, holder), 1)
    assert (state.problem.reason if state.problem is not None else "") == reason
    # What the first cluster has here is closed to the other one.
    assert state.stage is (Stage.SUSPENDED if reason else Stage.SERVED)
    assert state.guest_id == (before or ("" if reason else "id"))


@pytest.mark.parametrize(
    ("holder", "reason"),
    [("another/one", ""), ("id/one", reasons.IDENTITY_CHANGED), ("", "")],
)
def test_the_home_is_the_cluster_that_the_administrator_states(holder: str, reason: str) -> None:
    """L13: another guest may have claimed its id before it came, and is not believed."""
    half = replace(HALF, cluster_id="another")
    state = presence.judge(peer(), half, lease(START, holder), seen=None, taken={"this", "another"}, now=START)
    assert (state.problem.reason if state.problem is not None else "") == reason
    assert state.guest_id == "another"


def test_what_a_cluster_says_as_a_peer_is_not_what_it_is_as_a_guest() -> None:
    found = peer(contact=rfc3339(START), cluster_id="victim")
    state = look(found, lease(START), 1)
    assert (state.problem, state.guest_id) == (None, "id")
    known = status.compute(found, status.GuestState(presence=state), status.HostState(cluster_id="victim"), "")
    assert (known.cluster_id, known.guest_id) == ("victim", "id")


def test_a_home_that_exists_twice_is_reported() -> None:
    found = peer(contact=rfc3339(START))
    state = look(found, lease(START, waits="id/copy"), 1)
    conditions = {
        each.type: each
        for each in status.compute(found, status.GuestState(presence=state), None, rfc3339(START)).conditions
    }
    assert "'id/copy'" in conditions[reasons.HOME_TWICE].message
    state = look(found, lease(START), 1)
    known = status.compute(found, status.GuestState(presence=state), None, rfc3339(START))
    assert reasons.HOME_TWICE not in {each.type for each in known.conditions}
    assert known.guest_id == "id"


@pytest.mark.parametrize(
    ("stage", "suspended"), [(Stage.SERVED, [False]), (Stage.SUSPENDED, [True]), (Stage.ENDED, [])]
)
def test_the_accounts_of_a_silent_guest_stay(stage: Stage, suspended: list[bool]) -> None:
    made = guest.objects(peer(), HALF, stage)
    tenants = [msgspec.convert(value, Tenant) for resource, value in made if resource == Tenant.resource]
    assert [each.spec.suspended for each in tenants] == suspended
    assert {value["metadata"]["name"] for resource, value in made if resource == guest.ACCOUNTS} == {
        "home",
        "home-renew",
    }

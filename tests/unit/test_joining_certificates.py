"""Until when the certificates of a machine in a cluster are valid, and a sleep that ends before (H04): pure."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api.model import ObjectMeta
from tenantry.api.nodehandover import (
    HandoverPlane,
    HandoverStage,
    KubeletCertificates,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
)
from tenantry.api.signing import CLIENT, SERVING, SigningCondition, SigningRequest, SigningSpec, SigningStatus
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.joining import certificates
from tenantry.controllers.joining.certificates import LIFE, MARGIN
from tenantry.controllers.virtualcontrolplane import sleep, status
from tenantry.controllers.virtualcontrolplane.sleep import Sleep, SleepInputs, StayAwake
from tenantry.engine.clock import rfc3339
from tenantry.hosting.reports import Activity
from testkit.examples import examples

NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
IDLE = Activity(open_requests=0, idle_seconds=600, next_event=None, error="")


def asked(signer: str, at: dt.datetime, decided: str = "Approved", seconds: int = 0) -> SigningRequest:
    """Return a request for a certificate."""
    return SigningRequest(
        metadata=ObjectMeta(name="csr", creation_timestamp=rfc3339(at)),
        spec=SigningSpec(signer_name=signer, expiration_seconds=seconds),
        status=SigningStatus(conditions=(SigningCondition(type=decided),) if decided else ()),
    )


def node(name: str, ends: KubeletCertificates) -> NodeHandover:
    """Return a node that serves a control plane."""
    plane = HandoverPlane(namespace="acme", name="prod", uid="p")
    return NodeHandover(
        metadata=ObjectMeta(name=name),
        spec=NodeHandoverSpec(plane=plane, slice="s"),
        status=NodeHandoverStatus(stage=HandoverStage.JOINED, certificates=ends),
    )


def test_only_certificates_that_were_granted_count() -> None:
    """H04: from the request on, for what it requests, and at most for what the signer grants."""
    later = NOW + dt.timedelta(days=1)
    found = certificates.ends(KubeletCertificates(), [asked(CLIENT, NOW), asked(SERVING, NOW, ""), asked("other", NOW)])
    assert found == KubeletCertificates(client=rfc3339(NOW + LIFE))
    assert certificates.ends(found, [asked(CLIENT, later, "Denied")]) == found
    assert certificates.ends(found, [asked(CLIENT, later)]).client == rfc3339(later + LIFE)
    assert certificates.ends(found, [asked(CLIENT, NOW - LIFE)]) == found, "an earlier one is not news"
    short = asked(SERVING, NOW, seconds=3600)
    assert certificates.ends(found, [short]).serving == rfc3339(NOW + dt.timedelta(hours=1))
    endless = asked(SERVING, NOW, seconds=10**9)
    assert certificates.ends(found, [endless]).serving == rfc3339(NOW + LIFE)


def test_nodes_that_leave_or_have_lost_theirs_wake_nothing() -> None:
    """H04: no kubelet can renew a certificate that has ended."""
    over = node("a", KubeletCertificates(client=rfc3339(NOW - MARGIN), serving="not a time"))
    leaving = node("b", KubeletCertificates(client=rfc3339(NOW + MARGIN)))
    leaving = replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp=rfc3339(NOW)))
    assert certificates.first_end([over, leaving], NOW) is None


def test_a_machine_that_is_off_is_not_waited_for_and_no_machine_for_long() -> None:
    """H04: else one dead node keeps a control plane awake for three days, also against a request."""
    soon, later = KubeletCertificates(client=rfc3339(NOW + MARGIN / 2)), NOW + LIFE / 2
    dead = node("a", soon)
    dead = replace(dead, status=replace(dead.status, stage=HandoverStage.JOINING))
    assert certificates.first_end([dead], NOW) is None
    given = SleepInputs(
        now=NOW, after_seconds=0, is_requested=True, activity=IDLE, certificate=NOW + MARGIN / 2, following=later
    )
    waits = sleep.decide(given)
    assert isinstance(waits, StayAwake)
    assert waits.is_renewal
    found = sleep.decide(replace(given, waited_seconds=sleep.RENEWAL_SECONDS))
    assert isinstance(found, Sleep)
    assert found.next_wake == min(later - MARGIN, NOW + sleep.MOST_SLEEP)
    told = status.compute(
        VirtualControlPlane(metadata=ObjectMeta(name="prod")), None, endpoint="", now=rfc3339(NOW), waits=sleep.RENEWAL
    )
    assert "it does not sleep yet: certificates of its nodes are renewed" in told.conditions[0].message


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 29 * 24), st.integers(0, 29 * 24)), min_size=1, max_size=4),
    st.integers(0, 60 * 24),
)
def test_no_certificate_ends_in_a_sleep(ages: list[tuple[int, int]], hours: int) -> None:
    """H04: whenever a control plane with nodes falls asleep, it wakes before the first certificate ends.

    A kubelet renews it while the control plane is awake, as soon as nine tenths of its life are over.
    """
    births = [(NOW - dt.timedelta(hours=client), NOW - dt.timedelta(hours=serving)) for client, serving in ages]
    clock, until = NOW, NOW + dt.timedelta(hours=hours)
    while clock < until:
        known = [
            node(str(index), certificates.ends(KubeletCertificates(), [asked(CLIENT, client), asked(SERVING, serving)]))
            for index, (client, serving) in enumerate(births)
        ]
        first = certificates.first_end(known, clock)
        assert first is not None
        decided = sleep.decide(SleepInputs(now=clock, after_seconds=600, activity=IDLE, certificate=first))
        if isinstance(decided, Sleep):
            assert decided.next_wake > clock
            assert decided.next_wake <= first - MARGIN
            clock = decided.next_wake
        else:
            # Awake: kubelets whose time has come get another one.
            births = [
                (
                    clock if clock >= client + LIFE - MARGIN else client,
                    clock if clock >= serving + LIFE - MARGIN else serving,
                )
                for client, serving in births
            ]
            clock += dt.timedelta(seconds=decided.again_seconds or 60)

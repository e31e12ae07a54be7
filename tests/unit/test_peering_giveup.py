"""L13, X03: which pods of a peer are let go when it is given up, what they hold, and what the PeerCluster reports."""

from __future__ import annotations

import datetime as dt

import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.offloading import MOST_LOST, GiveUpProgress, LostPods, NamespaceMap, NamespaceMapStatus
from tenantry.api.peercluster import GIVE_UP, PeerCluster, PeerClusterSpec, PeerClusterStatus
from tenantry.controllers.evictions import deletion
from tenantry.controllers.offloading import lostpods
from tenantry.controllers.offloading.leaving import SENT, BoundPod, BoundStatus, PodState
from tenantry.controllers.peering import givenup
from tenantry.world.podrequests import ContainerRequests, PodSpecRequests, ResourceRequests
from tenantry.world.shares.amounts import RemoteShare, read

SINCE = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
CPU = "requests.cpu"


def peer(*notes: str) -> PeerCluster:
    """Return a PeerCluster with annotations."""
    meta = ObjectMeta(name="berlin", annotations=dict.fromkeys(notes, "now"))
    return PeerCluster(metadata=meta, spec=PeerClusterSpec())


def bound(uid: str, *, sent: bool = True, phase: str = "Running", deleted: bool = False, cpu: str = "100m") -> BoundPod:
    """Return a pod on the Node of a peer."""
    states = (PodState(SENT, "True"),) if sent else ()
    meta = ObjectMeta(name=f"pod-{uid}", namespace="shop", uid=uid)
    resources = ResourceRequests(requests={"cpu": cpu}, limits={"memory": "1Gi"})
    return BoundPod(
        metadata=replace(meta, deletion_timestamp="2027-01-01T00:00:00Z") if deleted else meta,
        spec=PodSpecRequests(containers=(ContainerRequests(resources=resources),)),
        status=BoundStatus(phase=phase, conditions=states),
    )


def lost(*uids: str, released: bool = False, holds: bool = True, cpu: str = "") -> LostPods:
    """Return the record of pods that are let go."""
    return LostPods(tenant="acme", uids=uids, hard={CPU: cpu} if cpu else {}, holds=holds, released=released)


def test_pods_that_may_run_at_the_peer_are_recorded_with_what_quotas_count_for_them() -> None:
    pods = [
        bound("a"),
        bound("b", sent=False, deleted=True, cpu="1"),
        bound("waits", sent=False),
        bound("ended", phase="Failed"),
    ]
    found = lostpods.record(None, pods, tenant="acme", holds=True, most=10)
    assert found == LostPods(
        tenant="acme",
        uids=("a", "b"),
        hard={CPU: "1100m", "limits.memory": "2Gi", "pods": "2", "count/pods": "2"},
    )
    assert lostpods.record(None, pods[2:], tenant="acme", holds=True, most=10) is None


def test_each_pod_counts_once_and_no_more_than_the_bound_are_recorded() -> None:
    first = lostpods.record(None, [bound("a")], tenant="acme", holds=True, most=10)
    assert first is not None
    released = replace(first, released=True)
    # The namespace may have another tenant by now: the pods count for the one before.
    assert lostpods.record(released, [bound("a")], tenant="other", holds=True, most=10) == released
    assert lostpods.record(released, [], tenant="acme", holds=True, most=10) == released
    more = lostpods.record(released, [bound("a"), bound("b"), bound("c")], tenant="acme", holds=True, most=1)
    assert more is not None
    assert (more.uids, more.hard[CPU], more.released) == (("a", "b"), "200m", False)


@pytest.mark.parametrize(
    ("record", "share", "limited", "wanted"),
    [
        (lost("a", cpu="1"), None, {CPU}, False),
        (lost("a", cpu="1"), None, {"pods"}, True),
        (lost("a", holds=False, cpu="1"), None, {CPU}, True),
        (lost("a", cpu="1"), ({CPU: "1"}, {CPU: "0"}), {CPU}, True),
        # What the share has is for other work.
        (lost("a", cpu="1"), ({CPU: "1"}, {CPU: "500m"}), {CPU}, False),
        (lost("a", cpu="1"), ({CPU: "1500m"}, {CPU: "500m"}), {CPU}, True),
    ],
)
def test_pods_are_let_go_when_the_quota_holds_what_they_may_use(
    record: LostPods, share: tuple[dict[str, str], dict[str, str]] | None, limited: set[str], *, wanted: bool
) -> None:
    held = None
    if share is not None:
        held = RemoteShare(namespace="shop", peer="berlin", held=read(share[0]), given=read(share[1]))
    assert lostpods.is_held(record, held, limited) is wanted


def test_only_recorded_pods_are_deleted_by_their_uids() -> None:
    pods = [bound("a"), bound("b"), bound("ended", phase="Succeeded")]
    assert lostpods.releases(pods, lost("a", "ended", "gone")) == [
        deletion("shop", "pod-a", "a", grace_period_seconds=0)
    ]


@pytest.mark.parametrize(
    ("status", "seconds", "wanted"),
    [
        (ConditionStatus.TRUE, 3600, False),
        (ConditionStatus.UNKNOWN, 29, False),
        (ConditionStatus.UNKNOWN, 30, True),
        (ConditionStatus.FALSE, 30, True),
    ],
)
def test_a_peer_is_silent_when_its_node_is_not_ready(status: ConditionStatus, seconds: int, *, wanted: bool) -> None:
    since = SINCE.isoformat().replace("+00:00", "Z")
    reachable = Condition(type=reasons.REACHABLE, status=status, reason="Any", message="", last_transition_time=since)
    found = replace(peer(), status=PeerClusterStatus(conditions=(reachable,)))
    assert lostpods.is_silent(found, SINCE + dt.timedelta(seconds=seconds)) is wanted


FULL = lost(*(str(number) for number in range(MOST_LOST)), released=True)
"""As many pods as are recorded for one peer."""


def _map(progress: GiveUpProgress | None, **entries: LostPods) -> NamespaceMap:
    status = NamespaceMapStatus(lost=entries)
    if progress is not None:
        status = replace(status, give_up=progress)
    return NamespaceMap(metadata=ObjectMeta(name="berlin"), status=status)


@pytest.mark.parametrize(
    ("known", "answers", "wanted"),
    [
        (None, False, (True, reasons.PODS_LET_GO)),
        (_map(None), False, (False, reasons.PEER_NOT_SILENT)),
        (_map(GiveUpProgress(request="earlier", pods=1)), False, (False, reasons.PEER_NOT_SILENT)),
        (_map(GiveUpProgress(request="now", pods=1)), False, (True, reasons.PODS_LET_GO)),
        (_map(GiveUpProgress(request="now", waiting=1), shop=lost("a")), False, (False, reasons.QUOTA_INSUFFICIENT)),
        (_map(GiveUpProgress(request="now", waiting=1), shop=FULL), False, (False, reasons.LIMIT_REACHED)),
        (_map(GiveUpProgress(request="now", pods=1), shop=lost("a")), True, (False, reasons.PEER_IS_BACK)),
    ],
)
def test_a_peercluster_reports_how_far_its_pods_are(
    known: NamespaceMap | None, *, answers: bool, wanted: tuple[bool, str]
) -> None:
    given_up = peer(GIVE_UP)
    found = givenup.condition(given_up, known, answers=answers)
    assert found is not None
    assert (found.holds, found.reason) == wanted
    assert givenup.condition(peer(), known, answers=answers) is None


def test_a_peer_is_used_again_when_it_answers_and_runs_none_of_the_pods() -> None:
    found = peer(GIVE_UP)
    entry = lost("a", released=True)
    states = [(known, answers) for known in (None, _map(None), _map(None, shop=entry)) for answers in (False, True)]
    assert [givenup.is_over(found, known, answers=answers) for known, answers in states] == [
        *(False, True),
        *(False, True),
        *(False, False),
    ]
    assert not givenup.is_over(peer(), None, answers=True)

"""When the credentials of a control plane are replaced (H01): decisions, and the operator's part without a process."""

from __future__ import annotations

import datetime as dt

import pytest
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import InnerOwner, InnerOwnerKind, Owner, OwnerKind
from tenantry.api.planecredentials import (
    KUBECONFIGS_NAMESPACE,
    FormerClient,
    LastRotationPhase,
    PlaneCredentials,
    PlaneRotation,
    PlaneRotationOutcome,
    RotationPhase,
)
from tenantry.api.virtualcontrolplane import (
    PlanePhase,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
    VirtualControlPlaneStatus,
)
from tenantry.controllers.tenantnamespace import owners_mark
from tenantry.controllers.virtualcontrolplane import desired, rotation, sleep
from tenantry.controllers.virtualcontrolplane.rotation import LEAST_SECONDS, WATCH_SECONDS, digest
from tenantry.engine.clock import rfc3339
from tenantry.engine.observed import Observed
from tenantry.hosting.plane import OVERLAP, CredentialGenerations
from tenantry.hosting.reports import FormerUse

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
ADA, BOB = "User ada", "Group bob"


def namespace(*owners: str, **labels: str) -> Observed:
    """A tenant's namespace with these owners."""
    text = "\n".join(["", *owners, ""])
    return Observed(
        key="acme",
        namespace="",
        name="acme",
        uid="n",
        version=1,
        labels=labels,
        annotations={marks.OWNERS: text},
        owner_uid="",
        deleting=False,
        digest=b"",
        has_subjects=False,
    )


def plane(request: str = "", **credentials: object) -> VirtualControlPlane:
    """A control plane for ada and bob, in force as wished."""
    known = PlaneCredentials(owners=tuple(sorted((digest(ADA), digest(BOB)))))
    found = VirtualControlPlane(
        metadata=ObjectMeta(name="web", namespace="acme", uid="u"),
        spec=VirtualControlPlaneSpec(rotation=PlaneRotation(request=request)),
        status=VirtualControlPlaneStatus(credentials=replace(known, **credentials)),
    )
    return settled(found)


def settled(found: VirtualControlPlane, at: dt.datetime = NOW - dt.timedelta(hours=1)) -> VirtualControlPlane:
    """Return the control plane once what is wished is in force."""
    last = rotation.outcome(found, rotation.wanted(found), at)
    return replace(found, status=replace(found.status, last_rotation=last))


def stepped(found: VirtualControlPlane, here: Observed, now: dt.datetime = NOW) -> VirtualControlPlane:
    """Return the control plane after the write of a step, of which all processes have just reported their clients."""
    written = rotation.step(found, here, now, has_reported=True).status
    assert written is not None
    return replace(found, status=written)


def test_nothing_happens_without_a_reason() -> None:
    assert rotation.step(plane(), namespace(ADA, BOB), NOW) == rotation.RotationStep()
    assert not rotation.is_pending(plane())


@pytest.mark.parametrize(("scope", "numbers"), [("Users", (1, 0)), ("All", (1, 1))])
def test_each_new_request_replaces_credentials_once(scope: str, numbers: tuple[int, int]) -> None:
    found = stepped(plane(f"{scope}@1"), namespace(ADA, BOB))
    assert (found.status.credentials.users, found.status.credentials.authorities) == numbers
    assert rotation.is_pending(found)
    # An operator that goes on from here does the same, and no more.
    assert rotation.step(found, namespace(ADA, BOB), NOW).status is None
    wished = CredentialGenerations(users=numbers[0], authorities=numbers[1])
    assert desired.plane_of(found, "10.96.0.7").credentials == wished
    # A process with others has not answered the request.
    assert rotation.outcome(found, CredentialGenerations(), NOW) == found.status.last_rotation
    done = settled(found, NOW)
    assert done.status.last_rotation == PlaneRotationOutcome(
        requested=f"{scope}@1", time="2026-06-01T00:00:00Z", users=numbers[0], authorities=numbers[1]
    )
    assert rotation.step(done, namespace(ADA, BOB), NOW + dt.timedelta(days=1)) == rotation.RotationStep()


def test_a_request_waits_for_the_one_before() -> None:
    """H01: users who may write the object do not keep its process starting."""
    asked = replace(plane(), spec=VirtualControlPlaneSpec(rotation=PlaneRotation(request="Users@2")))
    pending = replace(asked, status=replace(asked.status, credentials=PlaneCredentials(users=1, requested="Users@1")))
    here = namespace()
    assert rotation.step(pending, here, NOW).again_seconds == LEAST_SECONDS
    done = settled(pending, NOW)
    assert rotation.step(done, here, NOW + dt.timedelta(seconds=4)).again_seconds == LEAST_SECONDS - 4
    assert stepped(done, here, NOW + dt.timedelta(seconds=10)).status.credentials.requested == "Users@2"


def test_only_a_removed_owner_replaces_credentials() -> None:
    """H01: not one that is added, and not a suspension, which changes no owners."""
    more = stepped(plane(), namespace(ADA, BOB, "User eve"))
    assert rotation.wanted(more) == CredentialGenerations()
    assert digest("User eve") in more.status.credentials.owners
    # One that was an owner only while it slept has had the kubeconfig, too.
    less = stepped(more, namespace(ADA, BOB))
    assert rotation.wanted(less) == CredentialGenerations(users=1)
    assert rotation.step(settled(less), namespace(BOB, ADA), NOW).status is None


def test_a_removed_owner_may_still_watch_secrets_on_the_host() -> None:
    """H01: where owners may, the users' credentials are replaced once more when such watches have ended."""
    found = settled(stepped(plane(), namespace(ADA)))
    waits = rotation.step(found, namespace(ADA), NOW)
    assert (waits.status, waits.again_seconds) == (None, WATCH_SECONDS)
    end = NOW + dt.timedelta(seconds=WATCH_SECONDS)
    again = stepped(found, namespace(ADA), end)
    assert rotation.wanted(again) == CredentialGenerations(users=2)
    assert rotation.step(settled(again), namespace(ADA), end) == rotation.RotationStep()
    # Owners whose control plane is Virtual only get the Secret, which is a moment.
    own = namespace(ADA, **{marks.CONTROL_PLANE: "web"})
    assert rotation.step(settled(stepped(plane(), own)), own, end) == rotation.RotationStep()


def test_a_kubeconfig_where_others_may_have_watched_is_replaced_once() -> None:
    """H01: an earlier version wrote it in the namespace of the tenant, where members may have watched Secrets."""
    own = namespace(ADA, BOB, **{marks.CONTROL_PLANE: "web"})
    before = replace(plane(), status=replace(plane().status, kubeconfig_secret="web-kubeconfig"))
    # That of a control plane of users in a Shared tenant stays where it is.
    assert rotation.step(before, namespace(ADA, BOB), NOW).status is None
    found = stepped(before, own)
    assert rotation.wanted(found) == CredentialGenerations(users=1)
    assert (found.status.kubeconfig_namespace, found.status.kubeconfig_secret) == (KUBECONFIGS_NAMESPACE, "acme")
    assert rotation.step(settled(found), own, NOW) == rotation.RotationStep()
    # Once, too, if an owner was removed meanwhile, or a second rotation was due.
    own, due = namespace(ADA, **{marks.CONTROL_PLANE: "web"}), plane(again="2026-06-01T00:05:00Z").status
    found = stepped(replace(before, status=replace(due, kubeconfig_secret="web-kubeconfig")), own)
    assert rotation.wanted(found) == CredentialGenerations(users=1)
    assert rotation.step(settled(found), own, NOW) == rotation.RotationStep()


def test_an_account_of_the_same_name_in_another_namespace_is_another_owner() -> None:
    """H01: what the first one got would stay valid."""
    ours, theirs = (
        Owner(kind=OwnerKind.SERVICE_ACCOUNT, name="robot", namespace=place) for place in ("ours", "theirs")
    )
    before, after = (owners_mark([each])[marks.OWNERS] for each in (ours, theirs))
    found = plane(owners=rotation.owners_of(plane(), namespace(before)))
    assert rotation.removed(found, namespace(before)) == frozenset()
    assert rotation.removed(found, namespace(after)) == {digest("ServiceAccount ours/robot")}


def test_an_owner_inside_that_is_removed_has_the_credentials_of_users_replaced() -> None:
    """H04: one may have had a certificate issued inside; one on the host of the same name is another owner."""
    alice = InnerOwner(kind=InnerOwnerKind.USER, name="ada")
    found = replace(plane(), spec=replace(plane().spec, owners=(alice,)))
    found = settled(stepped(found, namespace(ADA, BOB)))
    assert rotation.wanted(found) == CredentialGenerations()
    gone = replace(found, spec=replace(found.spec, owners=()))
    assert len(rotation.removed(gone, namespace(ADA, BOB))) == 1
    assert rotation.wanted(stepped(gone, namespace(ADA, BOB))) == CredentialGenerations(users=1)


def test_an_owner_that_is_still_bound_gets_no_new_kubeconfig() -> None:
    gone = rotation.removed(plane(), namespace(ADA))
    assert gone == {digest(BOB)}
    assert rotation.is_bound([ADA, BOB], gone)
    assert not rotation.is_bound([ADA, "User bob"], gone)


def test_a_control_plane_that_sleeps_wakes_for_it() -> None:
    """H01: its Secret has the new kubeconfig, before others knock with the one that is worth nothing."""
    found = stepped(plane(), namespace(ADA))
    asleep = replace(found.status, phase=PlanePhase.ASLEEP, next_wake="2030-01-01T00:00:00Z")
    reason = sleep.wake_reason(replace(found, status=asleep), NOW, "", is_knocked=False)
    assert reason == "its credentials are replaced"


HERE = namespace(ADA, BOB)
QUIET = PlaneRotation().quiet_seconds


def asked(found: VirtualControlPlane, request: str, last: LastRotationPhase | None = None) -> VirtualControlPlane:
    """Return the control plane with another request."""
    wanted = replace(found.spec.rotation, request=request, last_phase=last or found.spec.rotation.last_phase)
    return replace(found, spec=replace(found.spec, rotation=wanted))


def issuing(*clients: FormerClient) -> VirtualControlPlane:
    """Return a control plane in the phase Issuing, which began at NOW."""
    found = settled(stepped(plane("Gradual@1"), HERE))
    found = stepped(settled(stepped(found, HERE)), HERE)
    known = replace(found.status.credentials, former_clients=clients)
    return replace(found, status=replace(found.status, credentials=known))


def phase_of(found: VirtualControlPlane) -> tuple[RotationPhase, int, int]:
    """Return the phase and the generations that are to be in force."""
    known = found.status.credentials
    return known.phase, known.users, known.authorities


def test_a_gradual_rotation_goes_on_when_each_phase_is_in_force() -> None:
    """H04: and an operator that starts anew in between does the same."""
    found = stepped(plane("Gradual@1"), HERE)
    assert phase_of(found) == (RotationPhase.PREPARING, 0, 0)
    assert rotation.is_pending(found)
    assert rotation.step(found, HERE, NOW).status is None
    found = stepped(settled(found), HERE)
    assert phase_of(found) == (RotationPhase.ISSUING, 1, 1)
    assert rotation.step(found, HERE, NOW).status is None
    found = stepped(settled(found), HERE)
    assert found.status.credentials.issued == rfc3339(NOW)
    assert rotation.step(found, HERE, NOW + OVERLAP - dt.timedelta(seconds=1), has_reported=True).status is None
    found = stepped(found, HERE, NOW + OVERLAP)
    assert phase_of(found) == (RotationPhase.NONE, 1, 1)
    assert rotation.is_pending(found)
    assert rotation.step(settled(found), HERE, NOW + OVERLAP, has_reported=True).status is None


@pytest.mark.parametrize(
    ("last", "ends"),
    [(LastRotationPhase.PREPARING, RotationPhase.PREPARING), (LastRotationPhase.ISSUING, RotationPhase.ISSUING)],
)
def test_a_gradual_rotation_stops_where_it_is_to(last: LastRotationPhase, ends: RotationPhase) -> None:
    """H04: and goes on when the last phase is changed."""
    found = asked(plane(), "Gradual@1", last)
    while rotation.step(found, HERE, NOW).status is not None:
        found = settled(stepped(found, HERE))
    assert found.status.credentials.phase is ends
    assert rotation.step(found, HERE, NOW + 10 * OVERLAP, has_reported=True).status is None
    found = asked(found, "Gradual@1", LastRotationPhase.COMPLETING)
    while rotation.step(found, HERE, NOW + 10 * OVERLAP, has_reported=True).status is not None:
        found = settled(stepped(found, HERE, NOW + 10 * OVERLAP))
        if found.status.credentials.phase is RotationPhase.NONE:
            return
    assert ends is RotationPhase.PREPARING  # it has just begun to issue, and tokens of before live on


def test_it_does_not_complete_while_a_client_uses_a_certificate_of_before() -> None:
    """H04: each is named, with the last use; forced by a request, it completes."""
    end = NOW + OVERLAP
    active = FormerClient(user="system:node:n-1", last=rfc3339(end - dt.timedelta(seconds=QUIET - 1)))
    found = issuing(active)
    assert rotation.remaining(found, end) == (f"node 'n-1', last at {active.last}",)
    assert rotation.step(found, HERE, end, has_reported=True).status is None
    quiet = end + dt.timedelta(seconds=1)
    assert rotation.step(found, HERE, quiet, has_reported=True).status is not None
    assert rotation.step(found, HERE, quiet, has_reported=False).status is None, "what is recorded may be old"
    forced = stepped(asked(found, "Complete@2"), HERE, NOW + dt.timedelta(hours=1))
    assert phase_of(forced) == (RotationPhase.NONE, 1, 1)
    assert forced.status.credentials.former_clients == ()


def test_a_rotation_that_only_prepares_is_not_completed() -> None:
    """H04: no client has credentials yet that would be trusted afterwards, so that it issues them first."""
    found = settled(stepped(asked(plane(), "Gradual@1", LastRotationPhase.PREPARING), HERE))
    assert phase_of(found) == (RotationPhase.PREPARING, 0, 0)
    found = stepped(asked(found, "Complete@2"), HERE, NOW + dt.timedelta(hours=1))
    assert phase_of(found) == (RotationPhase.ISSUING, 1, 1)
    # Once in force, it stays there: the request is handled.
    done = settled(stepped(settled(found), HERE), NOW + dt.timedelta(hours=1))
    assert rotation.step(done, HERE, NOW + dt.timedelta(hours=2), has_reported=True).status is None
    forced = stepped(asked(done, "Complete@3"), HERE, NOW + dt.timedelta(hours=2))
    assert phase_of(forced) == (RotationPhase.NONE, 1, 1)


@pytest.mark.parametrize("request_", ["Users@2", "All@2"])
def test_another_replacement_ends_the_phases(request_: str) -> None:
    """H04: a kubeconfig that is to be worth nothing must not be trusted for a day longer."""
    found = stepped(asked(issuing(), request_), HERE, NOW + dt.timedelta(minutes=1))
    assert phase_of(found) == (RotationPhase.NONE, 2, 2 if request_.startswith("All") else 1)


def test_clients_are_noted_by_their_last_use() -> None:
    """H04: those of an earlier process, too; active ones cause few writes, and those that are quiet are dropped."""

    def at(seconds: int) -> dt.datetime:
        return NOW + dt.timedelta(seconds=seconds)

    known = (FormerClient(user="a", last=rfc3339(at(0))), FormerClient(user="b", last=rfc3339(at(0))))
    reported = (FormerUse(user="a", last=at(59)), FormerUse(user="c", last=at(10)))
    told = rotation.noted(known, reported, QUIET, at(60))
    assert told == (*known, FormerClient(user="c", last=rfc3339(at(10))))
    assert rotation.noted(known, (FormerUse(user="a", last=at(60)),), QUIET, at(60))[0].last == rfc3339(at(60))
    assert [each.user for each in rotation.noted(told, (), QUIET, at(QUIET + 5))] == ["c"]

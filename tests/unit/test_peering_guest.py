"""L05: what the guest half of a PeerCluster becomes, and what a PeerCluster reports."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import Condition, ConditionStatus, Json, ObjectMeta, OwnerReference
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.peercluster import PEERS_NAMESPACE, PeerCluster, PeerClusterSpec, PeerGuest, PeerHost
from tenantry.api.quota import Quota
from tenantry.api.tenant import Tenant, TenantSpec, TenantStatus
from tenantry.controllers.peering import status
from tenantry.controllers.peering.guests import guest
from tenantry.controllers.peering.status import GuestState, HostState
from tenantry.engine.conditions import Wanted
from tenantry.engine.plan import Blocked

NOW = "2027-01-01T00:00:00Z"
HALF = PeerGuest(quota=Quota(hard={"cpu": "4"}), max_namespaces=7)


def peer(*, host: bool = False) -> PeerCluster:
    """Return a PeerCluster with a guest half."""
    half = PeerHost(server="https://a:1", ca="", guest="home", credentials_secret_name="s")
    spec = PeerClusterSpec(guest=HALF, host=half) if host else PeerClusterSpec(guest=HALF)
    return PeerCluster(metadata=ObjectMeta(name="home", uid="p1", generation=2), spec=spec)


def tenant(owner: str, *, is_ready: bool = False) -> Tenant:
    """Return the Tenant of the home."""
    reference = OwnerReference(api_version="v1", kind="PeerCluster", name="home", uid=owner)
    ready = Condition(
        type=reasons.READY,
        status=ConditionStatus.TRUE if is_ready else ConditionStatus.FALSE,
        reason="Any",
        message="said",
        last_transition_time=NOW,
    )
    return Tenant(
        metadata=ObjectMeta(name="peer-home", owner_references=(reference,)),
        spec=TenantSpec(owners=(Owner(kind=OwnerKind.USER, name="ada"),)),
        status=TenantStatus(conditions=(ready,)),
    )


def test_a_guest_is_a_tenant_whose_owner_is_an_account_that_another_one_renews() -> None:
    made: dict[tuple[str, str], Json] = {
        (resource.kind, value["metadata"]["name"]): value for resource, value in guest.objects(peer(), HALF)
    }
    assert set(made) == {
        ("ServiceAccount", "home"),
        ("ServiceAccount", "home-renew"),
        ("Role", "home-renew"),
        ("RoleBinding", "home-renew"),
        ("Lease", "home"),
        ("Role", "home"),
        ("RoleBinding", "home"),
        ("Tenant", "peer-home"),
    }
    spec = made["Tenant", "peer-home"]["spec"]
    assert spec["owners"] == [{"kind": "ServiceAccount", "name": "home", "namespace": PEERS_NAMESPACE}]
    assert spec["quota"] == {"hard": {"cpu": "4"}}
    assert spec["namespaces"]["maxCount"] == 7
    (rule,) = made["Role", "home-renew"]["rules"]
    # The renewer may do nothing else, and the working account may not renew itself.
    assert (rule["resources"], rule["verbs"]) == (["serviceaccounts/token"], ["create"])
    assert sorted(rule["resourceNames"]) == ["home", "home-renew"]
    assert [each["name"] for each in made["RoleBinding", "home-renew"]["subjects"]] == ["home-renew"]
    # The model reads what is written, and all of it ends with the PeerCluster.
    msgspec.convert(spec, TenantSpec)
    for value in made.values():
        assert [each["uid"] for each in value["metadata"]["ownerReferences"]] == ["p1"]


def test_a_tenant_of_another_client_is_left_alone() -> None:
    assert guest.foreign(peer(), None) is None
    assert guest.foreign(peer(), tenant("p1")) is None
    found = guest.foreign(peer(), tenant("other"))
    assert found is not None
    assert found.reason == reasons.NAME_TAKEN
    assert "'peer-home'" in found.message


def test_a_guest_is_served_once_its_tenant_is_ready() -> None:
    assert guest.unready(tenant("p1", is_ready=True)) is None
    waiting = guest.unready(tenant("p1"))
    assert waiting is not None
    assert "said" in waiting.message
    assert guest.unready(None) is not None


AWAY = Blocked(reason=reasons.UNREACHABLE, message="refused", passing=True)
READY = HostState(cluster_id="c", version="v1.36.3", answers=True, has_node=True)


@pytest.mark.parametrize(
    ("problem", "host", "reason"),
    [
        (None, None, reasons.ESTABLISHED),
        (Blocked(reason=reasons.NAME_TAKEN, message="taken"), READY, reasons.NAME_TAKEN),
        (None, READY, reasons.ESTABLISHED),
        (
            None,
            HostState(failure=AWAY),
            reasons.UNREACHABLE,
        ),
        (None, HostState(answers=True), reasons.PROGRESSING),
    ],
)
def test_a_peer_is_ready_if_both_halves_are(problem: Blocked | None, host: HostState | None, reason: str) -> None:
    found = status.compute(peer(host=host is not None), GuestState(problem=problem), host, NOW)
    conditions = {each.type: each for each in found.conditions}
    assert conditions[reasons.READY].reason == reason
    assert (conditions[reasons.READY].status is ConditionStatus.TRUE) == (reason == reasons.ESTABLISHED)
    assert (reasons.REACHABLE in conditions) == (host is not None)
    if host is not None and host.failure:
        assert "refused" in conditions[reasons.REACHABLE].message
    assert found.observed_generation == 2


@pytest.mark.parametrize(
    ("allowed", "known", "before", "expected", "kept"),
    [
        (("vault", "own"), ("vault",), (), ("vault",), "'own'"),
        (("vault",), ("vault",), ("bank",), ("vault",), ""),
        # Until the link knows: what went there before, if it is still allowed.
        (("vault", "own"), None, ("vault", "bank"), ("vault",), ""),
        ((), None, ("vault",), (), ""),
        ((), ("vault",), ("vault",), (), ""),
    ],
)
def test_a_peer_reports_the_audiences_whose_tokens_go_there(
    allowed: tuple[str, ...],
    known: tuple[str, ...] | None,
    before: tuple[str, ...],
    expected: tuple[str, ...],
    kept: str,
) -> None:
    found = peer(host=True)
    half = found.spec.host
    assert isinstance(half, PeerHost)
    spec = replace(found.spec, host=replace(half, token_audiences=allowed))
    found = replace(found, spec=spec, status=replace(found.status, token_audiences=before))
    made = status.compute(found, GuestState(), replace(READY, audiences=known), NOW)
    assert made.token_audiences == expected
    (words,) = [each.message for each in made.conditions if each.type == reasons.READY]
    assert ("stay here" in words and kept in words) if kept else "stay here" not in words


def test_a_failure_that_does_not_pass_is_stalled() -> None:
    failure = Blocked(reason=reasons.PEER_CHANGED, message="another cluster")
    found = status.compute(peer(host=True), GuestState(), HostState(failure=failure), NOW)
    conditions = {each.type: each.reason for each in found.conditions}
    assert conditions[reasons.STALLED] == conditions[reasons.READY] == reasons.PEER_CHANGED
    assert reasons.RECONCILING not in conditions


@pytest.mark.parametrize(
    ("reason", "trouble"),
    [(reasons.TUNNEL_CLOSED, reasons.RECONCILING), (reasons.TUNNEL_REFUSED, reasons.STALLED), ("", "")],
)
def test_a_home_is_served_only_if_it_has_its_tunnel_to_this_cluster(reason: str, trouble: str) -> None:
    tunnel = Wanted(reasons.TUNNEL_OPEN, not reason, reason or reasons.ESTABLISHED, "words of the tunnel")
    found = status.compute(peer(host=False), GuestState(tunnel=tunnel), None, NOW)
    conditions = {each.type: each for each in found.conditions}
    assert conditions[reasons.READY].reason == (reason or reasons.ESTABLISHED)
    assert ("words of the tunnel" in conditions[reasons.READY].message) == bool(reason)
    assert {reasons.RECONCILING, reasons.STALLED} & set(conditions) == ({trouble} if trouble else set())


def test_a_silent_peer_keeps_what_was_known_of_it() -> None:
    known = status.compute(peer(host=True), GuestState(), READY, NOW)
    found = msgspec.structs.replace(peer(host=True), status=known)
    silent = status.compute(found, GuestState(), HostState(failure=AWAY), NOW)
    assert (silent.cluster_id, silent.version) == ("c", "v1.36.3")

"""L02, L04: which namespaces exist at which peer, and what a NamespaceOffloading reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from tenantry.api import reasons
from tenantry.api.model import ConditionStatus, ObjectMeta
from tenantry.api.offloading import (
    OFFLOADING,
    DesiredNamespace,
    MappedNamespace,
    MapPhase,
    NamespaceMap,
    NamespaceMapStatus,
    NamespaceOffloading,
    NamespaceOffloadingSpec,
)
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import MAX_NAME
from tenantry.api.tenant import Federation, Isolation, Tenant, TenantQuota, TenantSpec
from tenantry.controllers.offloading import desired
from tenantry.controllers.offloading.desired import OffloadingInputs
from tenantry.world.naming import peer_name

NOW = "2027-01-01T00:00:00Z"
PEER = "berlin"


def offloading(namespace: str, *peers: str, deleted: bool = False, cpu: str = "") -> NamespaceOffloading:
    """Return a NamespaceOffloading."""
    meta = ObjectMeta(name=OFFLOADING, namespace=namespace, generation=3, deletion_timestamp=NOW if deleted else "")
    spec = NamespaceOffloadingSpec(peers=peers, quota=Quota(hard={"cpu": cpu} if cpu else {}))
    return NamespaceOffloading(metadata=meta, spec=spec)


def tenant(*peers: str, cpu: str = "") -> Tenant:
    """Return a Tenant that may use peers."""
    owner = Owner(kind=OwnerKind.USER, name="ada")
    quota = TenantQuota(hard={"cpu": cpu} if cpu else {})
    spec = TenantSpec(owners=(owner,), isolation=Isolation(federation=Federation(peers=peers)), quota=quota)
    return Tenant(metadata=ObjectMeta(name="acme"), spec=spec)


def inputs(
    *found: NamespaceOffloading,
    tenants: Mapping[str, Tenant] | None = None,
    occupied: Collection[str] = (),
    before: Mapping[str, DesiredNamespace] | None = None,
    is_open: bool = True,
) -> OffloadingInputs:
    """Return what decides about one peer; every namespace is of a tenant that may use it."""
    allowed = {each.metadata.namespace: tenant(PEER) for each in found}
    return OffloadingInputs(
        peer=PEER,
        is_open=is_open,
        offloadings=found,
        tenants=allowed if tenants is None else tenants,
        occupied=occupied,
        before=before or {},
    )


def test_a_namespace_exists_at_the_peers_that_it_names_and_that_its_tenant_may_use() -> None:
    found = (offloading("shop", PEER, cpu="2"), offloading("stock", "paris"), offloading("mail", PEER))
    allowed = {"shop": tenant(PEER), "stock": tenant(PEER), "mail": tenant("paris")}
    wanted = desired.wanted(inputs(*found, tenants=allowed))
    assert wanted == {"shop": DesiredNamespace(name="shop", hard={"cpu": "2"})}


@pytest.mark.parametrize("case", ["deleted", "closed", "no tenant", "not allowed"])
def test_a_namespace_leaves_when_nothing_wants_it_and_stays_while_pods_are_there(case: str) -> None:
    before = {"shop": DesiredNamespace(name="shop")}
    found = offloading("shop", PEER, deleted=case == "deleted")
    tenants = {} if case == "no tenant" else {"shop": tenant("paris" if case == "not allowed" else PEER)}
    left = inputs(found, tenants=tenants, before=before, is_open=case != "closed")
    assert desired.leaving(left) == ["shop"]
    assert desired.wanted(left) == {}
    occupied = inputs(found, tenants=tenants, before=before, is_open=case != "closed", occupied=["shop"])
    # No further pods are sent meanwhile: what is evicted is replaced.
    assert desired.wanted(occupied) == {"shop": DesiredNamespace(name="shop", leaving=True)}


@pytest.mark.parametrize(("share", "whole", "is_refused"), [("2", "1", True), ("1", "1", False), ("2", "", False)])
def test_a_share_above_the_quota_of_the_tenant_is_refused(share: str, whole: str, *, is_refused: bool) -> None:
    found = offloading("shop", PEER, cpu=share)
    owned = tenant(PEER, cpu=whole)
    assert (desired.wanted(inputs(found, tenants={"shop": owned})) == {}) == is_refused
    ready = desired.status(found, owned, {}, [PEER], NOW).conditions[0]
    assert (ready.reason == reasons.INVALID_SPEC) == is_refused
    assert ("requests.cpu" in ready.message) == is_refused
    # What runs there already keeps the share that it has.
    before = {"shop": DesiredNamespace(name="shop", hard={"cpu": "1"})}
    kept = inputs(found, tenants={"shop": owned}, before=before)
    assert desired.leaving(kept) == []
    assert desired.wanted(kept) == (
        before if is_refused else {"shop": DesiredNamespace(name="shop", hard={"cpu": share})}
    )


def map_of(phase: MapPhase, message: str = "") -> NamespaceMap:
    """Return the NamespaceMap of the peer."""
    entry = MappedNamespace(peer_namespace="shop-1", uid="u1", phase=phase, message=message)
    return NamespaceMap(metadata=ObjectMeta(name=PEER), status=NamespaceMapStatus(current={"shop": entry}))


@pytest.mark.parametrize(
    ("maps", "peers", "may_use", "reason", "words"),
    [
        ({PEER: map_of(MapPhase.ACCEPTED)}, [PEER], True, reasons.ESTABLISHED, "all peers"),
        ({PEER: map_of(MapPhase.REFUSED, "no room")}, [PEER], True, reasons.PEER_REFUSED, "no room"),
        ({PEER: map_of(MapPhase.LOST)}, [PEER], True, reasons.PROGRESSING, "Lost"),
        ({}, [PEER], True, reasons.PROGRESSING, "Creating"),
        ({}, [], True, reasons.NO_PEER, "spec.host"),
        ({}, [PEER], False, reasons.PEER_NOT_ALLOWED, "spec.isolation.federation.peers"),
    ],
)
def test_a_namespace_offloading_reports_what_a_peer_says_and_what_to_do(
    maps: Mapping[str, NamespaceMap], peers: Collection[str], *, may_use: bool, reason: str, words: str
) -> None:
    found = offloading("shop", PEER)
    status = desired.status(found, tenant(PEER) if may_use else tenant(), maps, peers, NOW)
    ready = status.conditions[0]
    assert (ready.type, ready.reason) == (reasons.READY, reason)
    assert (ready.status is ConditionStatus.TRUE) == (reason == reasons.ESTABLISHED)
    assert words in ready.message
    assert [each.name for each in status.clusters] == [PEER]
    assert status.observed_generation == 3


def test_a_peer_that_is_not_named_any_more_is_shown_until_its_namespace_is_gone() -> None:
    status = desired.status(offloading("shop", "paris"), tenant("paris"), {PEER: map_of(MapPhase.TERMINATING)}, [], NOW)
    assert [(each.name, each.phase) for each in status.clusters] == [(PEER, "Terminating"), ("paris", "NoPeer")]


def test_names_at_a_peer_fit_a_subnamespace_and_no_user_can_choose_that_of_another_namespace() -> None:
    short, long = "a" * 45, "a" * 63
    assert peer_name(short) == short
    cut = peer_name(long)
    assert len(cut) == MAX_NAME
    # A namespace that has the name which another one gets: it gets another one itself.
    assert peer_name(cut) != cut
    assert len({peer_name(f"{'a' * 50}{number}") for number in range(50)}) == 50

"""L02, L03, L04: which namespaces exist at which peer, how they are marked, and what a NamespaceOffloading reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.model import ConditionStatus, ObjectMeta
from tenantry.api.offloading import (
    DEFAULTED,
    MOST_BYTES,
    MOST_KEYS,
    MOST_NAMESPACES,
    OFFLOADING,
    ClusterSelector,
    ClusterSelectorTerm,
    DesiredNamespace,
    MappedNamespace,
    MapPhase,
    MappingStrategy,
    NamespaceMap,
    NamespaceMapSpec,
    NamespaceMapStatus,
    NamespaceOffloading,
    NamespaceOffloadingSpec,
    OffloadingPhase,
    PodStrategy,
)
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.peercluster import PEER as PEER_LABEL
from tenantry.api.quota import Quantity, Quota
from tenantry.api.slice import SelectorOperator, SelectorRequirement
from tenantry.api.subnamespace import MAX_NAME
from tenantry.api.tenancydefaults import FederationDefaults
from tenantry.api.tenant import Federation, Isolation, Tenant, TenantQuota, TenantSpec
from tenantry.controllers.evictions import deletion, eviction
from tenantry.controllers.offloading import desired, leaving, status
from tenantry.controllers.offloading.desired import OffloadingInputs
from tenantry.controllers.offloading.leaving import PATIENCE_SECONDS, BoundPod
from tenantry.controllers.peering.link.labels import selectable
from tenantry.engine.plan import Blocked
from tenantry.engine.request import ApiRequest
from tenantry.world.naming import peer_name, workspace_name

NOW = "2027-01-01T00:00:00Z"
PEER = "berlin"
REGION = "topology.kubernetes.io/region"


def requirement(key: str, operator: SelectorOperator, *values: str) -> SelectorRequirement:
    """Return one expression of a selector."""
    return SelectorRequirement(key=key, operator=operator, values=values)


HAS_REGION, HAS_GPU = (requirement(each, SelectorOperator.EXISTS) for each in (REGION, "gpu"))


def selector(*terms: Collection[SelectorRequirement]) -> ClusterSelector:
    """Return a selector of peers."""
    return ClusterSelector(
        node_selector_terms=tuple(ClusterSelectorTerm(match_expressions=tuple(each)) for each in terms)
    )


def offloading(namespace: str, *peers: str, deleted: bool = False, cpu: str = "") -> NamespaceOffloading:
    """Return a NamespaceOffloading that selects peers by their names, or all."""
    meta = ObjectMeta(name=OFFLOADING, namespace=namespace, generation=3, deletion_timestamp=NOW if deleted else "")
    named = selector([requirement(PEER_LABEL, SelectorOperator.IN, *peers)]) if peers else UNSET
    spec = NamespaceOffloadingSpec(cluster_selector=named, quota=Quota(hard={"cpu": cpu} if cpu else {}))
    return NamespaceOffloading(metadata=meta, spec=spec)


def tenant(*peers: str, cpu: str = "", name: str = "acme") -> Tenant:
    """Return a Tenant that may use peers."""
    owner = Owner(kind=OwnerKind.USER, name="ada")
    quota = TenantQuota(hard={"cpu": cpu} if cpu else {})
    spec = TenantSpec(owners=(owner,), isolation=Isolation(federation=Federation(peers=peers)), quota=quota)
    return Tenant(metadata=ObjectMeta(name=name, uid=f"{name}-uid"), spec=spec)


def entry(name: str, tenant_name: str = "acme", **hard: str) -> DesiredNamespace:
    """Return the entry of a namespace in the NamespaceMap."""
    workspace = workspace_name(tenant_name, f"{tenant_name}-uid")
    return DesiredNamespace(name=name, tenant=tenant_name, workspace=workspace, hard=hard)


def named(*names: str) -> dict[str, dict[str, str]]:
    """Return peers without further labels."""
    return {name: selectable(name, {}) for name in names}


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
        labels=selectable(PEER, {}) if is_open else None,
        offloadings=found,
        tenants=allowed if tenants is None else tenants,
        occupied=occupied,
        before=before or {},
    )


def test_a_namespace_exists_at_the_peers_that_it_selects_and_that_its_tenant_may_use() -> None:
    found = (
        offloading("shop", PEER, cpu="2"),
        offloading("stock", "paris"),
        offloading("mail", PEER),
        offloading("all"),
    )
    allowed = {"shop": tenant(PEER), "stock": tenant(PEER), "mail": tenant("paris"), "all": tenant(PEER)}
    wanted = desired.wanted(inputs(*found, tenants=allowed))
    assert wanted == {"shop": entry("shop", cpu="2"), "all": entry("all")}


@pytest.mark.parametrize(
    ("labels", "terms", "is_selected"),
    [
        ({REGION: "eu"}, [[requirement(REGION, SelectorOperator.IN, "eu", "us")]], True),
        ({REGION: "asia"}, [[requirement(REGION, SelectorOperator.IN, "eu", "us")]], False),
        ({}, [[requirement(REGION, SelectorOperator.NOT_IN, "eu")]], True),
        ({REGION: "eu"}, [[requirement(REGION, SelectorOperator.NOT_IN, "eu")]], False),
        ({REGION: "eu"}, [[requirement(REGION, SelectorOperator.EXISTS)]], True),
        ({}, [[requirement(REGION, SelectorOperator.DOES_NOT_EXIST)]], True),
        # All expressions of a term, and one of the terms.
        (
            {REGION: "eu"},
            [[requirement(REGION, SelectorOperator.EXISTS), requirement("gpu", SelectorOperator.EXISTS)]],
            False,
        ),
        (
            {REGION: "eu"},
            [[requirement("gpu", SelectorOperator.EXISTS)], [requirement(REGION, SelectorOperator.EXISTS)]],
            True,
        ),
    ],
)
def test_a_selector_has_the_meaning_of_node_selector_terms(
    labels: Mapping[str, str], terms: list[list[SelectorRequirement]], *, is_selected: bool
) -> None:
    found = replace(offloading("shop"), spec=NamespaceOffloadingSpec(cluster_selector=selector(*terms)))
    assert desired.selects(found, selectable(PEER, labels)) == is_selected


def test_the_choice_of_a_name_reaches_the_map() -> None:
    found = offloading("shop")
    same = replace(found, spec=replace(found.spec, mapping_strategy=MappingStrategy.ENFORCE_SAME_NAME))
    assert desired.wanted(inputs(same))["shop"].mapping_strategy is MappingStrategy.ENFORCE_SAME_NAME


@pytest.mark.parametrize("case", ["deleted", "closed", "no tenant", "not allowed", "not selected"])
def test_a_namespace_leaves_when_nothing_wants_it_and_stays_while_pods_are_there(case: str) -> None:
    before = {"shop": DesiredNamespace(name="shop")}
    found = offloading("shop", "paris" if case == "not selected" else PEER, deleted=case == "deleted")
    tenants = {} if case == "no tenant" else {"shop": tenant("paris" if case == "not allowed" else PEER)}
    left = inputs(found, tenants=tenants, before=before, is_open=case != "closed")
    assert desired.leaving(left) == ["shop"]
    assert desired.wanted(left) == {}
    occupied = inputs(found, tenants=tenants, before=before, is_open=case != "closed", occupied=["shop"])
    # No further pods are sent meanwhile: what is evicted is replaced.
    assert desired.wanted(occupied) == {"shop": DesiredNamespace(name="shop", leaving=True)}


def test_a_namespace_that_moves_to_another_tenant_leaves_the_workspace_of_the_one_before_first() -> None:
    before = {"shop": entry("shop", cpu="1")}
    moved = {"shop": tenant(PEER, name="umbra")}
    found = offloading("shop", PEER, cpu="1")
    busy = inputs(found, tenants=moved, before=before, occupied=["shop"])
    assert desired.leaving(busy) == ["shop"]
    assert desired.wanted(busy) == {"shop": replace(before["shop"], leaving=True)}
    assert desired.wanted(inputs(found, tenants=moved, before=before)) == {}
    assert desired.wanted(inputs(found, tenants=moved)) == {"shop": entry("shop", "umbra", cpu="1")}


def test_two_tenants_of_one_name_have_two_workspaces_at_a_peer_and_names_fit() -> None:
    long = "a" * 63
    assert len({workspace_name(long, uid) for uid in ("u1", "u2")}) == 2
    assert all(len(workspace_name(each, "u1")) <= MAX_NAME for each in (long, "a", f"{'a' * 28}-{'a' * 20}"))
    assert "--" not in workspace_name(f"{'a' * 28}-{'a' * 20}", "u1")


@pytest.mark.parametrize(("share", "whole", "is_refused"), [("2", "1", True), ("1", "1", False), ("2", "", False)])
def test_a_share_above_the_quota_of_the_tenant_is_refused(share: str, whole: str, *, is_refused: bool) -> None:
    found = offloading("shop", PEER, cpu=share)
    owned = tenant(PEER, cpu=whole)
    assert (desired.wanted(inputs(found, tenants={"shop": owned})) == {}) == is_refused
    ready = status.compute(found, owned, {}, named(PEER), NOW).conditions[0]
    assert (ready.reason == reasons.INVALID_SPEC) == is_refused
    assert ("requests.cpu" in ready.message) == is_refused
    # What runs there already keeps the share that it has.
    before = {"shop": entry("shop", cpu="1")}
    kept = inputs(found, tenants={"shop": owned}, before=before)
    assert desired.leaving(kept) == []
    assert desired.wanted(kept) == (before if is_refused else {"shop": entry("shop", cpu=share)})


def test_a_map_never_outgrows_its_object_and_those_that_are_there_keep_their_places() -> None:
    long: dict[str, Quantity] = {f"requests.example.com/{'g' * 60}{number}": "9" * 60 for number in range(MOST_KEYS)}
    every = [
        replace(offloading(f"n{number:04}"), spec=NamespaceOffloadingSpec(quota=Quota(hard=long)))
        for number in range(900)
    ]
    before = {"n0899": DesiredNamespace(name="n0899")}
    wanted = desired.wanted(inputs(*every, before=before))
    assert "n0899" in wanted
    sizes = [desired.size(namespace, each) for namespace, each in wanted.items()]
    assert len(every) > len(wanted) > 100
    assert sum(sizes) <= MOST_BYTES
    assert not desired.has_room(wanted, every[800], tenant(PEER))
    full = replace(mapped(), spec=NamespaceMapSpec(desired=wanted))
    report = status.compute(every[800], tenant(PEER), {PEER: full}, named(PEER), NOW)
    assert report.conditions[0].reason == reasons.LIMIT_REACHED
    short = [offloading(f"n{number:04}") for number in range(MOST_NAMESPACES + 1)]
    assert len(desired.wanted(inputs(*short))) == MOST_NAMESPACES


def mapped(*namespaces: str, phase: MapPhase = MapPhase.ACCEPTED, message: str = "") -> NamespaceMap:
    """Return the NamespaceMap of the peer."""
    there = "" if phase is MapPhase.REFUSED else "shop-1"
    entry = MappedNamespace(peer_namespace=there, uid="u1", phase=phase, message=message)
    return NamespaceMap(
        metadata=ObjectMeta(name=PEER),
        spec=NamespaceMapSpec(desired={each: DesiredNamespace(name=each) for each in namespaces}),
        status=NamespaceMapStatus(current=dict.fromkeys(namespaces, entry)),
    )


REFUSED = mapped("shop", phase=MapPhase.REFUSED, message="no room")


@pytest.mark.parametrize(
    ("maps", "peers", "may_use", "reason", "words"),
    [
        ({PEER: mapped("shop")}, [PEER], [PEER], reasons.ESTABLISHED, "all selected peers"),
        (
            {PEER: mapped("shop", phase=MapPhase.REFUSED, message="no room")},
            [PEER],
            [PEER],
            reasons.PEER_REFUSED,
            "no room",
        ),
        ({PEER: mapped("shop", phase=MapPhase.LOST)}, [PEER], [PEER], reasons.PROGRESSING, "Lost"),
        ({}, [PEER], [PEER], reasons.PROGRESSING, "Creating"),
        ({}, [], [PEER], reasons.NO_PEER, "spec.host"),
        ({}, [PEER], [], reasons.PEER_NOT_ALLOWED, "spec.isolation.federation.peers"),
        ({}, [PEER, "paris"], ["paris"], reasons.NO_CLUSTER_SELECTED, "spec.clusterSelector"),
    ],
)
def test_a_namespace_offloading_reports_what_a_peer_says_and_what_to_do(
    maps: Mapping[str, NamespaceMap], peers: Collection[str], may_use: Collection[str], reason: str, words: str
) -> None:
    found = offloading("shop", PEER)
    report = status.compute(found, tenant(*may_use), maps, named(*peers), NOW)
    ready = report.conditions[0]
    assert (ready.type, ready.reason) == (reasons.READY, reason)
    assert (ready.status is ConditionStatus.TRUE) == (reason == reasons.ESTABLISHED)
    assert words in ready.message
    assert [each.name for each in report.clusters] == ([PEER] if PEER in may_use else [])
    assert report.observed_generation == 3


def test_tenants_learn_of_no_peers_that_they_may_not_use() -> None:
    report = status.compute(offloading("shop"), tenant("paris"), {}, named(PEER, "paris"), NOW)
    assert [each.name for each in report.clusters] == ["paris"]
    assert PEER not in report.conditions[0].message


@pytest.mark.parametrize(
    ("selected", "may_use", "peers", "deleted", "phase"),
    [
        ("paris", [PEER, "paris"], [PEER, "paris"], False, OffloadingPhase.TERMINATING),
        (PEER, ["paris"], [PEER, "paris"], False, OffloadingPhase.NOT_ALLOWED),
        (PEER, [PEER], ["paris"], False, OffloadingPhase.NO_PEER),
        (PEER, [PEER], [PEER], True, OffloadingPhase.TERMINATING),
    ],
)
def test_a_peer_that_is_not_selected_any_more_is_shown_until_its_namespace_is_gone(
    selected: str, may_use: Collection[str], peers: Collection[str], phase: OffloadingPhase, *, deleted: bool
) -> None:
    found = offloading("shop", selected, deleted=deleted)
    report = status.compute(found, tenant(*may_use), {PEER: mapped("shop")}, named(*peers), NOW)
    assert {each.name: each.phase for each in report.clusters}[PEER] is phase


def test_every_phase_of_a_map_is_one_of_a_namespace_offloading() -> None:
    assert {each.value for each in MapPhase} <= {each.value for each in OffloadingPhase}


# -- marks of the namespace -----------------------------------------------------------------------


def with_strategy(strategy: PodStrategy, *peers: str, deleted: bool = False) -> NamespaceOffloading:
    found = offloading("shop", *peers, deleted=deleted)
    return replace(found, spec=replace(found.spec, pod_strategy=strategy))


MAPS = {PEER: mapped("shop"), "rome": mapped("shop", phase=MapPhase.REFUSED)}


@pytest.mark.parametrize(
    ("found", "may_use", "expected"),
    [
        (with_strategy(PodStrategy.LOCAL), [PEER], {marks.POD_STRATEGY: "Local"}),
        # Also a peer that has not answered yet.
        (
            with_strategy(PodStrategy.REMOTE),
            [PEER, "paris"],
            {marks.POD_STRATEGY: "Remote", marks.PEERS: "berlin,paris"},
        ),
        (
            with_strategy(PodStrategy.LOCAL_AND_REMOTE, PEER),
            [PEER, "paris"],
            {marks.POD_STRATEGY: "LocalAndRemote", marks.PEERS: "berlin"},
        ),
        # Rome refuses the namespace: a pod waits for it only if it runs nowhere else.
        (with_strategy(PodStrategy.LOCAL_AND_REMOTE), ["rome"], {marks.POD_STRATEGY: "LocalAndRemote"}),
        (with_strategy(PodStrategy.REMOTE), ["rome"], {marks.POD_STRATEGY: "Remote", marks.PEERS: "rome"}),
        (with_strategy(PodStrategy.REMOTE), [], {marks.POD_STRATEGY: "Remote"}),
        (with_strategy(PodStrategy.REMOTE, deleted=True), [PEER], {}),
        (None, [PEER], {}),
    ],
)
def test_a_namespace_is_marked_with_its_strategy_and_the_peers_that_its_pods_tolerate(
    found: NamespaceOffloading | None, may_use: Collection[str], expected: Mapping[str, str]
) -> None:
    assert desired.marked(found, tenant(*may_use), MAPS, named(PEER, "paris", "rome")) == expected


@pytest.mark.parametrize(
    ("may_use", "audiences", "expected"),
    [
        ([PEER], {PEER: ["vault", "bank"]}, "bank,vault"),
        ([PEER, "paris"], {PEER: ["vault", "bank"], "paris": ["vault"]}, "vault"),
        ([PEER, "paris"], {PEER: ["vault"], "paris": ["bank"]}, ""),
        ([PEER, "paris"], {PEER: ["vault"]}, ""),
        # One that is not selected does not count, nor does one that has no pods of the namespace.
        ([PEER], {PEER: ["vault"], "paris": []}, "vault"),
        ([], {PEER: ["vault"]}, ""),
    ],
)
def test_pods_get_tokens_for_the_audiences_of_all_peers_that_they_may_go_to(
    may_use: Collection[str], audiences: Mapping[str, Collection[str]], expected: str
) -> None:
    found = with_strategy(PodStrategy.REMOTE)
    marked = desired.marked(found, tenant(*may_use), MAPS, named(PEER, "paris", "rome"), audiences)
    assert marked.get(marks.AUDIENCES, "") == expected
    local = with_strategy(PodStrategy.LOCAL)
    assert marks.AUDIENCES not in desired.marked(local, tenant(*may_use), MAPS, named(PEER, "paris"), audiences)


def test_no_pod_tolerates_a_peer_at_which_its_namespace_gets_no_share() -> None:
    found = offloading("shop", cpu="2")
    assert desired.marked(found, tenant(PEER, cpu="1"), {}, named(PEER)) == {marks.POD_STRATEGY: "LocalAndRemote"}
    # With one that it has already, pods go on.
    kept = desired.marked(found, tenant(PEER, cpu="1"), {PEER: mapped("shop")}, named(PEER))
    assert kept[marks.PEERS] == PEER


def test_only_marks_that_differ_are_written_and_removed_when_nothing_wants_them() -> None:
    wished = {marks.POD_STRATEGY: "Remote", marks.PEERS: PEER, marks.AUDIENCES: "vault"}
    both = {marks.PEERS: PEER, marks.AUDIENCES: "vault"}
    assert desired.marking({}, {}, wished) == {"labels": {marks.POD_STRATEGY: "Remote"}, "annotations": both}
    there = ({marks.POD_STRATEGY: "Remote"}, both)
    assert desired.marking(*there, wished) == {}
    assert desired.marking({marks.POD_STRATEGY: "Remote"}, {marks.PEERS: PEER}, wished) == {
        "annotations": {marks.AUDIENCES: "vault"}
    }
    assert desired.marking(*there, {}) == {
        "labels": {marks.POD_STRATEGY: None},
        "annotations": {marks.PEERS: None, marks.AUDIENCES: None},
    }


def test_the_default_of_a_label_has_a_share_within_the_quota_of_the_tenant() -> None:
    made = desired.default("shop", tenant(cpu="500m"), FederationDefaults())
    assert made.metadata.labels == {DEFAULTED: "true"}
    assert made.spec.quota.hard == {"requests.cpu": "500m", "requests.memory": "1Gi", "pods": "10"}
    assert made.spec.pod_strategy is PodStrategy.LOCAL_AND_REMOTE


def test_a_share_that_the_tenant_cannot_give_is_reported() -> None:
    shared = replace(offloading("shop"), spec=replace(offloading("shop").spec, share=Quota(hard={"memory": "1Gi"})))
    found = status.compute(shared, tenant(PEER, cpu="1"), {PEER: mapped("shop")}, named(PEER), NOW)
    (ready,) = found.conditions
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, reasons.QUOTA_KEY_NOT_LIMITED)
    assert "spec.share.hard has requests.memory" in ready.message

    full = {PEER: Blocked(reason=reasons.LIMIT_REACHED, message="the tenant has 1024 shares at peers")}
    shared = replace(shared, spec=replace(shared.spec, share=Quota(hard={"cpu": "1"})))
    found = status.compute(shared, tenant(PEER, cpu="1"), {PEER: mapped("shop")}, named(PEER), NOW, short=full)
    assert (found.conditions[0].reason, "1024" in found.conditions[0].message) == (reasons.LIMIT_REACHED, True)


# -- pods that leave ------------------------------------------------------------------------------


def bound(*, sent: bool = True, deleting: bool = False, phase: str = "Running") -> BoundPod:
    """Return a pod on the Node of a peer."""
    conditions = (leaving.PodState(type=leaving.SENT, status="True"),) if sent else ()
    meta = ObjectMeta(name="web", namespace="shop", uid="u", deletion_timestamp=NOW if deleting else "")
    return BoundPod(metadata=meta, status=leaving.BoundStatus(phase=phase, conditions=conditions))


def request_of(subresource: str, grace: int | None) -> ApiRequest:
    """Return the request that ends the pod."""
    if subresource:
        return eviction("shop", "web", "u").request
    return deletion("shop", "web", "u", grace_period_seconds=grace).request


THERE = MappedNamespace(peer_namespace="shop-1", phase=MapPhase.ACCEPTED)


@pytest.mark.parametrize(
    ("pod", "known", "seconds", "expected"),
    [
        (bound(), THERE, 0.0, ("eviction", None)),
        (bound(), THERE, PATIENCE_SECONDS, ("", None)),
        # It never ran: the Node ends it once it is deleted.
        (bound(sent=False, phase="Pending"), THERE, 0.0, ("eviction", None)),
        (bound(deleting=True), THERE, 0.0, None),
        (bound(phase="Succeeded"), THERE, 0.0, None),
        # The namespace at the peer is gone, so that nothing else ends them.
        (bound(), None, 0.0, ("", 0)),
        (bound(deleting=True), None, 0.0, ("", 0)),
    ],
)
def test_pods_that_leave_a_peer_are_evicted_and_deleted_after_a_while(
    pod: BoundPod, known: MappedNamespace | None, seconds: float, expected: tuple[str, int | None] | None
) -> None:
    found = [each.request for each in leaving.departures([pod], known, seconds)]
    wanted = [] if expected is None else [request_of(*expected)]
    assert found == wanted


def test_names_at_a_peer_fit_a_subnamespace_and_no_user_can_choose_that_of_another_namespace() -> None:
    short, long = "a" * 45, "a" * 63
    assert peer_name(short) == short
    cut = peer_name(long)
    assert len(cut) == MAX_NAME
    # A namespace that has the name which another one gets: it gets another one itself.
    assert peer_name(cut) != cut
    assert len({peer_name(f"{'a' * 50}{number}") for number in range(50)}) == 50

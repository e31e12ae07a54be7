"""Whose hosts are."""

from __future__ import annotations

from collections import Counter
from itertools import count, islice
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.hostregister import HOST_PARTS, PARTS
from tenantry.api.policyparameters import size
from tenantry.world.hosts import (
    MOST_BYTES,
    MOST_OF_ONE,
    HostClash,
    HostHolder,
    HostUse,
    divided,
    is_wildcard,
    normal,
    part_of,
    register,
    zones_in,
)

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
TENANTS = st.sampled_from(["t1", "t2", "t3", ""])
HOSTS = st.sampled_from(["a.example", "b.example", "*.a.example", "c.a.example", "*.c.a.example", "*.example", "x"])
USES = st.lists(
    st.builds(
        HostUse,
        created=st.sampled_from([EARLY, LATE]),
        uid=st.uuids().map(str),
        kind=st.just("Ingress"),
        namespace=st.sampled_from(["one", "two", "infra"]),
        name=st.just("web"),
        zone=TENANTS,
        hosts=st.lists(HOSTS, max_size=4).map(normal),
    ),
    max_size=8,
)
BEFORE = st.dictionaries(HOSTS, TENANTS, max_size=4)


def use(uid: str, tenant: str, *hosts: str, created: str = EARLY) -> HostUse:
    return HostUse(created, uid, "Ingress", f"ns-{tenant}", "web", tenant, normal(hosts))


def overlap(one: str, other: str) -> bool:
    below = (is_wildcard(other) and one.endswith(other[1:])) or (is_wildcard(one) and other.endswith(one[1:]))
    return one == other or below


@given(USES, BEFORE)
def test_hosts_that_overlap_have_one_tenant(uses: list[HostUse], before: dict[str, str]) -> None:
    """E15, H06: for any history and any requests, no host has two tenants, and each belongs to a user of it."""
    holders = divided(uses, before).holders
    for host, holder in holders.items():
        assert any(host in each.hosts and each.zone == holder.zone for each in uses)
        for other, its in holders.items():
            assert its.zone == holder.zone or not overlap(host, other)


@given(USES, BEFORE)
def test_each_tenant_has_its_host_or_is_notified(uses: list[HostUse], before: dict[str, str]) -> None:
    """E15: an object has its host, or it is told so, and then another tenant has it or one that overlaps it."""
    division = divided(uses, before)
    told = {(clash.use.uid, clash.host) for clash in division.clashes}
    for each in uses:
        for host in each.hosts:
            others = [
                other for other, holder in division.holders.items() if overlap(host, other) and holder.zone != each.zone
            ]
            has_it = host in division.holders and division.holders[host].zone == each.zone
            assert has_it != bool(others)
            assert ((each.uid, host) in told) == bool(others)
    kept = {contest.host for contest in division.contests}
    # The other side is told of its own host, unless it is the cluster's.
    for clash in division.clashes:
        theirs = {host for host, holder in division.holders.items() if overlap(clash.host, host) and holder.zone}
        assert {host for host in theirs if division.holders[host].zone != clash.use.zone} <= kept
    for contest in division.contests:
        assert contest.keeps
        assert contest.use.zone == division.holders[contest.host].zone != ""
        assert any(
            overlap(clash.host, contest.host) and clash.use.zone != contest.use.zone for clash in division.clashes
        )


@given(USES, BEFORE, st.randoms())
def test_who_has_a_host_keeps_it(uses: list[HostUse], before: dict[str, str], random: Random) -> None:
    """E15: another operator, or the same one started again, comes to the same, in whatever order it sees objects."""
    division = divided(uses, before)
    other = list(uses)
    random.shuffle(other)
    assert divided(other, before) == division
    parts = register(division.holders)
    said = {host: tenant for entries in parts.values() for host, tenant in zones_in(entries).items()}
    assert said == {host: holder.zone for host, holder in division.holders.items()}
    assert divided(other, said) == division


def test_of_several_who_ask_at_once_the_oldest_object_counts() -> None:
    """E15: by the time of its creation, then by its uid."""
    young, old, other = (
        use("1", "young", "web.example", created=LATE),
        use("3", "old", "web.example"),
        use("4", "other", "*.example"),
    )
    division = divided([young, other, old], {})
    assert division.holders == {"web.example": HostHolder("old", "ns-old")}
    assert division.clashes == (HostClash(other, "*.example"), HostClash(young, "web.example"))


def test_an_older_object_takes_no_host_from_who_has_it() -> None:
    """E15: a host that is added to an old object is not older than the one that stands in the register."""
    old, young = use("1", "old", "web.example"), use("2", "young", "web.example", created=LATE)
    division = divided([old, young], {"web.example": "young"})
    assert division.holders == {"web.example": HostHolder("young", "ns-young")}
    assert division.clashes == (HostClash(old, "web.example"),)
    assert divided([old], {"web.example": "young"}).holders == {"web.example": HostHolder("old", "ns-old")}


def test_who_loses_a_host_takes_none_from_third_ones() -> None:
    """E15: a wildcard that its tenant lost does not block hosts below it."""
    first, wild, third = use("1", "t1", "a.example"), use("2", "t2", "*.example"), use("3", "t3", "b.example")
    division = divided([third, wild, first], {})
    assert set(division.holders) == {"a.example", "b.example"}
    assert division.clashes == (HostClash(wild, "*.example"),)


def test_no_tenant_fills_the_register() -> None:
    """E15, H06: who has a great many hosts loses its own place, not that of others; the cluster has no limit."""
    many = [f"h{number}.example" for number in range(3 * len(HOST_PARTS) * MOST_OF_ONE)]
    part = part_of("web.example")
    division = divided([use("1", "flood", *many), use("2", "t2", "web.example", created=LATE)], {})
    tenants = zones_in(register(division.holders)[part])
    assert len(tenants) == MOST_OF_ONE + 1
    assert tenants["web.example"] == "t2"
    of_cluster = zones_in(register(divided([use("1", "", *many)], {}).holders)[part])
    assert len(of_cluster) == len([host for host in many if part_of(host) == part])


def test_many_tenants_with_long_hosts_do_not_push_out_others() -> None:
    """E15, H06: a part is never longer than an object's annotations, and who has few hosts keeps them."""
    tail, part = ".".join(["x" * 60] * 3), part_of("*.web.example")

    def hosts(tenant: int) -> list[str]:
        every = (f"*.h{number}.t{tenant}.{tail}" for number in count())
        return list(islice((host for host in every if part_of(host) == part), MOST_OF_ONE))

    uses = [use(f"{tenant:03}", f"t{tenant}", *hosts(tenant)) for tenant in range(40)]
    found = register(divided([*uses, use("999", "last", "*.web.example", created=LATE)], {}).holders)[part]
    assert size(found) <= MOST_BYTES
    owners = zones_in(found)
    assert owners["*.web.example"] == "last"
    most = Counter(owners.values())
    assert len({most[f"t{tenant}"] for tenant in range(40)}) == 1
    assert most["t0"] >= MOST_OF_ONE // 4


def test_hosts_are_normal() -> None:
    """E15: case makes no other host, and what is none counts for nothing."""
    assert normal(["B.example", "a.example", "b.example", "~^x", "", "*.C.example", "a b"]) == (
        "*.c.example",
        "a.example",
        "b.example",
    )
    assert part_of("a.example") in PARTS

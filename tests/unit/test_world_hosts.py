"""Whose hosts are."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tenantry.world.hosts import MOST_OF_ONE, PARTS, Use, normal, part_of, register

HOSTS = st.sampled_from(["a.example", "b.example", "*.a.example", "c.d.example", "*.example"])
USES = st.lists(
    st.builds(
        Use,
        created=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        uid=st.uuids().map(str),
        namespace=st.sampled_from(["one", "two", "infra"]),
        tenant_uid=st.sampled_from(["t1", "t2", ""]),
        hosts=st.lists(HOSTS, max_size=4).map(normal),
    ),
    max_size=8,
)


@given(USES)
def test_every_host_has_one_holder_who_uses_it(uses: list[Use]) -> None:
    """E15: each host stands once, with the oldest of those that have it; nothing stands that nobody has."""
    found = {
        host: holder
        for part in PARTS
        for holders in (register(part, uses).hosts, register(part, uses).wildcards)
        for host, holder in holders.items()
    }
    assert set(found) == {host for use in uses for host in use.hosts}
    for host, holder in found.items():
        oldest = min((use for use in uses if host in use.hosts), key=lambda use: (use.created, use.uid))
        assert (holder.tenant_uid, holder.namespace) == (oldest.tenant_uid, oldest.namespace)


@given(USES, st.randoms())
def test_the_order_of_what_is_seen_does_not_matter(uses: list[Use], random: Random) -> None:
    """E15: two operators come to the same register."""
    other = list(uses)
    random.shuffle(other)
    assert [register(part, uses) for part in PARTS] == [register(part, other) for part in PARTS]


def test_no_tenant_fills_the_registers() -> None:
    """E15, H06: who has a great many hosts loses its own place, not that of others; the cluster has no limit."""
    many = normal(f"h{number}.example" for number in range(20 * MOST_OF_ONE))
    flood = Use("2026-01-01T00:00:00Z", "1", "flood", "t1", many)
    honest = Use("2026-01-02T00:00:00Z", "2", "honest", "t2", ("web.example",))
    part = part_of("web.example")
    holders = register(part, [flood, honest]).hosts
    assert len(holders) == MOST_OF_ONE + 1
    assert holders["web.example"].tenant_uid == "t2"
    of_cluster = Use("2026-01-01T00:00:00Z", "1", "infra", "", many)
    assert len(register(part, [of_cluster]).hosts) == len([host for host in many if part_of(host) == part])


def test_hosts_are_normal() -> None:
    """E15: case makes no other host, and what is none counts for nothing."""
    assert normal(["B.example", "a.example", "b.example", "~^x", "", "*.C.example", "a b"]) == (
        "*.c.example",
        "a.example",
        "b.example",
    )
    assert part_of("a.example") in PARTS

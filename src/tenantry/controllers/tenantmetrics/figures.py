"""The figures of tenants, and which of them get series of their own: pure.

    Figures of 2,000 tenants ─► bounded(…, 100) ─► those of the 100 largest, and one sum under OTHERS

A tenant is as large as its largest share of what all tenants may use of one quota key (dominant share), because that
changes seldom: a series must not appear and disappear with each pod. Tenants without a quota come first, the one with
the most namespaces before the others: nothing bounds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

OTHERS = "_others"
"""The tenant of sums; no tenant has this name, because it is no DNS label."""

QUOTA_TYPES = ("hard", "assigned", "used", "free")


class TenantFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant is: the labels of its info series.

    Args:
        isolation_class: `status.isolationClass`; "" before it is known.
        control_plane: `spec.isolation.controlPlane`.
        network: `spec.isolation.network`.
        nodes: `spec.isolation.nodes`.
    """

    isolation_class: str = ""
    control_plane: str = ""
    network: str = ""
    nodes: str = ""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one tenant, or the sum of several.

    Args:
        tenant: Its name, or `OTHERS`.
        facts: None for a sum.
        tenants: Of how many tenants this is.
        namespaces: Number of namespaces.
        pods: Number of pods, also of those that have finished; None if they are not counted.
        suspended: Number of suspended tenants.
        quota: By type (`QUOTA_TYPES`) and quota key: thousandths.
        conditions: Number of tenants by type and status of a condition.
        objects: Number of objects by kind and status of Ready.
        waiting: Number of undecided requests by kind.
        refusals: How often controllers could not create an object, by kind of obstacle and its rule or policy.
    """

    tenant: str
    facts: TenantFacts | None = None
    tenants: int = 1
    namespaces: int = 0
    pods: int | None = None
    suspended: int = 0
    quota: Mapping[tuple[str, str], int] = {}
    conditions: Mapping[tuple[str, str], int] = {}
    objects: Mapping[tuple[str, str], int] = {}
    waiting: Mapping[str, int] = {}
    refusals: Mapping[tuple[str, str], int] = {}


def bounded(figures: Iterable[Figures], most: int) -> list[Figures]:
    """Return the figures of the largest tenants, the largest first, and behind them the sum of the others, if any.

    Args:
        figures: Of each tenant.
        most: How many tenants get figures of their own.
    """
    everything = list(figures)
    whole: Counter[str] = Counter()
    for each in everything:
        whole.update({key: value for (kind, key), value in each.quota.items() if kind == "hard"})
    ranked = sorted(everything, key=lambda each: (*_size(each, whole), each.tenant))
    others = ranked[most:]
    return [*ranked[:most], total(others)] if others else ranked


def _size(figures: Figures, whole: Mapping[str, int]) -> tuple[float, int]:
    """Return what sorts larger tenants first."""
    shares = [value / whole[key] for (kind, key), value in figures.quota.items() if kind == "hard" and whole[key]]
    return -max(shares, default=2.0), -figures.namespaces


def total(figures: Sequence[Figures]) -> Figures:
    """Return the sum of the figures of tenants."""
    counted = [each.pods for each in figures if each.pods is not None]
    return Figures(
        tenant=OTHERS,
        tenants=sum(map(attrgetter("tenants"), figures)),
        namespaces=sum(map(attrgetter("namespaces"), figures)),
        pods=sum(counted) if counted else None,
        suspended=sum(map(attrgetter("suspended"), figures)),
        quota=_sum(each.quota for each in figures),
        conditions=_sum(each.conditions for each in figures),
        objects=_sum(each.objects for each in figures),
        waiting=_sum(each.waiting for each in figures),
        refusals=_sum(each.refusals for each in figures),
    )


def _sum(counts: Iterable[Mapping[K, int]]) -> Mapping[K, int]:
    found: dict[K, int] = {}
    for each in counts:
        for key, value in each.items():
            found[key] = found.get(key, 0) + value
    return found

"""Translates HNC's quotas into shares of a tenant's quota: pure.

HNC limits: every HierarchicalResourceQuota of an ancestor applies, and descendants may be promised more than there is.
Tenantry divides: every namespace has a share of its own, and the shares of children never exceed that of their parent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.wording import shortened
from tenantry.world import quantity, quota
from tenantry.world.hnc.forest import HncForest
from tenantry.world.hnc.objects import Amount, HierarchicalResourceQuota
from tenantry.world.imports.findings import FindingWeight, ImportFindings

Quantities = dict[str, str]
"""Normal quota key to canonical quantity."""


def limits(quotas: Sequence[HierarchicalResourceQuota], findings: ImportFindings) -> dict[str, Quantities]:
    """Return what HNC enforces in each namespace: the smallest amount of each key."""
    found: dict[str, Quantities] = {}
    for each in sorted(quotas, key=lambda each: each.key):
        here = found.setdefault(each.metadata.namespace, {})
        where = f"HierarchicalResourceQuota {each.key}"
        if each.spec.scopes or each.spec.scope_selector:
            findings.add(
                FindingWeight.LOST, where, "left out: it counts some pods only, and Tenantry divides quotas of all pods"
            )
            continue
        for key, amount in each.spec.hard.items():
            try:
                normal, value = quota.normal_key(key), quantity.canonical(str(amount))
            except InputError as error:
                findings.add(FindingWeight.LOST, where, f"{key} left out: {error}")
                continue
            here[normal] = quantity.least(here[normal], value) if normal in here else value
    return found


class QuotaImport(msgspec.Struct, frozen=True):
    """The quota of one tree.

    Args:
        forest: With the tree.
        root: Its root.
        limits: What HNC enforces, by namespace.
        used: What each namespace itself uses, by namespace and normal key.
    """

    forest: HncForest
    root: str
    limits: Mapping[str, Quantities]
    used: Mapping[str, Mapping[str, Fraction]]

    @property
    def keys(self) -> list[str]:
        """Return the keys that the whole tenant's quota has."""
        return sorted(self.limits.get(self.root, {}))

    def own(self, name: str, key: str) -> Fraction:
        """Return what a namespace itself uses."""
        return self.used.get(name, {}).get(key, Fraction(0))

    def inner(self, name: str) -> list[str]:
        """Return the children of a namespace."""
        return self.forest.children.get(name, [])


def used(usage: Mapping[str, Mapping[str, Amount]]) -> dict[str, dict[str, Fraction]]:
    """Return the use by namespace and normal key; invalid amounts count as 0."""
    found: dict[str, dict[str, Fraction]] = {}
    for name, amounts in usage.items():
        here = found.setdefault(name, {})
        for key, amount in amounts.items():
            try:
                here[quota.normal_key(key)] = quantity.parse(str(amount))
            except InputError:
                continue
    return found


def divide(division: QuotaImport, findings: ImportFindings, *, fit: bool) -> dict[str, Quantities]:
    """Return the share of every descendant of the root, without keys of which it gets nothing.

    Args:
        division: The tree.
        findings: Gets what does not fit, keys without a limit, and namespaces without a quota of their own.
        fit: Shrink shares that do not fit, down to what is in use.
    """
    below = division.forest.below(division.root)
    shares: dict[str, Quantities] = {name: {} for name in below}
    for key in division.keys:
        wanted, least = _bottom_up(division, [division.root, *below], key, findings, fit=fit)
        given = _top_down(division, wanted, least, key, findings) if fit else wanted
        for name in below:
            if given[name]:
                same = division.limits.get(name, {}).get(key, "")
                unchanged = bool(same) and quantity.parse(same) == given[name]
                shares[name][key] = same if unchanged else _write(key, given[name])
    _tell_gaps(division, below, findings)
    return shares


def _bottom_up(
    division: QuotaImport, names: Sequence[str], key: str, findings: ImportFindings, *, fit: bool
) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """Return what each namespace needs with its descendants, and what they use."""
    wanted: dict[str, Fraction] = {}
    least: dict[str, Fraction] = {}
    for name in reversed(names):
        inner = division.inner(name)
        asked = sum((wanted[child] for child in inner), Fraction(0))
        needs = division.own(name, key) + asked
        least[name] = division.own(name, key) + sum((least[child] for child in inner), Fraction(0))
        own = division.limits.get(name, {}).get(key)
        wanted[name] = needs if own is None else quantity.parse(own)
        if needs > wanted[name] and inner:
            what = f"{key} is {own}, and {_write(key, needs)} is needed: {_write(key, asked)} by the quotas below it"
            rest = f", {_write(key, needs - asked)} by what runs in it" if needs > asked else ""
            remedy = (
                "the shares below are made smaller"
                if fit
                else "Tenantry divides quotas: raise this one, lower those below, or say --fit to shrink them"
            )
            findings.add(FindingWeight.NOTE if fit else FindingWeight.BLOCKS, name, f"{what}{rest}; {remedy}")
    return wanted, least


def _top_down(
    division: QuotaImport,
    wanted: Mapping[str, Fraction],
    least: Mapping[str, Fraction],
    key: str,
    findings: ImportFindings,
) -> dict[str, Fraction]:
    """Return shares that fit: what is in use, and the same fraction of what else each needs."""
    given = {division.root: wanted[division.root]}
    for name in [division.root, *division.forest.below(division.root)]:
        inner = division.inner(name)
        room = max(given[name] - division.own(name, key), Fraction(0))
        floor = {child: min(least[child], wanted[child]) for child in inner}
        asked, needed = sum(wanted[child] for child in inner), sum(floor.values())
        if needed > room:
            text = (
                f"{key}: {_write(key, Fraction(needed))} is in use below it, and {_write(key, room)} is left to divide"
            )
            findings.add(FindingWeight.BLOCKS, name, f"{text}; raise its quota, or use less below it")
        part = Fraction(1)
        if asked > room:
            part = max((room - needed) / (asked - needed), Fraction(0)) if asked > needed else Fraction(0)
        for child in inner:
            given[child] = _whole(key, floor[child] + (wanted[child] - floor[child]) * part)
    return given


def _whole(key: str, value: Fraction) -> Fraction:
    """Round down to thousandths of a CPU, or to whole units of other keys."""
    steps = 1000 if key.endswith(".cpu") else 1
    return Fraction(value * steps // 1, steps)


def _write(key: str, value: Fraction) -> str:
    return quantity.write(value, binary="memory" in key or "storage" in key or "hugepages" in key)


def _tell_gaps(division: QuotaImport, below: Sequence[str], findings: ImportFindings) -> None:
    for name in below:
        own = division.limits.get(name, {})
        unlimited = sorted(set(own) - set(division.keys))
        if unlimited:
            findings.add(
                FindingWeight.LOST,
                name,
                f"quota of {shortened(unlimited)} left out: a share is a part of the tenant's quota, and"
                f" {division.root!r} has none of it; add it there, for the whole tree",
            )
        without = [key for key in division.keys if key not in own]
        if without:
            gets = "what is in use there and below" if name in division.used else "what is divided below it, else 0"
            findings.add(
                FindingWeight.NOTE,
                name,
                f"no quota of its own for {shortened(without)}: in HNC it uses up what is above it, in Tenantry it"
                f" has a share; it gets {gets}, to be raised in spec.quota of its Subnamespace",
            )

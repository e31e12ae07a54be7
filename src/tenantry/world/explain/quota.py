"""Why something fits into a namespace's quota or not, and what would make it fit: pure.

Each namespace of a tree has a share of its own, which Kubernetes enforces. What is free there fits at once. To get
more, the Subnamespace must ask its parent, which can give what is free in the parent's own share, and so on to the top,
where the tenant's quota decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from tenantry.api.errors import InputError
from tenantry.world import quantity, quota


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace on the way from the one that is asked about to the top.

    Args:
        namespace: Its name.
        subnamespace: The name of the Subnamespace that it belongs to; "" for the core namespace.
        parent: The namespace that that one is in; "" for the core namespace.
        asked: The quota of that Subnamespace's spec, or of the Tenant's; quota key to quantity, any spelling. None
            where it may not be read.
        hard: Its own share; quota key to quantity.
        used: What is used of that.
        held: What each Subnamespace in it holds; with its own share more than was asked for where a quota has shrunk.
    """

    namespace: str
    subnamespace: str = ""
    parent: str = ""
    asked: Mapping[str, str | int] | None = {}
    hard: Mapping[str, str] = {}
    used: Mapping[str, str] = {}
    held: Sequence[Mapping[str, str]] = ()


class Level(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a namespace stands; canonical quantities.

    Args:
        namespace: Its name.
        hard: Its own share.
        used: What is used of that.
        free: What is left; negative where more is used than it has.
        needed: What it must have free, for itself or to give to the one below.
        short: How much of that is missing; "0" where nothing is.
    """

    namespace: str
    hard: str
    used: str
    free: str
    needed: str
    short: str


class Raise(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A quota that would have to be raised.

    Args:
        kind: Tenant or Subnamespace.
        namespace: Where the Subnamespace is; "" for a Tenant.
        name: Its name.
        key: The key of `spec.quota.hard`, as it is spelled there.
        by: How much more it must be.
        before: Its quantity now; "" where it may not be read.
        after: Its quantity then; "" where it may not be read.
    """

    kind: str
    namespace: str
    name: str
    key: str
    by: str
    before: str = ""
    after: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What can be said of one key.

    Args:
        key: The quota key, in its one spelling.
        want: How much is wanted.
        is_limited: The tenant's quota has the key; what it does not have is not limited.
        fits: It fits as things are.
        fits_now: How much fits as things are; "" where nothing limits it.
        could_fit: How much would fit if every namespace above gave all that it has free; "" where nothing limits it.
        levels: The namespaces from the one asked about up to the one that could give what is missing.
        raises: What to raise to make it fit, in this order.
    """

    key: str
    want: str
    is_limited: bool
    fits: bool
    fits_now: str = ""
    could_fit: str = ""
    levels: tuple[Level, ...] = ()
    raises: tuple[Raise, ...] = ()


def explain(tenant: str, path: Sequence[Place], want: Mapping[str, str | int]) -> list[Answer]:
    """Return an answer for each key that is wanted, sorted.

    Args:
        tenant: The tenant's name.
        path: The namespace that is asked about, its parent, and so on; the core namespace last, or the highest that may
            be read.
        want: Quota key to quantity, any spelling.

    Raises:
        InputError: A key or a quantity is wrong.
    """
    # A child has 0 of what the tenant limits and it was not given: the keys of any share are the keys of the tenant.
    limits = {*path[0].hard, *(quota.normal_key(key) for key in path[-1].asked or ())}
    answers: list[Answer] = []
    for key, amount in quota.normal(want).items():
        if key in limits:
            answers.append(_answer(tenant, path, key, amount))
        else:
            answers.append(Answer(key=key, want=amount, is_limited=False, fits=True))
    return answers


def _answer(tenant: str, path: Sequence[Place], key: str, amount: str) -> Answer:
    binary = any(text.endswith("i") for text in (amount, *(place.hard.get(key, "") for place in path)))

    def write(value: Fraction) -> str:
        return quantity.write(value, binary=binary)

    levels: list[Level] = []
    lacks: list[Fraction] = []
    missing = quantity.parse(amount)
    for place in path:
        hard, used = (quantity.parse(share.get(key, "0")) for share in (place.hard, place.used))
        needed, missing = missing, max(missing - (hard - used), Fraction(0))
        levels.append(
            Level(
                namespace=place.namespace,
                hard=write(hard),
                used=write(used),
                free=write(hard - used),
                needed=write(needed),
                short=write(missing),
            )
        )
        lacks.append(missing)
        if not missing:
            break
    free = [
        max(quantity.parse(place.hard.get(key, "0")) - quantity.parse(place.used.get(key, "0")), 0) for place in path
    ]
    return Answer(
        key=key,
        want=amount,
        is_limited=True,
        fits=not lacks[0],
        fits_now=write(Fraction(free[0])),
        could_fit=write(Fraction(sum(free))),
        levels=tuple(levels),
        raises=_raises(tenant, path, key, lacks, binary=binary),
    )


def _raises(
    tenant: str, path: Sequence[Place], key: str, lacks: Sequence[Fraction], *, binary: bool
) -> tuple[Raise, ...]:
    """Return what must become more: from the top down, so that each parent has what it is asked for."""
    found: list[Raise] = []
    for place, lack in zip(path, lacks, strict=False):
        if not lack:
            break
        asked = place.asked
        spelled = next((given for given in asked or () if _is(given, key)), key)
        before = quantity.parse(asked.get(spelled, "0")) if asked is not None else None
        held = sum((quantity.parse(each.get(key, "0")) for each in (place.hard, *place.held)), Fraction(0))
        by = lack + (max(held - before, Fraction(0)) if before is not None and place.held else 0)
        found.append(
            Raise(
                kind="Subnamespace" if place.subnamespace else "Tenant",
                namespace=place.parent,
                name=place.subnamespace or tenant,
                key=spelled,
                by=quantity.write(by, binary=binary),
                before=quantity.write(before, binary=binary) if before is not None else "",
                after=quantity.write(before + by, binary=binary) if before is not None else "",
            )
        )
    return tuple(reversed(found))


def _is(given: str, key: str) -> bool:
    try:
        return quota.normal_key(given) == key
    except InputError:
        return False

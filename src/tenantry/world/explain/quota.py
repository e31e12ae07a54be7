"""Why an amount fits into a namespace's quota or not, and which quotas to raise: pure.

Kubernetes enforces the own share of each namespace, so what is free there fits at once. For more, the Subnamespace must
request more of its parent, which can give what is free in its own share, and so on up to the tenant's quota.

Example: `web` is in `team-a`, which is in the core namespace `acme`; free are 1, 2 and 10 CPUs. For 4 CPUs, `web` lacks
3, `team-a` lacks 1 of these 3, and `acme` has that 1: raise the quota of team-a by 1, then that of web by 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from tenantry.api.errors import InputError
from tenantry.world import quantity, quota


class PathNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace on the path from the one in question to the core namespace.

    Args:
        namespace: Its name.
        subnamespace: The name of its Subnamespace; "" for the core namespace.
        parent: The parent namespace; "" for the core namespace.
        asked: `spec.quota.hard` of its Subnamespace, or of the Tenant; quota key to quantity, in any spelling. None if
            the user may not read it.
        hard: Its own share; quota key to quantity.
        used: What it uses of that.
        held: What each Subnamespace in it holds. After a quota was lowered, `hard` and `held` can exceed `asked`.
    """

    namespace: str
    subnamespace: str = ""
    parent: str = ""
    asked: Mapping[str, str | int] | None = {}
    hard: Mapping[str, str] = {}
    used: Mapping[str, str] = {}
    held: Sequence[Mapping[str, str]] = ()


class QuotaLevel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The amounts of one namespace on the path, as canonical quantities.

    Args:
        namespace: Its name.
        hard: Its own share.
        used: What it uses of that.
        free: What is left; negative if it uses more than its share.
        needed: What must be free, for itself or for its child on the path.
        short: How much of that is missing; "0" for nothing.
    """

    namespace: str
    hard: str
    used: str
    free: str
    needed: str
    short: str


class QuotaRaise(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A quota to raise.

    Args:
        kind: Tenant or Subnamespace.
        namespace: Of the Subnamespace; "" for a Tenant.
        name: Its name.
        key: The key of `spec.quota.hard`, as it is spelled there.
        by: The difference.
        before: The quantity now; "" if the user may not read it.
        after: The new quantity; "" if the user may not read the old one.
    """

    kind: str
    namespace: str
    name: str
    key: str
    by: str
    before: str = ""
    after: str = ""


class QuotaAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether an amount of one key fits.

    Args:
        key: The normal quota key.
        want: The wanted amount.
        is_limited: The tenant's quota has the key. A key that it does not have is not limited.
        fits: It fits now.
        fits_now: How much fits now; "" if the key is not limited.
        could_fit: How much would fit if every ancestor gave all that it has free; "" if the key is not limited.
        levels: The namespaces from the one in question up to the first that has enough.
        raises: The quotas to raise, in this order.
    """

    key: str
    want: str
    is_limited: bool
    fits: bool
    fits_now: str = ""
    could_fit: str = ""
    levels: tuple[QuotaLevel, ...] = ()
    raises: tuple[QuotaRaise, ...] = ()


def explain(tenant: str, path: Sequence[PathNamespace], want: Mapping[str, str | int]) -> list[QuotaAnswer]:
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
    answers: list[QuotaAnswer] = []
    for key, amount in quota.normal(want).items():
        if key in limits:
            answers.append(_answer(tenant, path, key, amount))
        else:
            answers.append(QuotaAnswer(key=key, want=amount, is_limited=False, fits=True))
    return answers


def _answer(tenant: str, path: Sequence[PathNamespace], key: str, amount: str) -> QuotaAnswer:
    binary = any(text.endswith("i") for text in (amount, *(place.hard.get(key, "") for place in path)))

    def write(value: Fraction) -> str:
        return quantity.write(value, binary=binary)

    levels: list[QuotaLevel] = []
    lacks: list[Fraction] = []
    missing = quantity.parse(amount)
    for place in path:
        hard, used = (quantity.parse(share.get(key, "0")) for share in (place.hard, place.used))
        needed, missing = missing, max(missing - (hard - used), Fraction(0))
        levels.append(
            QuotaLevel(
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
    return QuotaAnswer(
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
    tenant: str, path: Sequence[PathNamespace], key: str, lacks: Sequence[Fraction], *, binary: bool
) -> tuple[QuotaRaise, ...]:
    """Return the quotas to raise, from the top down, so that each parent has what its child requests."""
    found: list[QuotaRaise] = []
    for place, lack in zip(path, lacks, strict=False):
        if not lack:
            break
        asked = place.asked
        spelled = next((given for given in asked or () if _is(given, key)), key)
        before = quantity.parse(asked.get(spelled, "0")) if asked is not None else None
        held = sum((quantity.parse(each.get(key, "0")) for each in (place.hard, *place.held)), Fraction(0))
        by = lack + (max(held - before, Fraction(0)) if before is not None and place.held else 0)
        found.append(
            QuotaRaise(
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

"""Quantities, exactly as Kubernetes reads and writes them.

Source: Kubernetes API reference, "Quantity", and the canonical form of k8s.io/apimachinery/pkg/api/resource: no
fraction, the largest suffix that loses nothing, and the family of suffixes that was given.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from tenantry.api.errors import InputError

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

# Bounded digits: a number as long as a request must not cost its square.
_FORM = re.compile(r"([+-]?)(\d{0,40}(?:\.\d{0,40})?)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,3}|)", re.ASCII)
_LARGEST = 2**63 - 1


def parse(text: str | int) -> Fraction:
    """Return a quantity's value.

    Raises:
        InputError: The text is not a quantity, or is larger than Kubernetes can count.
    """
    return _parse(str(text))[0]


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Fraction, str]:
    """Return the value and the family of its suffix: "i" binary, "e" exponent, "" decimal."""
    found = _FORM.fullmatch(text)
    if found is None or not any(character.isdigit() for character in found[2]):
        raise InputError(f"{text[:64]!r} is not a quantity; write it as in 500m, 2, 1.5 or 8Gi")
    sign, digits, suffix = found.groups()
    value = Fraction(f"0{digits}" if digits.startswith(".") else digits.rstrip("."))
    family = ""
    if suffix in _BINARY:
        value *= 1024 ** _BINARY[suffix]
        family = "i"
    elif suffix[:1] in {"e", "E"} and len(suffix) > 1:
        value *= Fraction(10) ** int(suffix[1:])
        family = "e"
    else:
        value *= Fraction(10) ** _DECIMAL[suffix]
    # Kubernetes rounds up to whole billionths, away from zero.
    value = Fraction(-(-value * 10**9 // 1), 10**9)
    if value > _LARGEST:
        raise InputError(f"{text[:64]!r} is larger than Kubernetes counts (2^63 - 1)")
    return (-value if sign == "-" else value), family


def canonical(text: str | int) -> str:
    """Return a quantity in the canonical form, which the API server stores unchanged.

    In maps of resources (of a quota, of a container) the server rounds up to whole thousandths, which Quantity itself
    does not. It keeps other spellings that need no rounding, for example "1.5e1", which Tenantry never writes.

    Raises:
        InputError: The text is not a quantity.
    """
    value, family = _parse(str(text))
    thousandths = -(-abs(value) * 1000 // 1)
    value = Fraction(thousandths if value >= 0 else -thousandths, 1000)
    return write(value, binary=family == "i", exponent=family == "e")


def write(value: Fraction, *, binary: bool = False, exponent: bool = False) -> str:
    """Return a value as a canonical quantity.

    Args:
        value: At most nine decimal places.
        binary: Use Ki, Mi, … if the value is whole and at least 1024.
        exponent: Use e3, e6, … instead of k, M, ….
    """
    if value == 0:
        return "0"
    if binary and value.denominator == 1 and abs(value) >= 1024:  # noqa: PLR2004 - the first binary step
        whole, steps = value.numerator, 0
        while whole % 1024 == 0 and steps < len(_BINARY):
            whole, steps = whole // 1024, steps + 1
        return f"{whole}{['', *_BINARY][steps]}"
    power = -9
    whole = int(value * 10**9)
    while whole % 1000 == 0 and power < 18:  # noqa: PLR2004 - E is the last suffix
        whole, power = whole // 1000, power + 3
    if exponent and power:
        return f"{whole}e{power}"
    return f"{whole}{_SUFFIX_OF[power]}"


def least(*quantities: str) -> str:
    """Return the smallest of canonical quantities, as it was written."""
    return min(quantities, key=parse)

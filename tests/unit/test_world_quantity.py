"""Quantities read and written as Kubernetes does; `test_kube_quantity.py` asks the API server."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import InputError
from tenantry.world import quantity

CANONICAL = [
    ("0", "0"),
    ("0Ki", "0"),
    ("0.0", "0"),
    ("-0", "0"),
    ("1", "1"),
    ("+1", "1"),
    ("1.", "1"),
    (".5", "500m"),
    ("0.5", "500m"),
    ("1.5", "1500m"),
    ("500m", "500m"),
    ("1000m", "1"),
    ("1000", "1k"),
    ("1500", "1500"),
    ("1000000", "1M"),
    ("1k", "1k"),
    ("1000k", "1M"),
    ("0.3333Gi", "357878149940m"),
    ("1.5m", "2m"),
    ("1n", "1m"),
    ("0.1n", "1m"),
    ("1000001n", "2m"),
    ("1000u", "1m"),
    ("1u", "1m"),
    ("1024", "1024"),
    ("1024Ki", "1Mi"),
    ("1Ki", "1Ki"),
    ("0.5Ki", "512"),
    ("1.5Ki", "1536"),
    ("1.5Gi", "1536Mi"),
    ("0.1Ki", "102400m"),
    ("1000Ki", "1000Ki"),
    ("1e3", "1e3"),
    ("1E3", "1e3"),
    ("12e2", "1200"),
    ("1e0", "1"),
    ("1e-3", "1e-3"),
    ("1e6", "1e6"),
    ("1000e3", "1e6"),
    ("1E", "1E"),
    ("1Ei", "1Ei"),
    ("9223372036854775807", "9223372036854775807"),
    ("-1", "-1"),
    ("-1.5Gi", "-1536Mi"),
    ("-0.1n", "-1m"),
]


@pytest.mark.parametrize(("given_text", "expected"), CANONICAL)
def test_canonical_form_is_kubernetes_own(given_text: str, expected: str) -> None:
    """E01: what we write as a quota is what the API server stores."""
    assert quantity.canonical(given_text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", ".", "+", "-", "1x", "1KI", "1ki", "1K", "Ki", "1mi", "1e", "1.2.3", "--1", "1e3Ki", "0x1",
     "1_000", "\u0661", "NaN", "inf", "1\n", "9" * 41, "1e999", "1e9999"],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"quantity|larger"):
        quantity.canonical(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "8Ei", "1e19", "10E", "1000E"])
def test_more_than_kubernetes_counts_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="larger than Kubernetes counts"):
        quantity.canonical(text)


@pytest.mark.parametrize("text", ["1k", "500m", "1Gi", "-3"])
def test_a_message_quotes_no_more_than_it_needs(text: str) -> None:
    with pytest.raises(InputError) as caught:
        quantity.canonical(text + "?" * 500)
    assert len(str(caught.value)) < 200


def test_numbers_are_taken_as_they_stand_in_yaml() -> None:
    assert quantity.canonical(4) == "4"
    assert quantity.canonical(1000) == "1k"


NUMBERS = st.one_of(
    st.integers(0, 2**62).map(str),
    st.decimals(0, 10**9, places=6, allow_nan=False).map(lambda value: format(value, "f")),
)
SUFFIXES = st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Mi", "Gi", "e3", "e-2", "E1", "e0"])


@given(NUMBERS, SUFFIXES)
def test_canonical_rounds_up_to_thousandths_and_is_a_fixed_point(number: str, suffix: str) -> None:
    try:
        written = quantity.canonical(number + suffix)
    except InputError:
        return  # larger than Kubernetes counts
    value = quantity.parse(number + suffix)
    assert value <= quantity.parse(written) < value + Fraction(1, 1000)
    assert quantity.canonical(written) == written
    scale = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "e3": 3, "e-2": -2, "E1": 1, "e0": 0}
    factor = Fraction(10) ** scale[suffix] if suffix in scale else Fraction(1024) ** {"K": 1, "M": 2, "G": 3}[suffix[0]]
    exact = Fraction(number) * factor
    assert exact <= value < exact + Fraction(1, 10**9), "rounded up, by less than a billionth"


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_the_least_is_the_least_by_value_not_by_text(first: int, second: int) -> None:
    chosen = quantity.least(quantity.canonical(first), quantity.canonical(f"{second}"))
    assert quantity.parse(chosen) == min(first, second)

"""The lists of Kubernetes' conformance tests; `test_real_conformance.py` compares them with the release."""

from __future__ import annotations

import pytest

from testkit import conformance

MIN_TESTS = 115


@pytest.mark.parametrize("file", [conformance.PODLESS, conformance.WITH_PODS])
def test_a_list_is_sorted_and_names_each_test_once(file: str) -> None:
    """A new release is easy to compare."""
    names = conformance.names(file)
    assert list(names) == sorted(set(names))
    assert all(name.startswith("[sig-") and "[Conformance]" in name for name in names)


def test_no_test_is_in_both_lists() -> None:
    """A test either needs a running pod or does not, and the list of those that do not never shrinks unnoticed."""
    podless = set(conformance.names(conformance.PODLESS))
    assert not podless & set(conformance.names(conformance.WITH_PODS))
    assert len(podless) >= MIN_TESTS


def test_each_test_that_fails_has_one_cause() -> None:
    """The tests on real nodes compare their results with this list."""
    causes = conformance.failing()
    tests = [test for each in causes for test in each.tests]
    assert sorted(set(tests)) == sorted(tests)
    assert set(tests) <= set(conformance.names(conformance.WITH_PODS))
    assert all(each.cause.strip() and each.tests == sorted(each.tests) for each in causes)

"""Why something fits or not: every answer is checked against what carrying it out would give."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import InputError
from tenantry.world import quantity
from tenantry.world.explain.quota import PathNamespace, QuotaAnswer, QuotaRaise, explain


def core(hard: str, used: str = "0", asked: str = "100", *held: str) -> PathNamespace:
    return PathNamespace(
        namespace="acme",
        asked={"cpu": asked},
        hard={"requests.cpu": hard},
        used={"requests.cpu": used},
        held=[{"requests.cpu": each} for each in held],
    )


def child(name: str, parent: str, hard: str, used: str = "0") -> PathNamespace:
    return PathNamespace(
        namespace=f"{name}-1",
        subnamespace=name,
        parent=parent,
        asked={"cpu": hard},
        hard={"requests.cpu": hard},
        used={"requests.cpu": used},
    )


def only(answers: list[QuotaAnswer]) -> QuotaAnswer:
    (answer,) = answers
    return answer


def test_what_is_free_in_the_own_share_fits() -> None:
    """E09: no namespace above is asked."""
    answer = only(explain("acme", [child("web", "acme", "2", "500m"), core("8")], {"cpu": "1500m"}))
    assert answer.fits
    assert [level.namespace for level in answer.levels] == ["web-1"]
    assert answer.raises == ()


def test_the_first_ancestor_that_has_enough_ends_the_search() -> None:
    """E09: how much is short where, and the one spec to change."""
    path = [child("app", "web-1", "1", "1"), child("web", "acme", "2", "500m"), core("8")]
    answer = only(explain("acme", path, {"requests.cpu": "1"}))
    assert not answer.fits
    assert (answer.fits_now, answer.could_fit) == ("0", "9500m")
    assert [(level.namespace, level.needed, level.short) for level in answer.levels] == [
        ("app-1", "1", "1"),
        ("web-1", "1", "0"),
    ]
    assert answer.raises == (
        QuotaRaise(kind="Subnamespace", namespace="web-1", name="app", key="cpu", by="1", before="1", after="2"),
    )


def test_where_the_tenant_itself_is_short_its_quota_is_raised_first() -> None:
    """E09: from the top down, so that each parent has what its child asks for."""
    path = [child("app", "web-1", "1", "1"), child("web", "acme", "2", "500m"), core("8", "7", asked="10")]
    answer = only(explain("acme", path, {"cpu": "4"}))
    assert answer.could_fit == "2500m"
    assert [(each.kind, each.name, each.before, each.after) for each in answer.raises] == [
        ("Tenant", "acme", "10", "11500m"),
        ("Subnamespace", "web", "2", "4500m"),
        ("Subnamespace", "app", "1", "5"),
    ]


def test_more_in_use_than_there_is_counts_as_missing() -> None:
    """E10: a quota that shrank below its use is filled up first."""
    answer = only(explain("acme", [child("web", "acme", "2", "3"), core("8")], {"cpu": "1"}))
    assert (answer.fits_now, answer.levels[0].free, answer.levels[0].short) == ("0", "-1", "2")
    assert answer.raises[0].after == "4"


def test_a_quota_that_shrank_below_what_its_subnamespaces_hold_is_raised_to_that_first() -> None:
    """E10: the tenant has 1, its subnamespaces hold 4 of it, and one of them wants 1 more, of which it has the half."""
    path = [child("a", "acme", "2", "1500m"), core("0", "0", "1", "2", "2")]
    answer = only(explain("acme", path, {"cpu": "1"}))
    assert [(each.name, each.before, each.after) for each in answer.raises] == [
        ("acme", "1", "4500m"),
        ("a", "2", "2500m"),
    ]


def test_a_key_that_a_child_lacks_is_zero_and_an_unlimited_key_is_free() -> None:
    """E11: a quota covers the whole tree or none of it."""
    bare = PathNamespace(namespace="web-1", subnamespace="web", parent="acme")
    cpu, pods = explain("acme", [bare, core("8")], {"pods": 5, "cpu": 1})[::-1]
    assert (cpu.key, cpu.fits, cpu.raises[0].key, cpu.raises[0].before) == ("requests.cpu", False, "requests.cpu", "0")
    assert (pods.is_limited, pods.fits) == (False, True)


def test_what_may_not_be_read_is_raised_by_what_is_short() -> None:
    """E05: an owner who sees only their own namespaces is told what to ask for."""
    path = [msgspec.structs.replace(child("web", "acme", "2", "2"), asked=None)]
    answer = only(explain("acme", path, {"cpu": "1"}))
    assert answer.raises == (QuotaRaise(kind="Subnamespace", namespace="acme", name="web", key="requests.cpu", by="1"),)


def test_binary_quantities_stay_binary() -> None:
    top = PathNamespace(namespace="acme", asked={"memory": "8Gi"}, hard={"requests.memory": "8Gi"}, used={})
    answer = only(explain("acme", [top], {"memory": "9Gi"}))
    assert (answer.fits_now, answer.levels[0].short, answer.raises[0].after) == ("8Gi", "1Gi", "9Gi")


@pytest.mark.parametrize("want", [{"cores": 1}, {"cpu": "lots"}, {"cpu": -1}, {"cpu": 1, "requests.cpu": 1}])
def test_what_cannot_be_wanted_is_refused(want: dict[str, str | int]) -> None:
    with pytest.raises(InputError):
        explain("acme", [core("8")], want)


_numbers = st.integers(0, 20).map(str)


@given(st.lists(st.tuples(_numbers, _numbers), min_size=1, max_size=4), st.integers(0, 40))
def test_carrying_out_the_raises_makes_it_fit_and_takes_nothing_that_is_used(
    shares: list[tuple[str, str]], want: int
) -> None:
    """E09: the sum over the tree grows by exactly what the tenant's quota is raised by."""
    places = [child(f"n{index}", f"n{index + 1}-1", *share) for index, share in enumerate(shares[:-1])]
    path = [*places, core(*shares[-1])]
    answer = only(explain("acme", path, {"cpu": want}))
    after = _carried_out(path, answer)
    assert only(explain("acme", after, {"cpu": want})).fits
    raised = sum(_difference(each) for each in answer.raises if each.kind == "Tenant")
    assert sum(map(_hard, after)) - sum(map(_hard, path)) == raised
    assert all(_hard(now) >= min(_hard(was), _used(was)) for was, now in zip(path, after, strict=True))


def _carried_out(path: list[PathNamespace], answer: QuotaAnswer) -> list[PathNamespace]:
    """Return the path with the shares as the operator would move them, raise by raise."""
    hard = {place.namespace: _hard(place) for place in path}
    by_name = {place.subnamespace or "acme": place for place in path}
    for each in answer.raises:
        place = by_name[each.name]
        hard[place.namespace] += _difference(each)
        if place.parent:
            parent = path[path.index(place) + 1].namespace
            hard[parent] -= _difference(each)
    return [
        msgspec.structs.replace(place, hard={"requests.cpu": quantity.write(hard[place.namespace])}) for place in path
    ]


def _difference(each: QuotaRaise) -> Fraction:
    return quantity.parse(each.after) - quantity.parse(each.before)


def _hard(place: PathNamespace) -> Fraction:
    return quantity.parse(place.hard["requests.cpu"])


def _used(place: PathNamespace) -> Fraction:
    return quantity.parse(place.used["requests.cpu"])

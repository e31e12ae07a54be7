"""Which namespaces label selectors select, at which cost: users choose both the selectors and the labels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.mirror import selections, things
from tenantry.mirror.kinds import networkpolicies
from tenantry.mirror.selections import (
    ANY_LABEL,
    EVERY_OBJECT,
    MOST_COMPARISONS,
    MOST_KEYS,
    MOST_NAMESPACES,
    MOST_SELECTORS,
    STEP,
    Selections,
)
from tenantry.mirror.shapes import NotTranslated
from tenantry.mirror.things import MOST_LABEL_BYTES, LabelledNamespace
from testkit.mirrorobjects import ObjectStory, upper_object

Json = dict[str, Any]


def namespace(name: str, labels: Mapping[str, str] | None) -> LabelledNamespace:
    return LabelledNamespace(name, 1, msgspec.json.encode(labels) if labels is not None else None)


def namespaces(count: int, **labels: str) -> list[LabelledNamespace]:
    return [namespace(f"n{number}", labels) for number in range(count)]


def slow(number: int, expressions: int) -> Json:
    """Return a selector that selects nothing, as its last expression shows."""
    lacking = [{"key": f"k{number}-{each}", "operator": "DoesNotExist"} for each in range(expressions - 1)]
    return {"matchExpressions": [*lacking, {"key": "none", "operator": "Exists"}]}


def evaluate(
    kept: Selections, found: Iterable[LabelledNamespace], selectors: Sequence[Json]
) -> tuple[list[Sequence[str]], list[int]]:
    """Return the names that each selector selects, and the work of each step."""
    names: dict[bytes, Sequence[str]] = {}
    work = list(kept.steps(found, selectors, names))
    return [names[selections.key_of(each)] for each in selectors], work


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"team": "a"}}, ("one",)),
        ({"matchLabels": {"team": "a", "tier": "x"}}, ()),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}, ("one", "two")),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, ("bare", "two")),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, ("one", "two")),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, ("bare",)),
        ({"matchExpressions": [{"key": "team", "operator": "Unknown"}]}, ()),
    ],
)
def test_a_selector_selects_by_labels(selector: Json, expected: tuple[str, ...]) -> None:
    """A namespace with too many labels is selected by none, also not for a label that it might lack."""
    there = [namespace("two", {"team": "b"}), namespace("one", {"team": "a"}), namespace("bare", {})]
    ((names,), _) = evaluate(Selections(), [*there, namespace("large", None)], [selector])
    assert names == expected


def test_selectors_that_cost_too_much_are_refused() -> None:
    """VCP-62: 99 selectors of 62 expressions that select none of 900 namespaces are 5 million comparisons."""
    with pytest.raises(NotTranslated, match=f"more than {MOST_COMPARISONS} labels, which are the 6138 expressions"):
        selections.check([slow(number, 62) for number in range(99)], 900)
    with pytest.raises(NotTranslated, match="more than 1000 namespaces exist"):
        selections.check([{"matchLabels": {"team": "a"}}], MOST_NAMESPACES + 1)
    with pytest.raises(NotTranslated, match="different namespaceSelectors"):
        selections.check([slow(number, 1) for number in range(MOST_SELECTORS + 1)], 1)
    selections.check([slow(0, MOST_COMPARISONS // MOST_NAMESPACES)], MOST_NAMESPACES)
    selections.check([], 2 * MOST_NAMESPACES)


def test_a_long_evaluation_is_divided() -> None:
    """VCP-62: the most expensive object that is allowed, also if the labels are what costs."""
    longest = MOST_COMPARISONS // MOST_NAMESPACES
    _, work = evaluate(Selections(), namespaces(MOST_NAMESPACES), [slow(0, longest)])
    assert sum(work) >= MOST_COMPARISONS
    assert max(work) < STEP + longest
    large = {f"k{number}": "x" * 60 for number in range(200)}
    _, work = evaluate(Selections(), namespaces(MOST_NAMESPACES, **large), [slow(0, 1)])
    assert len(work) > MOST_NAMESPACES * 200 * 60 // 64 // STEP - 1


def test_the_number_of_values_costs_nothing() -> None:
    """VCP-62: one expression may have thousands of values, which a list would compare one by one."""
    one = {"matchExpressions": [{"key": "team", "operator": "In", "values": [str(each) for each in range(20_000)]}]}
    compiled = selections._requirements(one)  # pyright: ignore[reportPrivateUsage] - a set is not slower
    assert [type(each.values) for each in compiled] == [frozenset]


def test_only_what_can_have_changed_is_evaluated_again() -> None:
    """VCP-62: selections are shared, and a change of one namespace costs one evaluation of each selector."""
    kept, there = Selections(), namespaces(MOST_NAMESPACES, team="a")
    selectors: list[Json] = [{"matchLabels": {"team": team}} for team in ("a", "b")]
    before, work = evaluate(kept, there, selectors)
    assert [len(each) for each in before] == [MOST_NAMESPACES, 0]
    assert sum(work) >= 2 * MOST_NAMESPACES
    assert evaluate(kept, there, selectors) == (before, [0])
    there[7] = namespace("n7", {"team": "b"})
    there.append(namespace("new", {"team": "b"}))
    del there[0]
    after, work = evaluate(kept, there, selectors)
    assert [len(after[0]), *after[1:]] == [MOST_NAMESPACES - 2, ("n7", "new")]
    assert sum(work) <= 3 * 3
    # A selector that was used before the change, and one that was not.
    assert evaluate(kept, there, [selectors[1], {"matchLabels": {"x": "y"}}])[0] == [("n7", "new"), ()]


def test_kept_selections_are_bounded_and_changes_that_are_forgotten_are_evaluated_anew() -> None:
    """VCP-62: users choose how many selectors and changes there are."""
    kept, few = Selections(most_kept=10), namespaces(3, team="a")
    one: Json = {"matchLabels": {"team": "a"}}
    for number in range(100):
        evaluate(kept, few, [slow(number, 2)])
    assert len(kept._kept) == 10  # pyright: ignore[reportPrivateUsage] - the memory is bounded
    evaluate(kept, few, [one])
    for number in range(3 * MOST_NAMESPACES):
        evaluate(kept, [*few[1:], namespace(f"m{number}", {})], [])
    assert len(kept._changes) <= 2 * MOST_NAMESPACES  # pyright: ignore[reportPrivateUsage] - as is this
    assert evaluate(kept, few[1:], [one])[0] == [("n1", "n2")]


def test_evaluations_that_overlap_agree_in_the_end() -> None:
    """Labels change between two steps of an evaluation, and others see and keep the change first."""
    kept, there = Selections(), namespaces(MOST_NAMESPACES)
    selector = {"matchExpressions": [{"key": f"k{each}", "operator": "DoesNotExist"} for each in range(100)]}
    first = kept.steps(there, [selector], {})
    next(first)
    there[0], there[-1] = namespace("n0", {"k0": ""}), namespace(f"n{MOST_NAMESPACES - 1}", {"k0": ""})
    expected = tuple(sorted(each.key for each in there[1:-1]))
    assert evaluate(kept, there, [selector])[0] == [expected]
    for _ in first:
        pass
    assert evaluate(kept, there, [selector])[0] == [expected]


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([], []),
        ([{"matchLabels": {"b": ""}, "matchExpressions": [{"key": "a"}]}], [EVERY_OBJECT, "a", "b"]),
        ([{"matchLabels": 3, "matchExpressions": [{"key": 3}, 4]}], [EVERY_OBJECT]),
        ([slow(0, MOST_KEYS + 1)], [EVERY_OBJECT, ANY_LABEL]),
    ],
)
def test_the_index_of_labels_is_bounded(selectors: list[Json], expected: list[str]) -> None:
    assert selections.labels_of(selectors) == expected


def test_a_change_of_labels_concerns_those_that_name_them() -> None:
    one, other = namespace("n", {"a": "1", "b": "2"}), namespace("n", {"a": "1", "b": "3", "c": "4"})
    assert selections.values_of(one, other) == [ANY_LABEL, "b", "c"]
    assert selections.values_of(one, one) == []
    large = namespace("n", None)
    for before, after in ((None, one), (one, None), (one, large), (large, one)):
        assert selections.values_of(before, after) == [EVERY_OBJECT]
    assert selections.values_of(large, large) == []


def test_labels_that_are_too_large_are_not_kept() -> None:
    """VCP-62: labels as a dict take ten times the memory."""

    def kept(labels: Mapping[str, str] | None) -> LabelledNamespace:
        meta = {"name": "n", "resourceVersion": "7", "labels": labels, "annotations": {"a": "x" * 100_000}}
        return things.labelled(msgspec.Raw(msgspec.json.encode({"metadata": meta})))

    assert kept({"a": "b"}) == LabelledNamespace("n", 7, b'{"a":"b"}')
    assert kept(None) == LabelledNamespace("n", 7, b"{}")
    assert kept({"a": "x" * MOST_LABEL_BYTES}) == LabelledNamespace("n", 7, None)


def _policy(selectors: Sequence[Json]) -> Json:
    found = upper_object(networkpolicies.KIND, "a", 0)
    found["spec"]["ingress"] = [{"from": [{"namespaceSelector": each} for each in selectors]}]
    return found


def _turns(sides: ObjectStory, deed: Callable[[], object]) -> int:
    """Return how often the event loop has gone round while the mirrors worked."""
    turns, run = 0, sides.above._settle  # pyright: ignore[reportPrivateUsage] - a task runs beside it

    async def both(seconds: float, *, look: bool) -> None:
        nonlocal turns
        work = asyncio.create_task(run(seconds, look=look))
        while not work.done():
            turns += 1
            await asyncio.sleep(0)
        await work

    deed()
    asyncio.run(both(0.0, look=True))
    return turns


def test_the_event_loop_goes_on_while_selectors_are_evaluated() -> None:
    """VCP-62: an operator that one control plane stops loses its lease, and all tenants wait."""
    sides = ObjectStory()
    for number in range(200):
        sides.upper.create(Namespace(metadata=ObjectMeta(name=f"n{number}", labels={"team": "x"})))
    sides.settle()
    allowed = [slow(number, 9) for number in range(99)]
    assert _turns(sides, lambda: sides.upper.put_in(networkpolicies.RESOURCE, _policy(allowed))) > 200 * 99 * 9 // STEP
    assert sides.below_of(networkpolicies.KIND, "a") is not None
    refused = {
        **upper_object(networkpolicies.KIND, "b", 0),
        "spec": _policy([slow(each, 50) for each in range(99)])["spec"],
    }
    sides.upper.put_in(networkpolicies.RESOURCE, refused)
    sides.settle()
    assert sides.below_of(networkpolicies.KIND, "b") is None
    assert any("must not compare more than 200000 labels" in note for _, _, _, note in sides.above.said)

"""Objects other than pods: a message names them by kind and name, and checks see the whole object or its strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tenantry.policy.check import CheckScope, RuleTarget
from tenantry.policy.mend import merged
from tenantry.policy.request import Json, Review, part


def named(noun: str) -> str:
    """Return CEL: the text by which a message names the object."""
    return f"'{noun} \\'' + object.metadata.name + '\\''"


def name_of(noun: str, value: Json) -> str:
    """Return the same in Python."""
    return f"{noun} '{part(value, 'metadata').get('name', '')}'"


def whole(target: RuleTarget, noun: str, plain: Json) -> CheckScope:
    """Return the scope of checks that decide on a whole object.

    Args:
        target: Its kind.
        noun: The word for one in messages.
        plain: An object that no rule refuses.
    """
    return CheckScope(
        target=target.name,
        path=named(noun),
        values=lambda review: [(name_of(noun, review.request.object), review.request.object)],
        held=lambda value: [(name_of(noun, value), value)],
        sample=lambda fragment: merged(plain, fragment),
    )


def strings(scope: CheckScope, among: str, of: Callable[[Review], Iterable[Any]]) -> CheckScope:
    """Return the scope of checks that decide on strings of an object, which messages quote, or on pairs of strings.

    Args:
        scope: The object.
        among: The CEL variable with the strings.
        of: The same in Python.
    """

    def values(review: Review) -> Iterator[tuple[str, Any]]:
        for path, _ in scope.values(review):
            yield from ((path, each) for each in of(review))

    return CheckScope(
        target=scope.target, path=scope.path, among=among, values=values, held=scope.held, sample=scope.sample
    )

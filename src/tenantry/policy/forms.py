"""Checks by the form of their rule: a switch, a list of values, or lists of patterns.

Each function builds a `RuleCheck` whose CEL and Python decide the same; a text that both need is given once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack

from tenantry.policy.check import ONE_OF, CheckScope, Mend, Problem, RuleCheck, matches, one_of, quoted, told_one_of
from tenantry.policy.request import Review

LIST = "LIST"
"""Stands in CEL for the values that a list allows."""

MATCH = "must match one of"


class CheckOptions(TypedDict, total=False):
    """The arguments of a `RuleCheck` that do not depend on the form of its rule."""

    example: Required[Mapping[str, Any]]
    given: object
    note: str
    mend: Mend
    variables: Mapping[str, str]
    usual: bool


def refuse(
    rule: str,
    scope: CheckScope,
    *,
    bad: str,
    what: str,
    fix: str,
    is_bad: Callable[[Any, Review], bool],
    value: str = "",
    **more: Unpack[CheckOptions],
) -> RuleCheck:
    """Return a check of a switch.

    Args:
        rule: The path of the rule.
        scope: The values that it decides on.
        bad: CEL: whether the switch refuses the value.
        what: What is wrong with it.
        fix: What would pass.
        is_bad: The same as `bad` in Python.
        value: CEL: a string, quoted after `what`; in Python the value itself. "" for none.
        more: See `RuleCheck`.
    """

    def judge(found: Any, review: Review) -> Problem | None:  # noqa: ANN401 - a scope's values are of any type
        return (_said(what, value, found), review.rules.refused[rule], fix) if is_bad(found, review) else None

    return RuleCheck(
        rule=rule,
        form="refused",
        scope=scope,
        bad=bad,
        what=_says(what, value),
        source=f"variables.refused[{quoted(rule)}]",
        fix=quoted(fix),
        judge=judge,
        **more,
    )


def allow(
    rule: str,
    scope: CheckScope,
    *,
    what: str,
    find: Callable[[Any, Sequence[str], Review], str | None],
    bad: str = f"!(c in {LIST})",
    value: str = "c",
    must: str = ONE_OF,
    **more: Unpack[CheckOptions],
) -> RuleCheck:
    """Return a check that values are in a list.

    Args:
        rule: The path of the rule.
        scope: The values that it decides on.
        what: What is wrong, before the quoted string.
        find: Python: the string that the list does not allow, or "" if there is none to quote; None if all is allowed.
        bad: CEL with `LIST` for the list: whether it refuses the value.
        value: CEL: the string; "" for none.
        must: What would pass, before the list.
        more: See `RuleCheck`.
    """
    allowed = f"variables.allowed[{quoted(rule)}]"

    def judge(found: Any, review: Review) -> Problem | None:  # noqa: ANN401 - a scope's values are of any type
        names = review.rules.allowed[rule]
        bad_one = find(found, names.values, review)
        return None if bad_one is None else (_said(what, value, bad_one), names.source, told_one_of(names.values, must))

    more.setdefault("usual", True)
    return RuleCheck(
        rule=rule,
        form="allowed",
        scope=scope,
        bad=bad.replace(LIST, f"{allowed}.values"),
        what=_says(what, value.replace(LIST, f"{allowed}.values")),
        source=f"{allowed}.source",
        fix=one_of(f"{allowed}.values", must),
        judge=judge,
        **more,
    )


def match(
    rule: str,
    scope: CheckScope,
    *,
    what: str,
    find: Callable[[Any], str] = str,
    value: str = "c",
    has: str = "",
    **more: Unpack[CheckOptions],
) -> RuleCheck:
    """Return a check that a string matches a pattern of each list; every level of rules adds a list.

    Args:
        rule: The path of the rule.
        scope: The values that it decides on.
        what: What is wrong, before the quoted string.
        find: Python: the string; "" for a value without one.
        value: CEL: the string.
        has: CEL: whether the value has one; "" for always.
        more: See `RuleCheck`.
    """
    lists = f"variables.patterns[{quoted(rule)}]"
    missed = f"!l.values.exists(p, {value}.matches('^(?:' + p + ')$'))"
    bad = f"{lists}.exists(l, {missed})"

    def judge(found: Any, review: Review) -> Problem | None:  # noqa: ANN401 - a scope's values are of any type
        text = find(found)
        for each in review.rules.patterns[rule] if text or not has else ():
            if not any(matches(pattern, text) for pattern in each.values):
                return _said(what, value, text), each.source, told_one_of(each.values, MATCH)
        return None

    more.setdefault("usual", True)
    return RuleCheck(
        rule=rule,
        form="patterns",
        scope=scope,
        bad=f"{has} && {bad}" if has else bad,
        bind=f"{lists}.filter(l, {missed}).map(l, {{}})[0]",
        what=_says(what, value),
        source="l.source",
        fix=one_of("l.values", MATCH),
        judge=judge,
        **more,
    )


def _says(what: str, value: str) -> str:
    """Return CEL: what is wrong, with a string quoted after it."""
    return f"'{what} \\'' + {value} + '\\''" if value else quoted(what)


def _said(what: str, value: str, found: object) -> str:
    return f"{what} '{found}'" if value else what

"""What checks of an object as a whole have in common, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tenantry.policy.check import MATCHES, Check, matches, one_of, quoted, told_one_of
from tenantry.policy.request import Finding, Judged, part

ONE_OF = "must be one of"

KUBERNETES = (
    "(request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"
    " || request.userInfo.username.startsWith('system:kube-'))"
)
"""CEL: it is one of Kubernetes' own controllers."""


def by_kubernetes(user: str) -> bool:
    """Tell the same in Python."""
    return user.startswith(("system:serviceaccount:kube-system:", "system:kube-"))


def called(noun: str) -> str:
    """Return CEL for how a message names the object."""
    return f"'{noun} \\'' + object.metadata.name + '\\''"


def call(noun: str, judged: Judged) -> str:
    """Return the same in Python."""
    return f"{noun} '{part(judged.request.object, 'metadata').get('name', '')}'"


def refuses(noun: str, rule: str, *, bad: str, what: str, fix: str, is_bad: Callable[[Judged], bool]) -> Check:
    """Return a check of a switch.

    Args:
        noun: What the object is called.
        rule: Its path.
        bad: CEL: whether the rule is against the object.
        what: What is wrong with it.
        fix: What would pass.
        is_bad: The same as `bad`, in Python.
    """

    def find(judged: Judged) -> Iterator[Finding]:
        if is_bad(judged):
            source = judged.rules.refused[rule]
            yield Finding(rule=rule, source=source, path=call(noun, judged), what=what, fix=fix)

    return Check(
        rule=rule,
        form="refused",
        bad=bad,
        path=called(noun),
        what=quoted(what),
        source=f"variables.refused[{quoted(rule)}]",
        fix=quoted(fix),
        find=find,
    )


def refuses_each(
    noun: str, rule: str, *, among: str, bad: str, what: str, fix: str, of: Callable[[Judged], Iterable[str]]
) -> Check:
    """Return a check of a switch that is about each of several strings, `c`.

    Args:
        noun: What the object is called.
        rule: Its path.
        among: The variable that holds them.
        bad: CEL: whether the rule is against `c`.
        what: What is wrong, before the quoted string.
        fix: What would pass.
        of: Those of them that the rule is against, in Python.
    """

    def find(judged: Judged) -> Iterator[Finding]:
        for each in of(judged):
            source = judged.rules.refused[rule]
            yield Finding(rule=rule, source=source, path=call(noun, judged), what=f"{what} '{each}'", fix=fix)

    return Check(
        rule=rule,
        form="refused",
        each=among,
        bad=bad,
        path=called(noun),
        what=f"'{what} \\'' + c + '\\''",
        source=f"variables.refused[{quoted(rule)}]",
        fix=quoted(fix),
        find=find,
    )


def allows(
    noun: str,
    rule: str,
    *,
    among: str,
    what: str,
    of: Callable[[Judged], Iterable[str]],
    inside: str = "c in {}",
    is_inside: Callable[[str, Sequence[str]], bool] = lambda value, values: value in values,
    must: str = ONE_OF,
) -> Check:
    """Return a check that strings are in a list.

    Args:
        noun: What the object is called.
        rule: The list's path.
        among: The variable that holds them.
        what: What is wrong, before the quoted string.
        of: They, in Python.
        inside: CEL in which `{}` stands for the list: whether `c` is in it.
        is_inside: The same in Python.
        must: What would pass, before the list.
    """
    listed = f"variables.allowed[{quoted(rule)}]"

    def find(judged: Judged) -> Iterator[Finding]:
        names = judged.rules.allowed[rule]
        for each in of(judged):
            if not is_inside(each, names.values):
                how = told_one_of(names.values).replace(ONE_OF, must, 1)
                said = f"{what} '{each}'"
                yield Finding(rule=rule, source=names.source, path=call(noun, judged), what=said, fix=how)

    return Check(
        rule=rule,
        form="allowed",
        each=among,
        bad=f"!({inside.replace('{}', f'{listed}.values')})",
        usual=True,
        path=called(noun),
        what=f"'{what} \\'' + c + '\\''",
        source=f"{listed}.source",
        fix=must_be(f"{listed}.values", must),
        find=find,
    )


def must_be(values: str, must: str) -> str:
    """Return CEL for what would pass, before a list of values."""
    return one_of(values) if must == ONE_OF else f"{one_of(values)}.replace('{ONE_OF}', {quoted(must)}, 1)"


def matches_all(noun: str, rule: str, *, among: str, what: str, of: Callable[[Judged], Iterable[str]]) -> Check:
    """Return a check that strings match a pattern of each list.

    Args:
        noun: What the object is called.
        rule: The lists' path.
        among: The variable that holds them.
        what: What is wrong, before the quoted string.
        of: They, in Python.
    """
    lists = f"variables.patterns[{quoted(rule)}]"
    missed = f"!l.values.exists(p, {MATCHES.replace('v.', 'c.')})"

    def find(judged: Judged) -> Iterator[Finding]:
        for each in of(judged):
            for listed in judged.rules.patterns[rule]:
                if not any(matches(pattern, each) for pattern in listed.values):
                    must = told_one_of(listed.values).replace("must be", "must match", 1)
                    said = f"{what} '{each}'"
                    yield Finding(rule=rule, source=listed.source, path=call(noun, judged), what=said, fix=must)
                    break

    return Check(
        rule=rule,
        form="patterns",
        each=among,
        bad=f"{lists}.exists(l, {missed})",
        usual=True,
        bind=f"{lists}.filter(l, {missed}).map(l, {{}})[0]",
        path=called(noun),
        what=f"'{what} \\'' + c + '\\''",
        source="l.source",
        fix=f"{one_of('l.values')}.replace('must be', 'must match', 1)",
        find=find,
    )

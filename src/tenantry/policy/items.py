"""What checks of a pod, of each of its containers and of each of its volumes have in common.

The first container, or volume, that a rule is against is the one that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tenantry.policy.check import Check, quoted
from tenantry.policy.request import Finding, Json, Judged, parts

Item = dict[str, Any]
Told = tuple[str, str, str]
"""What is wrong, who set the rule, and what would pass."""


class Items(msgspec.Struct, frozen=True):
    """A part of a pod of which there are several, each with a name.

    Args:
        noun: What one is called.
        among: The variable that holds those that a check can be about.
        of: The same in Python, in the same order.
    """

    noun: str
    among: str
    of: Callable[[Json], list[Item]]


def _fields(pod: Json, *names: str) -> list[Item]:
    return [each for name in names for each in parts(pod, "spec", name)]


def all_containers(pod: Json) -> list[Item]:
    """Return every container of a pod."""
    return _fields(pod, "containers", "initContainers", "ephemeralContainers")


def _sysctls(pod: Json) -> list[Item]:
    return parts(pod, "spec", "securityContext", "sysctls")


ALL = Items("container", "variables.all", all_containers)
SECURED = Items(
    "container", "variables.secured", lambda pod: [c for c in all_containers(pod) if "securityContext" in c]
)
"""Those that have a securityContext."""

RESOURCED = Items("container", "variables.resourced", lambda pod: _fields(pod, "containers", "initContainers"))
"""Those that can have resources."""

VOLUMES = Items("volume", "variables.volumes", lambda pod: _fields(pod, "volumes"))

SYSCTLS_SET = Items("sysctl", "variables.sysctls", _sysctls)


def of_each(
    items: Items,
    rule: str,
    form: str,
    *,
    bad: str,
    what: str,
    source: str,
    fix: str,
    find: Callable[[Item, Judged], Told | None],
    bind: str = "{}",
    whole: bool = False,
    usual: bool = False,
) -> Check:
    """Return a check of each item.

    Args:
        items: Of these.
        rule: Its path.
        form: The map that it stands in.
        bad: CEL: whether the rule is against the item `c`.
        what: CEL: what is wrong with the item `c`.
        source: CEL: who set the rule, which may depend on `c`.
        fix: CEL: what would pass, which may depend on `c`.
        find: The three of them in Python; None for an item that passes.
        bind: CEL in which `{}` stands for the message, `c` is known, and more names may become known.
        whole: See `Check`.
        usual: See `Check`.
    """

    def findings(judged: Judged) -> Iterator[Finding]:
        for item in items.of(judged.request.object):
            told = find(item, judged)
            if told is not None:
                said, who, how = told
                yield Finding(rule=rule, source=who, path=f"{items.noun} '{item['name']}'", what=said, fix=how)

    return Check(
        rule=rule,
        form=form,
        bad=bad,
        each=items.among,
        usual=usual,
        path=f"'{items.noun} \\'' + c.name + '\\''",
        what=what,
        source=source,
        fix=fix,
        find=findings,
        bind=bind,
        whole=whole,
    )


def no_item(
    items: Items,
    rule: str,
    *,
    bad: str,
    what: str,
    fix: str,
    is_bad: Callable[[Item, Json], bool],
    usual: bool = False,
) -> Check:
    """Return a check of a switch that is about each item.

    Args:
        items: Of these.
        rule: Its path.
        bad: CEL: whether the rule is against the item `c`.
        what: What is wrong with it.
        fix: What would pass.
        is_bad: The same as `bad`, of the item and its pod's spec.
        usual: See `Check`.
    """

    def find(item: Item, judged: Judged) -> Told | None:
        return (what, judged.rules.refused[rule], fix) if is_bad(item, judged.spec) else None

    source = f"variables.refused[{quoted(rule)}]"
    return of_each(
        items, rule, "refused", bad=bad, what=quoted(what), source=source, fix=quoted(fix), find=find, usual=usual
    )


def no_pod(rule: str, *, bad: str, what: str, fix: str, is_bad: Callable[[Judged], bool]) -> Check:
    """Return a check of a switch that is about the pod itself; see `no_item`."""

    def find(judged: Judged) -> Iterator[Finding]:
        if is_bad(judged):
            yield Finding(rule=rule, source=judged.rules.refused[rule], path="pod", what=what, fix=fix)

    return Check(
        rule=rule,
        form="refused",
        bad=bad,
        path="'pod'",
        what=quoted(what),
        source=f"variables.refused[{quoted(rule)}]",
        fix=quoted(fix),
        find=find,
    )

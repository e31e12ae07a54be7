"""What checks of containers have in common: the first container that a rule is against is the one that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tenantry.policy.check import Check, quoted
from tenantry.policy.request import Finding, Json, Judged


def containers(pod: Json) -> list[dict[str, Any]]:
    """Return every container of a pod, in the order of the variable `all`."""
    spec: dict[str, Any] = pod.get("spec") or {}
    return [each for field in ("containers", "initContainers", "ephemeralContainers") for each in spec.get(field) or ()]


def of_containers(
    rule: str,
    form: str,
    *,
    bad: str,
    what: str,
    source: str,
    fix: str,
    find: Callable[[dict[str, Any], Judged], tuple[str, str, str] | None],
    among: str = "variables.all",
) -> Check:
    """Return a check of each container.

    Args:
        rule: Its path.
        form: The map that it stands in.
        bad: CEL: whether the rule is against the container `c`.
        what: CEL: what is wrong with the container `c`.
        source: CEL: who set the rule, which may depend on `c`.
        fix: CEL: what would pass, which may depend on `c`.
        find: What, source and fix in Python; None for a container that passes.
        among: CEL: the containers that it can be about.
    """

    def findings(judged: Judged) -> Iterator[Finding]:
        for container in containers(judged.request.object):
            told = find(container, judged)
            if told is not None:
                said, who, how = told
                yield Finding(rule=rule, source=who, path=f"container {container['name']!r}", what=said, fix=how)

    return Check(
        rule=rule,
        form=form,
        holds=f"!{among}.exists(c, {bad})",
        path="'container \\'' + c.name + '\\''",
        what=what,
        source=source,
        fix=fix,
        find=findings,
        bind=f"{among}.filter(c, {bad}).map(c, {{}})[0]",
    )


def refusing(
    switch: str,
    *,
    bad: str,
    what: str,
    fix: str,
    is_bad: Callable[[dict[str, Any]], bool],
    among: str = "variables.all",
) -> Check:
    """Return a check of a switch that concerns each container.

    Args:
        switch: The rule's path.
        bad: CEL: whether the rule is against the container `c`.
        what: What is wrong with it, as it is.
        fix: What would pass, as it is.
        is_bad: The same as `bad`, in Python.
        among: CEL: the containers that it can be about.
    """
    return of_containers(
        switch,
        "refused",
        bad=bad,
        what=quoted(what),
        source=f"variables.refused[{quoted(switch)}]",
        fix=quoted(fix),
        find=lambda c, judged: (what, judged.rules.refused[switch], fix) if is_bad(c) else None,
        among=among,
    )

"""Changes of manifests that several rules offer as their fix. Pure."""

from __future__ import annotations

import copy
from typing import Any, cast

from tenantry.api.tenancyrules import Section
from tenantry.policy.check import Mend
from tenantry.policy.request import Item, Json

Path = tuple[str | int, ...]


def into(holder: Item, *path: str) -> Item:
    """Return the object at a path, created if it is not there."""
    for step in path:
        if not isinstance(holder.get(step), dict):
            holder[step] = {}
        holder = holder[step]
    return holder


def at(value: Json, path: Path) -> Item | None:
    """Return the object at a path; None if there is none."""
    found: Any = value
    for step in path:
        if isinstance(step, str) and not isinstance(found, dict):
            return None
        found = cast("Any", found)[step] if isinstance(step, int) else cast("Json", found).get(step)
    return cast("Item", found) if isinstance(found, dict) else None


def merged(value: Json, changes: Json) -> Item:
    """Return an object with the fields of another merged into it; lists are replaced."""
    out = copy.deepcopy(dict(value))
    for key, change in changes.items():
        old = out.get(key)
        is_nested = isinstance(change, dict) and isinstance(old, dict)
        out[key] = merged(cast("Json", old), cast("Json", change)) if is_nested else copy.deepcopy(cast("Any", change))
    return out


def sets(path: str, to: object) -> Mend:
    """Return a change that sets the field at a path with dots between its steps."""
    *above, field = path.split(".")

    def mend(holder: Item, _: Section) -> None:
        into(holder, *above)[field] = copy.deepcopy(to)

    return mend


def drops(*paths: str) -> Mend:
    """Return a change that removes the fields at these paths."""

    def mend(holder: Item, _: Section) -> None:
        for path in paths:
            *above, field = path.split(".")
            found = at(holder, tuple(above))
            if found is not None:
                found.pop(field, None)

    return mend


def first_allowed(path: str, rule: str) -> Mend:
    """Return a change that sets the field at a path to the first value that a rule allows, if there is one."""
    *above, field = path.split(".")

    def mend(holder: Item, rules: Section) -> None:
        values = rules.allowed[rule].values
        if values:
            into(holder, *above)[field] = values[0]

    return mend

"""Which images may run or be mounted, and when they are fetched."""

from __future__ import annotations

from tenantry.policy.check import MATCHES, Check, matches, one_of, told_one_of
from tenantry.policy.items import ALL, VOLUMES, Item, Items, Told, of_each
from tenantry.policy.request import Judged, part

ALLOWED = "images.allowed"
PULL_POLICIES = "images.pullPolicies"

_LISTS = f"variables.patterns['{ALLOWED}']"
_POLICIES = f"variables.allowed['{PULL_POLICIES}']"


def _images(items: Items, has: str, image: str, path: tuple[str, ...]) -> Check:
    """Return the check of the images of containers or volumes.

    Args:
        items: Which of them.
        has: CEL: whether the item `c` has one.
        image: CEL: it.
        path: Where it is, in Python.
    """
    missed = f"!l.values.exists(p, {MATCHES.replace('v.', f'{image}.')})"
    bad = f"{has} && {_LISTS}.exists(l, {missed})"

    def find(item: Item, judged: Judged) -> Told | None:
        found = _at(item, path)
        for listed in judged.rules.patterns[ALLOWED] if found else ():
            if not any(matches(pattern, found) for pattern in listed.values):
                must = told_one_of(listed.values).replace("must be", "must match", 1)
                return f"has the image '{found}'", listed.source, must
        return None

    return of_each(
        items,
        ALLOWED,
        "patterns",
        bad=bad,
        bind=f"{_LISTS}.filter(l, {missed}).map(l, {{}})[0]",
        what=f"'has the image \\'' + {image} + '\\''",
        source="l.source",
        fix=f"{one_of('l.values')}.replace('must be', 'must match', 1)",
        find=find,
        usual=True,
    )


def _pull_policies(items: Items, has: str, policy: str, path: tuple[str, ...]) -> Check:
    def find(item: Item, judged: Judged) -> Told | None:
        found, listed = _at(item, path), judged.rules.allowed[PULL_POLICIES]
        if not found or found in listed.values:
            return None
        return f"has the pull policy '{found}'", listed.source, told_one_of(listed.values)

    return of_each(
        items,
        PULL_POLICIES,
        "allowed",
        bad=f"{has} && !({policy} in {_POLICIES}.values)",
        what=f"'has the pull policy \\'' + {policy} + '\\''",
        source=f"{_POLICIES}.source",
        fix=one_of(f"{_POLICIES}.values"),
        find=find,
        usual=True,
    )


def _at(item: Item, path: tuple[str, ...]) -> str:
    return part(item, *path[:-1]).get(path[-1]) or ""


_REFERENCE = "has(c.image) && has(c.image.reference) && c.image.reference != ''"

IMAGES = (
    # A container may have none: a template's, which another program fills in.
    _images(ALL, "has(c.image) && c.image != ''", "c.image", ("image",)),
    _images(VOLUMES, _REFERENCE, "c.image.reference", ("image", "reference")),
    _pull_policies(ALL, "has(c.imagePullPolicy)", "c.imagePullPolicy", ("imagePullPolicy",)),
    _pull_policies(VOLUMES, "has(c.image) && has(c.image.pullPolicy)", "c.image.pullPolicy", ("image", "pullPolicy")),
)

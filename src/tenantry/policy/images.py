"""Which images may run, and when they are fetched."""

from __future__ import annotations

from typing import Any

from tenantry.policy.check import MATCHES, matches, one_of, told_one_of
from tenantry.policy.containers import of_containers
from tenantry.policy.request import Judged

ALLOWED = "images.allowed"
PULL_POLICIES = "images.pullPolicies"

_IMAGE = "(has(c.image) ? c.image : '')"
_MISSED = f"!l.values.exists(p, {MATCHES.replace('v.', f'{_IMAGE}.')})"
_LISTS = f"variables.patterns['{ALLOWED}']"
_POLICIES = f"variables.allowed['{PULL_POLICIES}']"


def _image(container: dict[str, Any], judged: Judged) -> tuple[str, str, str] | None:
    image = container.get("image", "")
    for listed in judged.rules.patterns[ALLOWED]:
        if not any(matches(pattern, image) for pattern in listed.values):
            return f"has the image '{image}'", listed.source, _must_match(listed.values)
    return None


def _must_match(patterns: tuple[str, ...]) -> str:
    return told_one_of(patterns).replace("must be", "must match", 1)


def _policy(container: dict[str, Any], judged: Judged) -> tuple[str, str, str] | None:
    policy, listed = container.get("imagePullPolicy", ""), judged.rules.allowed[PULL_POLICIES]
    if policy in listed.values:
        return None
    return f"has imagePullPolicy '{policy}'", listed.source, told_one_of(listed.values)


IMAGES = (
    of_containers(
        ALLOWED,
        "patterns",
        bad=f"{_LISTS}.exists(l, {_MISSED})",
        what=f"'has the image \\'' + {_IMAGE} + '\\''",
        source=f"{_LISTS}.filter(l, {_MISSED})[0].source",
        fix=f"{one_of(f'{_LISTS}.filter(l, {_MISSED})[0].values')}.replace('must be', 'must match', 1)",
        find=_image,
    ),
    of_containers(
        PULL_POLICIES,
        "allowed",
        bad=f"!(c.imagePullPolicy in {_POLICIES}.values)",
        what="'has imagePullPolicy \\'' + c.imagePullPolicy + '\\''",
        source=f"{_POLICIES}.source",
        fix=one_of(f"{_POLICIES}.values"),
        find=_policy,
    ),
)

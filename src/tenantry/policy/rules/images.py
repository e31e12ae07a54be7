"""Which images may run or be mounted, and when they are pulled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.policy.check import CheckScope, RuleCheck
from tenantry.policy.forms import LIST, allow, match
from tenantry.policy.mend import first_allowed
from tenantry.policy.request import Json, Review, part
from tenantry.policy.targets.pods import CONTAINERS, VOLUMES

ALLOWED = "images.allowed"
PULL_POLICIES = "images.pullPolicies"


def _images(scope: CheckScope, has: str, image: str, *, example: Json) -> RuleCheck:
    """Return the check of the images of containers or volumes.

    Args:
        scope: The containers, or the volumes.
        has: CEL: whether `c` has one.
        image: Its path in the item.
        example: An item with one.
    """
    return match(
        ALLOWED,
        scope,
        has=has,
        value=f"c.{image}",
        find=lambda item: _at(item, image),
        what="has the image",
        example=example,
        given=["busybox"],
    )


def _pull_policies(scope: CheckScope, has: str, policy: str, *, example: Json) -> RuleCheck:
    def find(item: Json, allowed: Sequence[str], _: Review) -> str | None:
        found = _at(item, policy)
        return found if found and found not in allowed else None

    return allow(
        PULL_POLICIES,
        scope,
        bad=f"{has} && !(c.{policy} in {LIST})",
        find=find,
        what="has the pull policy",
        value=f"c.{policy}",
        mend=first_allowed(policy, PULL_POLICIES),
        example=example,
        given=["Always"],
    )


def _at(item: Json, path: str) -> str:
    *above, field = path.split(".")
    found: Any = part(item, *above).get(field)
    return found or ""


_MOUNTED = "has(c.image) && has(c.image.reference) && c.image.reference != ''"
_VOLUME = {"image": {"reference": "evil.example/x", "pullPolicy": "Never"}}

CHECKS = (
    # A template may have a container without an image, which another program fills in.
    _images(CONTAINERS, "has(c.image) && c.image != ''", "image", example={"image": "evil.example/x"}),
    _images(VOLUMES, _MOUNTED, "image.reference", example=_VOLUME),
    _pull_policies(CONTAINERS, "has(c.imagePullPolicy)", "imagePullPolicy", example={"imagePullPolicy": "Never"}),
    _pull_policies(VOLUMES, "has(c.image) && has(c.image.pullPolicy)", "image.pullPolicy", example=_VOLUME),
)

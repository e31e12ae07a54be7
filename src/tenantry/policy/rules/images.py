"""Which images may run or be mounted, and when they are pulled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api.marks import CONTRIBUTED_BY
from tenantry.api.rules import ImageCredentials, PullPolicy
from tenantry.api.tenancyrules import MAPS
from tenantry.policy.check import CheckScope, RuleCheck, listed, quoted
from tenantry.policy.forms import LIST, allow, match, refuse
from tenantry.policy.mend import first_allowed, sets
from tenantry.policy.request import Json, Review, part, parts
from tenantry.policy.targets.pods import CONTAINERS, VOLUMES
from tenantry.world.rules import CACHED, CREDENTIALS

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


# -- images of others -----------------------------------------------------------------------------

_EVERYWHERE = ("", CONTRIBUTED_BY)
"""Keys of tolerations with which a pod may run on a contributed node, whose kubelet need not verify anything."""

IS_VERIFIED = (
    f"{quoted(CREDENTIALS)} in variables.chosen"
    f" && variables.chosen[{quoted(CREDENTIALS)}].value == '{ImageCredentials.VERIFIED}'"
)
"""CEL: an administrator has declared that kubelets verify image credentials."""


def visits(spec: str) -> str:
    """Return CEL: whether a pod of this spec may run on contributed nodes."""
    key = "(has(t.key) ? t.key : '')"
    return f"has({spec}.tolerations) && {spec}.tolerations.exists(t, {key} in {listed(_EVERYWHERE)})"


# The mutating policy corrects the pods of a template, so the standard that refuses does not warn its author.
_OPEN = (
    f"(!variables.isTemplate || params.metadata.name != {quoted(MAPS['enforce'])})"
    f" && (!({IS_VERIFIED}) || {visits('variables.spec')})"
)


def _is_open(review: Review) -> bool:
    chosen = review.rules.chosen.get(CREDENTIALS)
    tolerated = {each.get("key") or "" for each in parts(review.spec, "tolerations")}
    return chosen is None or chosen.value != ImageCredentials.VERIFIED or not tolerated.isdisjoint(_EVERYWHERE)


def _cached(scope: CheckScope, has: str, policy: str, *, example: Json) -> RuleCheck:
    return refuse(
        CACHED,
        scope,
        bad=f"variables.imagesAreOpen && {has} && c.{policy} != '{PullPolicy.ALWAYS}'",
        is_bad=lambda item, review: _is_open(review) and _at(item, policy) not in {"", PullPolicy.ALWAYS},
        what="may run an image that its node has from another tenant",
        fix=f"set {policy} to Always, or ask an administrator to declare images.credentials in TenancyDefaults",
        variables={"imagesAreOpen": _OPEN},
        mend=sets(policy, PullPolicy.ALWAYS.value),
        example=example,
        note="In a namespace where this is refused, a mutating policy sets the pull policy Always. Kubelets verify"
        " credentials by default from Kubernetes 1.35 on; the API server cannot see whether they do.",
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
    _cached(CONTAINERS, "has(c.imagePullPolicy)", "imagePullPolicy", example={"imagePullPolicy": "Never"}),
    _cached(VOLUMES, "has(c.image) && has(c.image.pullPolicy)", "image.pullPolicy", example=_VOLUME),
    _pull_policies(CONTAINERS, "has(c.imagePullPolicy)", "imagePullPolicy", example={"imagePullPolicy": "Never"}),
    _pull_policies(VOLUMES, "has(c.image) && has(c.image.pullPolicy)", "image.pullPolicy", example=_VOLUME),
)

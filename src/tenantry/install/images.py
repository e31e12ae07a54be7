"""The policy that makes pods pull their images, so that no pod runs a private image of another tenant. Pure.

A node keeps images that a pod has pulled. With another pull policy than Always, another pod gets such an image without
the credentials of its owner, unless the kubelet verifies them. A policy of the rules (`policy/rules/images.py`) refuses
what this one did not change.

Source: Kubernetes, "Images" (ensure image pull credential verification), "Mutating Admission Policy".
"""

from __future__ import annotations

from tenantry.api.marks import SLICE
from tenantry.api.model import Json
from tenantry.api.rules import PullPolicy
from tenantry.api.tenancyrules import PULL_MARK
from tenantry.install.policy import NEW_PODS, PARAM_KIND, exists, items, mutating, rule
from tenantry.install.rules import bindings
from tenantry.policy.compile import forms
from tenantry.policy.rules.images import IS_VERIFIED, visits
from tenantry.policy.users import NOT_MIRRORED

PULL = "tenantry-image-pull"

_ALWAYS = PullPolicy.ALWAYS.value
_LISTS = ("containers", "initContainers", "ephemeralContainers")


def everything() -> list[Json]:
    """Return the policy and its bindings."""
    ephemeral = rule("", ["pods/ephemeralcontainers"], "UPDATE")
    changed = " + ".join((*map(_changed, _LISTS), _changed_volumes()))
    # Pods of a slice may run on contributed nodes, whose kubelets count as not verifying.
    sliced = f"'{SLICE}' in namespaceObject.?metadata.labels.orValue({{}})"
    policy = mutating(
        PULL,
        [NEW_PODS, ephemeral],
        [f"{IS_VERIFIED} && !({sliced}) && !({visits('object.spec')}) ? [] : {changed}"],
        conditions={"not-a-mirror": NOT_MIRRORED, "pulls-less": _pulls_less()},
        where=exists(PULL_MARK),
        params=PARAM_KIND,
        variables={"chosen": forms()["chosen"]},
        reinvoked="IfNeeded",
    )
    return [policy, *bindings(PULL, "Mutating")]


def _items(field: str) -> str:
    return items(f"object.spec.{field}")


# The pull policy of an existing ephemeral container cannot change.
_OLD = "(oldObject == null ? [] : oldObject.?spec.ephemeralContainers.orValue([]))"
_IS_NEW = f"(oldObject == null || !{_OLD}.exists(o, o.name == c.name))"


def _is_less(field: str) -> str:
    """Return CEL: whether a container `c` of a list has another pull policy, and may get this one."""
    less = f"c.?imagePullPolicy.orValue('') != '{_ALWAYS}'"
    # The other containers of an existing pod stay as they are.
    return f"{less} && {_IS_NEW}" if field == "ephemeralContainers" else f"{less} && request.operation == 'CREATE'"


_VOLUME_IS_LESS = f"has(c.image) && c.image.?pullPolicy.orValue('') != '{_ALWAYS}' && request.operation == 'CREATE'"


def _pulls_less() -> str:
    containers = (f"{_items(field)}.exists(c, {_is_less(field)})" for field in _LISTS)
    return " || ".join((*containers, f"{_items('volumes')}.exists(c, {_VOLUME_IS_LESS})"))


def _changed(field: str) -> str:
    patch = _patch(f"'/spec/{field}/' + string(i) + '/imagePullPolicy'")
    return f"{_items(field)}.transformList(i, c, {_is_less(field)}, {patch})"


def _changed_volumes() -> str:
    patch = _patch("'/spec/volumes/' + string(i) + '/image/pullPolicy'")
    return f"{_items('volumes')}.transformList(i, c, {_VOLUME_IS_LESS}, {patch})"


def _patch(path: str) -> str:
    return f"JSONPatch{{op: 'add', path: {path}, value: '{_ALWAYS}'}}"

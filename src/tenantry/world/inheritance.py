"""Which objects of its parent a child inherits, and which of their fields: pure.

the object         ─► is_heritable   never objects that a controller created, tokens, or objects of Kubernetes itself
the child's spec   ─► mode_for       None, Copy or Sync by kind; a Subtenant never gets some kinds, and none as Sync
the annotation     ─► verdict        tenantry.dev/inherit selects the children that get this object
content, carried                     the fields, labels and annotations of the copy
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

import msgspec

from tenantry.api.kubernetes import RBAC_GROUP, LimitRange, NetworkPolicy, RoleBinding
from tenantry.api.marks import MANAGED_BY, is_protected
from tenantry.api.model import Resource
from tenantry.api.subnamespace import NEVER_INHERITED, RUNS_PODS, InheritanceMode, Mode, SubnamespaceSpec
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.api.tokens import TOKEN_SECRET

V = TypeVar("V")

WHOLE = ("*",)
"""`Resource.owned` of a kind of which Tenantry makes nothing but copies: the whole of an object is compared."""

ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role", owned=WHOLE)
SECRETS = Resource("", "v1", "secrets", "Secret", owned=WHOLE)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", owned=WHOLE)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", owned=WHOLE)

KINDS = (
    LimitRange.resource,
    NetworkPolicy.resource,
    ROLES,
    SECRETS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    RoleBinding.resource,
)
"""The seven kinds in the order of copying: limits first, access last."""

SCALED = (
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("", "v1", "replicationcontrollers", "ReplicationController"),
)
"""Kubernetes' kinds that can be scaled and inherited."""

COPIES = "tenantry-inherited-scale"
"""The name of the `PolicyParameters` in a child that list its copies of these kinds.

The texts: `SOURCE`, the namespace above, and for each plural the names, one on a line, with a line break before and
after each.
"""

COPIES_MARK = "copies"
"""The value of their label `tenancyrules.OWN_MARK`."""

SOURCE = "source"

SEVEN = frozenset(kind.full_name for kind in KINDS)

_FIELDS: Mapping[str, Callable[[SubnamespaceSpec], InheritanceMode]] = {
    ROLES.full_name: lambda spec: spec.inheritance.roles,
    RoleBinding.resource.full_name: lambda spec: spec.inheritance.role_bindings,
    NetworkPolicy.resource.full_name: lambda spec: spec.inheritance.network_policies,
    LimitRange.resource.full_name: lambda spec: spec.inheritance.limit_ranges,
    SECRETS.full_name: lambda spec: spec.inheritance.secrets,
    CONFIG_MAPS.full_name: lambda spec: spec.inheritance.config_maps,
    SERVICE_ACCOUNTS.full_name: lambda spec: spec.inheritance.service_accounts,
}

PEOPLE = frozenset(kind.full_name for kind in (ROLES, RoleBinding.resource, NetworkPolicy.resource, SERVICE_ACCOUNTS))
"""Kinds that give access: a Subtenant never inherits them, whatever its spec says (DESIGN section 4, Blindness)."""

_runs_pods = re.compile(RUNS_PODS)

SECRET_TYPES = (TOKEN_SECRET, "bootstrap.kubernetes.io/token", "helm.sh/release.v1")
"""Types of Secrets that programs make for themselves."""

NAMES: Mapping[str, frozenset[str]] = {
    CONFIG_MAPS.full_name: frozenset({"kube-root-ca.crt", "istio-ca-root-cert", "openshift-service-ca.crt"}),
    SERVICE_ACCOUNTS.full_name: frozenset({"default"}),
}
"""Objects that controllers create in every namespace."""

NEW_IF_IMMUTABLE = frozenset({RoleBinding.resource.full_name, SECRETS.full_name, CONFIG_MAPS.full_name})
"""Kinds with fields that never change: a copy that differs there is deleted and made again; it holds nothing else."""

_LEFT_OUT = frozenset({"apiVersion", "kind", "metadata", "status"})
_TOOLS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "argocd.argoproj.io/",
    "meta.helm.sh/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
)
"""Marks by which a deployment tool finds its own objects: it would delete a copy that has them."""

_never = re.compile(NEVER_INHERITED.replace("[.]", "\\."))


def is_scaled(kind: str) -> bool:
    """Return whether the copies of a kind, as in `Resource.full_name`, must be listed for the policy on scaling."""
    return any(kind == scaled.full_name for scaled in SCALED)


# -- which ----------------------------------------------------------------------------------------


def selectors_of(resource: Resource) -> dict[str, str] | None:
    """Return selectors by which the API server omits objects that are never inherited; None if every object can be."""
    if resource.full_name == SECRETS.full_name:
        return {"fieldSelector": ",".join(f"type!={kind}" for kind in SECRET_TYPES)}
    if resource == LimitRange.resource:
        return {"labelSelector": f"!{OWN_MARK}"}  # the parameters of policies, which may be large
    names = NAMES.get(resource.full_name)
    return {"fieldSelector": ",".join(f"metadata.name!={name}" for name in sorted(names))} if names else None


def is_heritable(kind: str, name: str, secret_type: str = "", *, controlled: bool = False) -> bool:
    """Return whether an object can be inherited.

    Args:
        kind: As in `Resource.full_name`.
        name: The object's name.
        secret_type: Of a Secret.
        controlled: It has a controlling owner, which would create its own object in the child.
    """
    return not controlled and name not in NAMES.get(kind, ()) and secret_type not in SECRET_TYPES


def may_be_allowed(kind: str) -> bool:
    """Return whether an administrator may allow a kind beyond the seven to be inherited."""
    return _never.fullmatch(kind) is None


def mode_for(spec: SubnamespaceSpec, kind: str) -> InheritanceMode:
    """Return the inheritance mode of a kind in a child: that of its spec, limited by the child's mode."""
    field = _FIELDS.get(kind)
    if field is not None:
        asked = field(spec)
    else:
        asked = next((other.mode for other in spec.inheritance.others if other.resource == kind), InheritanceMode.NONE)
    if spec.mode is Mode.WORKSPACE or asked is InheritanceMode.NONE:
        return asked
    return for_subtenants(kind)


def for_subtenants(kind: str) -> InheritanceMode:
    """Return the highest mode of a kind in a Subtenant: None for kinds that give access or run pods."""
    if kind in PEOPLE or _runs_pods.fullmatch(kind):
        return InheritanceMode.NONE
    return InheritanceMode.COPY


class InheritAnnotation(StrEnum):
    """Values of the annotation that are not selectors."""

    ALL = "all"
    NONE = "none"


def verdict(
    spec: SubnamespaceSpec, kind: str, annotation: str | None, labels: Callable[[], Mapping[str, str]]
) -> InheritanceMode:
    """Return the inheritance mode of one object in a child.

    Args:
        spec: Of the child.
        kind: As in `Resource.full_name`.
        annotation: `tenantry.dev/inherit` of the object; None without.
        labels: Returns the labels of the child namespace; called only if a selector needs them.
    """
    mode = mode_for(spec, kind)
    if annotation is None:
        return mode
    if not selects(annotation, labels):
        return InheritanceMode.NONE
    if mode is not InheritanceMode.NONE:
        return mode
    if spec.mode is Mode.WORKSPACE:
        return InheritanceMode.SYNC
    return for_subtenants(kind)


def selects(annotation: str, labels: Callable[[], Mapping[str, str]]) -> bool:
    """Return whether the annotation of an object selects a child; one that does not parse selects none."""
    if annotation == InheritAnnotation.ALL:
        return True
    if annotation == InheritAnnotation.NONE:
        return False
    requirements = parse_selector(annotation)
    return requirements is not None and matches(requirements, labels())


# -- selectors ------------------------------------------------------------------------------------


class SelectorTerm(msgspec.Struct, frozen=True):
    """One requirement of a selector: without values the label must be there, or not be there."""

    key: str
    values: frozenset[str]
    negated: bool = False


_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_EQUALS = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_IN = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(((?:\s*{_VALUE}\s*,)*\s*{_VALUE}\s*)\)\s*")
_SPLIT = re.compile(r",(?![^(]*\))")


@lru_cache(maxsize=1024)
def parse_selector(text: str) -> tuple[SelectorTerm, ...] | None:
    """Return the requirements of a label selector, None if it does not parse.

    Source: Kubernetes, "Labels and Selectors", equality-based and set-based requirements.
    """
    found: list[SelectorTerm] = []
    for part in _SPLIT.split(text):
        if match := _EXISTS.fullmatch(part):
            found.append(SelectorTerm(match[2], frozenset(), negated=bool(match[1])))
        elif match := _EQUALS.fullmatch(part):
            found.append(SelectorTerm(match[1], frozenset({match[3]}), negated=match[2] == "!="))
        elif match := _IN.fullmatch(part):
            values = frozenset(value.strip() for value in match[3].split(","))
            found.append(SelectorTerm(match[1], values, negated=match[2] == "notin"))
        else:
            return None
    return tuple(found)


def is_valid(annotation: str) -> bool:
    """Return whether a value of `tenantry.dev/inherit` is valid."""
    return annotation in {InheritAnnotation.ALL, InheritAnnotation.NONE} or parse_selector(annotation) is not None


def matches(requirements: tuple[SelectorTerm, ...], labels: Mapping[str, str]) -> bool:
    """Return whether labels meet every requirement; a missing label meets a negated one."""
    return all(
        (each.key in labels and (not each.values or labels[each.key] in each.values)) is not each.negated
        for each in requirements
    )


# -- what -----------------------------------------------------------------------------------------


def content(kind: str, whole: Mapping[str, V]) -> dict[str, V]:
    """Return the top-level fields of an object that a copy has, sorted by name."""
    # The tokens of a ServiceAccount are the controller's, and of its own namespace.
    dropped = {"secrets"} if kind == SERVICE_ACCOUNTS.full_name else set[str]()
    return {key: whole[key] for key in sorted(whole) if key not in _LEFT_OUT and key not in dropped}


def carried(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels or annotations of an object that its copies have, sorted by key."""
    return {key: given[key] for key in sorted(given) if is_carried(key)} if given else {}


@lru_cache(maxsize=4096)
def is_carried(key: str) -> bool:
    """Return whether copies have a label or annotation: not Tenantry's marks, nor a deployment tool's."""
    return key != MANAGED_BY and not is_protected(key) and not key.startswith(_TOOLS)

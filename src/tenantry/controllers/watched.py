"""How the kinds are watched that several controllers share: one cache each, read in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.marks import MANAGED_BY, MANAGER, SUBNAMESPACE_UID, TENANT
from tenantry.api.model import Resource
from tenantry.engine.cache import Change
from tenantry.engine.observed import Observed, observe
from tenantry.engine.runtime import Watch

BY_TENANT = "tenant"
BY_NAMESPACE = "namespace"
BY_BINDING = "binding"
"""Child namespaces by the uid of the Subnamespace that they are bound to."""

OURS = {"labelSelector": f"{MANAGED_BY}={MANAGER}"}
"""What is read of kinds of which only our own objects matter; others may be inherited, closed, or in the way."""

_ONLY_OURS = frozenset({ResourceQuota.resource})


def selectors_of(resource: Resource) -> dict[str, str] | None:
    """Return which objects of a kind are read; None for all of them."""
    return OURS if resource in _ONLY_OURS else None


def watch(resource: Resource, keys: Callable[[Change[Observed]], Iterable[str]], *, optional: bool = False) -> Watch:
    """Return how a controller watches a kind of which the cache keeps what it observes."""
    indexes: dict[str, Callable[[Any], Iterable[str]]] = {BY_TENANT: tenant_of}
    if resource.namespaced and resource not in _ONLY_OURS:
        indexes[BY_NAMESPACE] = namespace_of
    if resource.plural == "namespaces":
        indexes[BY_BINDING] = binding_of
    return Watch(
        resource=resource,
        decode=lambda raw: observe(resource, raw),
        keys=keys,
        selectors=selectors_of(resource),
        indexes=indexes,
        optional=optional,
    )


def tenant_of(found: Observed) -> list[str]:
    """Return the tenant that an object of ours says it belongs to."""
    name = found.labels.get(TENANT)
    return [name] if name and found.labels.get(MANAGED_BY) == MANAGER else []


def namespace_of(found: Observed) -> list[str]:
    """Return an object's namespace."""
    return [found.namespace]


def binding_of(found: Observed) -> list[str]:
    """Return the uid of the Subnamespace that a namespace is bound to."""
    uid = found.labels.get(SUBNAMESPACE_UID)
    return [uid] if uid else []

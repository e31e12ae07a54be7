"""The Subnamespaces that a change concerns: the one of the child, and those below that inherit from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenantry.api.kubernetes import ResourceQuota, RoleBinding
from tenantry.api.marks import TENANT_UID
from tenantry.api.model import Resource
from tenantry.api.runtime import RuntimeClass
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane, tenantnamespace
from tenantry.controllers.conclusion import waits_for_room
from tenantry.controllers.lineage import subnamespace_key
from tenantry.controllers.runtime import asked_of, is_news
from tenantry.controllers.subnamespace.gather import SubnamespaceCaches, inherits_people
from tenantry.controllers.watched import BY_ADOPTION, BY_NAMESPACE, is_same, tenant_of
from tenantry.engine.cache import Change
from tenantry.engine.observed import Observed


def below(caches: SubnamespaceCaches, namespace: str) -> Iterator[str]:
    """Yield the key of every Subnamespace in a namespace and further down."""
    waiting = [namespace]
    while waiting:
        for found in caches.subnamespaces.by_index(BY_NAMESPACE, waiting.pop()):
            yield found.key
            # A status is no proof: one that names its own namespace must not become an endless loop.
            if found.status.namespace and found.status.namespace != found.metadata.namespace:
                waiting.append(found.status.namespace)


def by_subnamespace(change: Change[Subnamespace], caches: SubnamespaceCaches) -> Iterable[str]:
    """Return the Subnamespaces that a change of one concerns: itself, its parent, and those that inherit its owners."""
    before, after = change.before, change.after
    value = after or before
    if value is None:
        return ()
    keys = {value.key}
    if before is None or after is None:
        parent = caches.namespaces.get(value.metadata.namespace)
        above = subnamespace_key(parent) if parent is not None else ""
        keys.update([above] if above else [])
        keys.update(found.key for found in caches.subnamespaces.by_index(BY_ADOPTION, value.key))
    elif after.status.namespace and _handed_down(before) != _handed_down(after):
        keys.update(below(caches, after.status.namespace))
    elif after.status.namespace != before.status.namespace:
        # Children that were created before it had its namespace wait for this.
        keys.update(found.key for found in caches.subnamespaces.by_index(BY_NAMESPACE, after.status.namespace))
    return keys


def _handed_down(value: Subnamespace) -> object:
    return value.spec.owners, inherits_people(value), value.spec.rules, value.spec.isolation


def by_tenant(change: Change[Tenant], caches: SubnamespaceCaches) -> Iterable[str]:
    """Return the Subnamespaces that a change of a tenant concerns: all of its own, if its spec has changed."""
    before, after = change.before, change.after
    # The status of a tenant concerns no child.
    if after is None or (before is not None and before.metadata.generation == after.metadata.generation):
        return ()
    return below(caches, after.metadata.name)


def by_defaults(change: Change[TenancyDefaults], caches: SubnamespaceCaches) -> Iterable[str]:
    """Return the Subnamespaces that a change of TenancyDefaults concerns: all, if the rules have changed."""
    before, after = change.before, change.after
    same = before is not None and after is not None and before.spec.rules == after.spec.rules
    return () if same and asked_of(before) == asked_of(after) else [found.key for found in caches.subnamespaces]


def by_runtime_class(change: Change[RuntimeClass], caches: SubnamespaceCaches) -> Iterable[str]:
    """Return the Subnamespaces that a change of the runtimes concerns: all, because it may be the sandbox."""
    return [found.key for found in caches.subnamespaces] if is_news(change) else ()


def by_control_plane(change: Change[VirtualControlPlane], caches: SubnamespaceCaches) -> Iterable[str]:
    """Return the Subnamespace whose control plane has changed: it has its name."""
    value = change.after or change.before
    namespace = caches.namespaces.get(value.metadata.namespace) if value is not None else None
    key = subnamespace_key(namespace) if namespace is not None else ""
    if value is None or key.rpartition("/")[2] != value.metadata.name or not controlplane.is_news(change):
        return ()
    return [key]


def by_child(resource: Resource, change: Change[Observed], caches: SubnamespaceCaches) -> Iterable[str]:
    """Return the Subnamespaces that a change of a namespace, or of an object in one, concerns."""
    before, after = change.before, change.after
    # Also of a ResourceQuota that an administrator created.
    makes_room = resource == ResourceQuota.resource and _makes_room(before, after, caches)
    if resource == ResourceQuota.resource and not (makes_room or _is_news(before, after)):
        return ()
    keys: set[str] = set()
    for value in (before, after):
        if value is None:
            continue
        if not value.namespace:
            keys.update(_by_namespace(value, caches))
        elif makes_room or resource == RoleBinding.resource or tenant_of(value) or tenantnamespace.has_our_name(value):
            namespace = caches.namespaces.get(value.namespace)
            key = subnamespace_key(namespace) if namespace is not None else ""
            keys.update([key] if key else [])
    if resource.namespaced:
        return keys
    value = after or before
    if value is not None and (before is None or after is None or _is_parent_news(before, after)):
        keys.update(found.key for found in caches.subnamespaces.by_index(BY_NAMESPACE, value.name))
        if after is None:
            keys.update(key for tenant in tenant_of(value) for key in caches.tree_limit.waiting(tenant))
        if after is None and value.name in caches.wanted:
            keys.add(caches.wanted.pop(value.name))
    return keys


def _is_parent_news(before: Observed, after: Observed) -> bool:
    """Return whether the change of a namespace concerns the Subnamespaces in it; one can be given to its tenant."""
    return before.deleting != after.deleting or before.labels.get(TENANT_UID) != after.labels.get(TENANT_UID)


def _is_news(before: Observed | None, after: Observed | None) -> bool:
    """Return whether the change of a ResourceQuota concerns its child: its counts differ, or are exceeded.

    The quota controller reports the share of the quota.
    """
    value = after or before
    if value is None or value.name != tenantnamespace.COUNTS:
        return False
    return (
        before is None
        or after is None
        or not is_same(before, after)
        or tenantnamespace.is_news_of_counts(before, after)
    )


def _makes_room(before: Observed | None, after: Observed | None, caches: SubnamespaceCaches) -> bool:
    """Return whether the child of a ResourceQuota waits for room, and may have it now."""
    if before is None:
        return False
    namespace = caches.namespaces.get(before.namespace)
    found = caches.subnamespaces.get(subnamespace_key(namespace)) if namespace is not None else None
    if found is None or not waits_for_room(found.status.conditions):
        return False
    return tenantnamespace.has_more_room(before, after)


def _by_namespace(value: Observed, caches: SubnamespaceCaches) -> Iterator[str]:
    key = subnamespace_key(value)
    if key:
        yield key
    for found in caches.subnamespaces.by_index(BY_ADOPTION, value.name):
        yield found.key

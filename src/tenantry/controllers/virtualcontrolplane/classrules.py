"""Which classes of the host a control plane shows, by the rules of its namespace. The glue.

TenancyRules of the namespace, or else those that all share ─┐
labels of the namespace ─────────────────────────────────────┴─► policy.classes ─► ClassMirror

No rule names VolumeSnapshotClasses. One appears if its driver makes the volumes of a StorageClass that users may name,
and they may name one with this policy of deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Resource, object_key
from tenantry.api.tenancyrules import NAME, Section, TenancyRules
from tenantry.controllers import watched
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.mirror import classmirror
from tenantry.mirror.classes import STORAGE, LowerClass
from tenantry.policy import classes


class RulesAboutClasses(msgspec.Struct, frozen=True, gc=False):
    """The part of an object of TenancyRules that decides about classes.

    Args:
        key: `namespace/name`.
        version: The resourceVersion.
        enforced: What is refused.
    """

    key: str
    version: int
    enforced: Section


_rules = msgspec.json.Decoder(TenancyRules)


def decode(data: msgspec.Raw) -> RulesAboutClasses:
    """Return what is cached of TenancyRules."""
    found = _rules.decode(data)
    enforced = classes.about_classes(found.spec.enforce)
    return RulesAboutClasses(found.key, int(found.metadata.resource_version or 0), enforced)


def watch(keys: Callable[[Change[RulesAboutClasses]], Iterable[str]]) -> Watch:
    """Return the watch of the rules, in the form of the caches of mirrored objects."""
    return Watch(resource=TenancyRules.resource, decode=decode, keys=keys)


class NamespaceClassRules:
    """The rules about classes in the namespace of one control plane; see `ClassRules`.

    Args:
        namespace: The namespace.
        home: Its caches have the namespaces.
        lower: Its caches have the rules.
    """

    def __init__(self, namespace: str, home: Cluster, lower: Cluster) -> None:
        self._namespace = namespace
        self._home = home
        self._lower = lower
        self._own_key = object_key(namespace, NAME)
        self._shared_key = object_key(SYSTEM_NAMESPACE, NAME)

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """See `ClassRules`."""

        def of_rules(change: Change[RulesAboutClasses]) -> Iterable[str]:
            before, after = change.before, change.after
            found = after or before
            if found is None or found.key not in {self._own_key, self._shared_key}:
                return ()
            is_same = before is not None and after is not None and before.enforced == after.enforced
            return () if is_same else keys()

        def of_namespace(change: Change[Observed]) -> Iterable[str]:
            found = change.after or change.before
            if found is None or found.name != self._namespace:
                return ()
            before, after = (each.labels if each is not None else None for each in (change.before, change.after))
            return () if before == after else keys()

        rules = msgspec.structs.replace(watch(of_rules), cluster=self._lower)
        namespaces = msgspec.structs.replace(watched.watch(Namespace.resource, of_namespace), cluster=self._home)
        return [rules, namespaces]

    def allows(self, resource: Resource, lower: LowerClass) -> bool:
        """See `ClassRules`."""
        return self.allows_policy(resource, lower, str(lower.content.get("reclaimPolicy") or classes.DELETE))

    def allows_policy(self, resource: Resource, lower: LowerClass, policy: str) -> bool:
        """Return whether users may name a class if it had a reclaim policy."""
        namespace, rules = self._home.lookup(Namespace.resource, self._namespace), self._in_force()
        if namespace is None or rules is None:
            # The host refuses everything without rules.
            return False
        return classes.is_allowed(resource.kind, lower.key, rules, namespace.labels, reclaim_policy=policy)

    def default(self, resource: Resource) -> str:
        """See `ClassRules`."""
        rules = self._in_force()
        return classes.default_class(resource.kind, rules) if rules is not None else ""

    def _in_force(self) -> Section | None:
        cache = self._lower.cache(TenancyRules.resource)
        found: RulesAboutClasses | None = cache.get(self._own_key) or cache.get(self._shared_key)
        return found.enforced if found is not None else None


class SnapshotClassRules:
    """The rules about VolumeSnapshotClasses in the namespace of one control plane; see `ClassRules`.

    Args:
        rules: The rules about StorageClasses.
        lower: Its caches have the StorageClasses.
    """

    def __init__(self, rules: NamespaceClassRules, lower: Cluster) -> None:
        self._rules = rules
        self._lower = lower

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """See `ClassRules`."""
        storage = classmirror.lower_watch(STORAGE, lambda _: keys())
        return [*self._rules.watches(keys), msgspec.structs.replace(storage, cluster=self._lower)]

    def allows(self, resource: Resource, lower: LowerClass) -> bool:  # noqa: ARG002 - there is one kind
        """See `ClassRules`."""
        policy, storage = str(lower.content.get("deletionPolicy")), STORAGE.resource
        known: Iterable[LowerClass] = self._lower.cache(storage)
        return any(
            self._rules.allows(storage, each) and self._rules.allows_policy(storage, each, policy)
            for each in known
            if each.driver == lower.driver
        )

    def default(self, resource: Resource) -> str:  # noqa: ARG002 - no rule names one
        """See `ClassRules`."""
        return ""

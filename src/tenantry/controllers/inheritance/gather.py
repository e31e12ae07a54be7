"""What can be inherited, and which children inherit it, read from the caches of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource, object_key
from tenantry.api.subnamespace import InheritanceMode, Subnamespace
from tenantry.controllers.watched import BY_BINDING, BY_NAMESPACE
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Inheritable, Observed
from tenantry.engine.plan import Blocked, IsLike, Lookup
from tenantry.world import inheritance

BY_INHERITANCE = "inheritance"
"""Objects by the namespace whose children can inherit them; see also the suffixes."""

ANNOTATED = "!"
"""After a namespace in that index: only its objects with the annotation `tenantry.dev/inherit`."""

COPIES = "<"
"""After a namespace in that index: the objects that it inherited itself."""


class ChildNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A child that inherits.

    Args:
        subnamespace: Its Subnamespace.
        namespace: Its namespace.
    """

    subnamespace: Subnamespace
    namespace: Observed

    @property
    def parent(self) -> str:
        """Return the namespace that it inherits from."""
        return self.subnamespace.metadata.namespace

    @property
    def name(self) -> str:
        """Return the name of its namespace."""
        return self.namespace.name

    @property
    def copied(self) -> tuple[str, ...]:
        """Return the kinds of which it received its copies that are made once."""
        return self.subnamespace.status.copied

    @property
    def is_suspended(self) -> bool:
        """Return whether no user has access."""
        return marks.SUSPENDED in self.namespace.labels

    def labels(self) -> Mapping[str, str]:
        """Return the labels that the selectors of objects are compared with."""
        return self.namespace.labels

    def own_marks(self) -> dict[str, str]:
        """Return the labels of a copy in it that is kept in sync."""
        return {
            marks.MANAGED_BY: marks.MANAGER,
            marks.TENANT: self.namespace.labels.get(marks.TENANT, ""),
            marks.INHERITED_FROM: self.parent,
        }


class InheritanceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what one child inherits.

    Args:
        child: The child.
        kinds: The kinds that can be inherited, in the order of copying.
        sources: By kind, the objects of the parent that the child may inherit.
        copies: By kind, the objects that the child has inherited.
        problems: Why kinds that the child requests cannot be inherited.
        lookup: What is there, by kind and key.
        is_like: See `IsLike`.
        present: By kind, how many objects the child has.
    """

    child: ChildNamespace
    kinds: tuple[Resource, ...]
    sources: Mapping[Resource, Sequence[Observed]]
    copies: Mapping[Resource, Sequence[Observed]]
    problems: tuple[Blocked, ...]
    lookup: Lookup
    is_like: IsLike
    present: Mapping[Resource, int] = {}


class SourceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what children have of one object of their parent.

    Args:
        resource: The object's kind.
        name: Its name.
        children: The children.
        lookup: What is there, by kind and key.
        is_like: See `IsLike`.
        present: How many objects of the kind each child has, by namespace.
    """

    resource: Resource
    name: str
    children: Sequence[ChildNamespace]
    lookup: Lookup
    is_like: IsLike
    present: Mapping[str, int] = {}


def is_copy(found: Observed) -> bool:
    """Return whether an object is kept in sync with one of the parent. A policy guards the label."""
    return marks.INHERITED_FROM in found.labels


def is_source(found: Observed) -> bool:
    """Return whether children can inherit an object: copies are passed on, Tenantry's other objects are not."""
    ours = found.labels.get(marks.MANAGED_BY) == marks.MANAGER
    return isinstance(found, Inheritable) and (not ours or is_copy(found))


def inheritance_keys(found: Observed) -> list[str]:
    """Return the keys of an object in the index BY_INHERITANCE."""
    where: list[str] = []
    if is_source(found):
        where.append(found.namespace)
        # Most objects have no annotation: children that inherit none of a kind must not scan all of them.
        if marks.INHERIT in found.annotations:
            where.append(found.namespace + ANNOTATED)
    if is_copy(found):
        where.append(found.namespace + COPIES)
    return where


def has_children(cluster: Cluster, namespace: str) -> bool:
    """Return whether a namespace has Subnamespaces."""
    subnamespaces: Cache[Subnamespace] = cluster.cache(Subnamespace.resource)
    return subnamespaces.count(BY_NAMESPACE, namespace) > 0


def concerns(cluster: Cluster, namespace: str) -> bool:
    """Return whether a namespace has children, or is one."""
    found = cluster.lookup(Namespace.resource, namespace)
    is_child = found is not None and marks.SUBNAMESPACE_UID in found.labels
    return is_child or has_children(cluster, namespace)


def is_going(cluster: Cluster, namespace: str) -> bool:
    """Return whether a namespace is gone or being deleted: its children must keep what it loses by that."""
    found = cluster.lookup(Namespace.resource, namespace)
    return found is None or found.deleting


def children(cluster: Cluster, namespace: str) -> Iterator[ChildNamespace]:
    """Yield the children of a namespace that exist."""
    namespaces: Cache[Observed] = cluster.cache(Namespace.resource)
    subnamespaces: Cache[Subnamespace] = cluster.cache(Subnamespace.resource)
    for subnamespace in subnamespaces.by_index(BY_NAMESPACE, namespace):
        for found in namespaces.by_index(BY_BINDING, subnamespace.metadata.uid):
            # Kubernetes refuses to create objects in a terminating namespace.
            if not found.deleting:
                yield ChildNamespace(subnamespace=subnamespace, namespace=found)


def child_of(cluster: Cluster, namespace: str) -> ChildNamespace | None:
    """Return the child that a namespace is; None if it is no child."""
    found = cluster.lookup(Namespace.resource, namespace)
    if found is None or found.deleting:
        return None
    key = object_key(found.labels.get(marks.PARENT, ""), found.labels.get(marks.SUBNAMESPACE, ""))
    subnamespace: Subnamespace | None = cluster.cache(Subnamespace.resource).get(key)
    # Bound by uid: a namespaced object cannot own a namespace, and a name can be used again.
    if subnamespace is None or subnamespace.metadata.uid != found.labels.get(marks.SUBNAMESPACE_UID):
        return None
    return ChildNamespace(subnamespace=subnamespace, namespace=found)


def gather(
    child: ChildNamespace,
    caches: Mapping[Resource, Cache[Observed]],
    problems: Sequence[Blocked],
    *,
    lookup: Lookup,
    is_like: IsLike,
) -> InheritanceInputs:
    """Read what decides the inheritance of one child.

    Args:
        child: The child.
        caches: Of the kinds that can be inherited, in the order of copying; each has the index BY_INHERITANCE.
        problems: Why kinds that the child requests cannot be inherited.
        lookup: As in `InheritanceInputs`.
        is_like: As in `InheritanceInputs`.
    """
    kinds = tuple(caches)
    return InheritanceInputs(
        child=child,
        kinds=kinds,
        sources={kind: caches[kind].by_index(BY_INHERITANCE, _sources(kind, child)) for kind in kinds},
        copies={kind: caches[kind].by_index(BY_INHERITANCE, child.name + COPIES) for kind in kinds},
        present={kind: caches[kind].count(BY_NAMESPACE, child.name) for kind in kinds},
        problems=tuple(problems),
        lookup=lookup,
        is_like=is_like,
    )


def _sources(resource: Resource, child: ChildNamespace) -> str:
    """Return the index key of the objects that a child may inherit: those with the annotation if its spec has None."""
    mode = inheritance.mode_for(child.subnamespace.spec, resource.full_name)
    return child.parent if mode is not InheritanceMode.NONE else child.parent + ANNOTATED


def gather_source(
    cluster: Cluster, resource: Resource, name: str, inheriting: Sequence[ChildNamespace]
) -> SourceInputs:
    """Read what decides the copies of one object in some children of its namespace."""
    objects = cluster.cache(resource)
    return SourceInputs(
        resource=resource,
        name=name,
        children=inheriting,
        lookup=cluster.lookup,
        is_like=cluster.writer.is_like,
        present={child.name: objects.count(BY_NAMESPACE, child.name) for child in inheriting},
    )

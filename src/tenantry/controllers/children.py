"""The writes by which children of an object become as its controller wants them: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api.errors import AlreadyExists, Conflict, NotFound
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Json, KubernetesObject, ObjectMeta, OwnerReference
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite, merge_patch

Child = VirtualControlPlane | SliceClaim | NodeHandover


def meta_of(owner: KubernetesObject, name: str, labels: Mapping[str, str] = {}) -> ObjectMeta:
    """Return the metadata of a child in the namespace of its owner."""
    reference = OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )
    return ObjectMeta(
        name=name,
        namespace=owner.metadata.namespace,
        labels={MANAGED_BY: MANAGER, **labels},
        owner_references=(reference,),
    )


def created(wanted: KubernetesObject) -> DirectWrite:
    """Return the creation of a child."""
    # AlreadyExists: the cache has not seen the object yet; its event continues.
    return DirectWrite(request=request.create(wanted), ignores=(AlreadyExists,))


def kept(wanted: Child, found: Child | None) -> Iterable[DirectWrite]:
    """Return the write by which a child is as it should be: nothing if it is, or if it is being deleted."""
    if found is None:
        yield created(wanted)
        return
    if found.metadata.deletion_timestamp:
        return
    spec: Json = merge_patch(msgspec.to_builtins(found.spec), msgspec.to_builtins(wanted.spec))
    meta = found.metadata
    labels = {key: value for key, value in wanted.metadata.labels.items() if meta.labels.get(key) != value}
    notes = {key: value for key, value in wanted.metadata.annotations.items() if meta.annotations.get(key) != value}
    if not spec and not labels and not notes:
        return
    about: Json = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    about |= {key: each for key, each in (("labels", labels), ("annotations", notes)) if each}
    body: Json = {"metadata": about, **({"spec": spec} if spec else {})}
    # Conflict: the event of the other write wakes the owner.
    patch = request.patch(found.resource, meta.namespace, meta.name, body)
    yield DirectWrite(request=patch, ignores=(NotFound, Conflict))


def deleted(found: Iterable[KubernetesObject]) -> Iterable[DirectWrite]:
    """Return the deletions of children that are not being deleted."""
    for each in found:
        meta = each.metadata
        if not meta.deletion_timestamp:
            yield DirectWrite(request=request.delete(each.resource, meta.namespace, meta.name, uid=meta.uid))

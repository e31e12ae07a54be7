"""The writes by which children of Cluster API's objects become as they should be: pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api import reasons
from tenantry.api.clusterapi import CLUSTER_API_FINALIZER, CLUSTER_NAME, PAUSED
from tenantry.api.errors import AlreadyExists, Conflict, NotFound
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Json, KubernetesObject, ObjectMeta, OwnerReference
from tenantry.api.slice import SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine import request
from tenantry.engine.plan import Blocked, DirectWrite, merge_patch

NO_CLUSTER = Blocked(
    reason=reasons.PROGRESSING,
    message=f"no Cluster owns it yet: Cluster API sets the label {CLUSTER_NAME}",
    passing=True,
)
HELD = Blocked(reason=reasons.PAUSED, message="it is paused, by its annotation or by spec.paused of its Cluster")


def meta_of(owner: KubernetesObject, name: str) -> ObjectMeta:
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
        labels={MANAGED_BY: MANAGER},
        owner_references=(reference,),
    )


def is_paused(found: KubernetesObject, cluster: Json | None) -> bool:
    """Return whether the controllers leave an object as it is.

    Args:
        found: The object.
        cluster: The Cluster that it belongs to; None if there is none.
    """
    spec: Json = cluster.get("spec", {}) if cluster is not None else {}
    return PAUSED in found.metadata.annotations or bool(spec.get("paused"))


def is_child(owner: KubernetesObject, found: KubernetesObject) -> bool:
    """Return whether an object is controlled by another one.

    The kind counts, too: a policy refuses to users controlling references of these kinds only.
    """
    kind, uid = owner.resource.kind, owner.metadata.uid
    return any((each.controller, each.kind, each.uid) == (True, kind, uid) for each in found.metadata.owner_references)


def taken(found: KubernetesObject) -> Blocked:
    """Return the obstacle that another client has an object of the name of a child."""
    return Blocked(
        reason=reasons.OBJECT_EXISTS,
        message=f"{found.resource.kind} {found.key!r} exists already and belongs to another object: delete it",
    )


def kept(
    wanted: VirtualControlPlane | SliceClaim, found: VirtualControlPlane | SliceClaim | None
) -> Iterable[DirectWrite]:
    """Return the write by which a child is as it should be: nothing if it is, or if it is being deleted."""
    if found is None:
        # AlreadyExists: the cache has not seen the object yet; its event continues.
        yield DirectWrite(request=request.create(wanted), ignores=(AlreadyExists,))
        return
    spec = merge_patch(msgspec.to_builtins(found.spec), msgspec.to_builtins(wanted.spec))
    if found.metadata.deletion_timestamp or not spec:
        return
    meta = found.metadata
    body: Json = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "spec": spec}
    patch = request.patch(found.resource, meta.namespace, meta.name, body)
    yield DirectWrite(request=patch, ignores=(NotFound, Conflict))


def deleted(found: KubernetesObject) -> tuple[DirectWrite, ...]:
    """Return the deletion of a child; nothing if it is being deleted."""
    meta = found.metadata
    if meta.deletion_timestamp:
        return ()
    return (DirectWrite(request=request.delete(found.resource, meta.namespace, meta.name, uid=meta.uid)),)


def with_finalizer(found: KubernetesObject) -> tuple[DirectWrite, ...]:
    """Return the write that adds the finalizer; nothing if it is there."""
    names = found.metadata.finalizers
    if CLUSTER_API_FINALIZER in names:
        return ()
    wanted = request.finalizers(found, (*names, CLUSTER_API_FINALIZER))
    return (DirectWrite(request=wanted, ignores=(NotFound, Conflict)),)


def without_finalizer(found: KubernetesObject) -> tuple[DirectWrite, ...]:
    """Return the write that removes the finalizer; nothing if it is not there."""
    names = found.metadata.finalizers
    if CLUSTER_API_FINALIZER not in names:
        return ()
    wanted = request.finalizers(found, tuple(each for each in names if each != CLUSTER_API_FINALIZER))
    return (DirectWrite(request=wanted, ignores=(NotFound, Conflict)),)

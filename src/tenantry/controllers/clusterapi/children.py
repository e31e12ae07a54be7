"""What the controllers of Cluster API's objects share about these and their children: pure."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.clusterapi import CLUSTER_API_FINALIZER, CLUSTER_NAME, PAUSED
from tenantry.api.errors import Conflict, NotFound
from tenantry.api.model import Json, KubernetesObject
from tenantry.engine import request
from tenantry.engine.plan import Blocked, DirectWrite

NO_CLUSTER = Blocked(
    reason=reasons.PROGRESSING,
    message=f"no Cluster owns it yet: Cluster API sets the label {CLUSTER_NAME}",
    passing=True,
)
HELD = Blocked(reason=reasons.PAUSED, message="it is paused, by its annotation or by spec.paused of its Cluster")


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

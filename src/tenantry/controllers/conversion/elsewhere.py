"""The other namespaces inside a control plane, which become Subnamespaces when its owner returns: pure.

inside  Namespace shop: Deployment web with 0 replicas   host  Subnamespace shop ─► namespace shop-<16 digits>: the same

All pods are in one namespace of the host, and Kubernetes moves no pod to another one. So only what does not run moves:
workloads with 0 replicas, and objects without an address or a volume. Users scale workloads down before the return, and
up again in the Subnamespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tenantry.api import reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.subnamespace import MAX_NAME, Inheritance, Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.wording import shortened
from tenantry.controllers.conversion import objects
from tenantry.controllers.conversion.moves import Worlds
from tenantry.controllers.conversion.objects import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    REPLICA_SETS,
    REVISIONS,
    STATEFUL_SETS,
    name_of,
)
from tenantry.controllers.conversion.plan import Fate, PlannedObject
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.controllers.conversion.surroundings import OWN_NAMESPACES
from tenantry.engine.conditions import find, is_true
from tenantry.mirror.kinds import claims, ingresses, services
from tenantry.mirror.shapes import part
from tenantry.mirror.things import PODS

MOST = 16
"""How many other namespaces move: each look lists all of them."""

_SCALED = (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)
_ADDRESSED = ("NodePort", "LoadBalancer")


def others(namespaces: Iterable[Json], root: str) -> list[str]:
    """Return the names of the namespaces inside that become Subnamespaces, sorted.

    Args:
        namespaces: All namespaces inside.
        root: The one whose objects return to the namespace of the same name.
    """
    found = {name_of(each) for each in namespaces if not objects.is_deleting(each)}
    return sorted(found - {root, *OWN_NAMESPACES})


def listed_kinds(kinds: Iterable[Resource]) -> tuple[Resource, ...]:
    """Return the kinds that are listed in such a namespace: controllers make the revisions of their workloads again."""
    return tuple(each for each in kinds if each != REVISIONS)


def subnamespace(scope: ConversionScope, name: str) -> Subnamespace:
    """Return the Subnamespace that a namespace becomes: its owners are those that were administrators of it inside.

    Args:
        scope: The Tenant or Subnamespace that returns.
        name: The namespace inside.
    """
    spec = SubnamespaceSpec(mode=Mode.WORKSPACE, owners=scope.owner.spec.owners, inheritance=Inheritance())
    return Subnamespace(metadata=ObjectMeta(name=name, namespace=scope.namespace), spec=spec)


def namespaces(
    scope: ConversionScope, names: Iterable[str], children: Mapping[str, Subnamespace]
) -> Iterator[PlannedObject]:
    """Yield what happens to each of the namespaces itself.

    Args:
        scope: The Tenant or Subnamespace that returns.
        names: The namespaces inside.
        children: The Subnamespaces that there are on the host, by name.
    """
    for index, name in enumerate(names):
        refusal = _refusal(scope, name, children.get(name))
        if index >= MOST:
            refusal = f"is one more than the {MOST} that become Subnamespaces: delete those not needed"
        fate, told = (Fate.REFUSED, refusal) if refusal else (Fate.MOVED, f"becomes Subnamespace {name!r}")
        yield PlannedObject(kind=NAMESPACES.kind, name=name, fate=fate, reason=told)


def _refusal(scope: ConversionScope, name: str, child: Subnamespace | None) -> str:
    if len(name) > MAX_NAME:
        return f"has a name of more than {MAX_NAME} characters, which no Subnamespace has: create another one"
    if child is None:
        return ""
    spec = child.spec
    if child.metadata.deletion_timestamp:
        return f"has the name of Subnamespace {name!r}, which is being deleted: wait"
    if spec.mode is not Mode.WORKSPACE or spec.isolation.control_plane is not ControlPlaneChoice.SHARED:
        what = "a Subtenant" if spec.mode is not Mode.WORKSPACE else "a Subnamespace with a control plane of its own"
        return f"has the name of Subnamespace {name!r}, which is {what}: move its objects to another namespace"
    foreign = sorted(each.name for each in set(spec.owners) - set(scope.owner.spec.owners))
    if foreign:
        return (
            f"has the name of Subnamespace {name!r}, which {shortened(foreign)} own, too: remove these owners until"
            " the objects have moved"
        )
    return ""


def waits(name: str, child: Subnamespace | None) -> str:
    """Return what a Subnamespace lacks before objects move to it; "" for nothing."""
    ready = find(child.status.conditions, reasons.READY) if child is not None else None
    if child is None or ready is None or not child.status.namespace:
        return f"Subnamespace {name!r} is created"
    if not is_true(child.status.conditions, reasons.READY):
        return f"Subnamespace {name!r} is not ready: {ready.message}"
    return ""


def fate(worlds: Worlds, resource: Resource, found: Json) -> tuple[Fate, str] | None:
    """Return what happens to an object, and why, if that differs from an object in the namespace that returns.

    Args:
        worlds: Both sides of the namespace.
        resource: The kind.
        found: The object inside.
    """
    spec, owner = part(found, "spec"), objects.controller_of(found)
    up = f"and up again in Subnamespace {worlds.source!r} after the return"
    told = ""
    if resource == PODS:
        if owner.get("kind") == JOBS.kind:
            return Fate.DELETED, ""  # with its Job; if that runs, it refuses
        told = f"runs, and no pod changes its namespace: scale its workload to 0, {up}, or delete it"
    elif resource == claims.RESOURCE:
        told = "keeps its volume in the namespace of all pods: copy its data to another claim after the return"
    elif resource == ingresses.RESOURCE:
        told = f"would lose its address: delete it, and create it again in Subnamespace {worlds.source!r}"
    elif resource == services.RESOURCE and spec.get("type") in _ADDRESSED:
        told = f"would lose its address: change its type {spec['type']} to ClusterIP"
    elif resource == services.RESOURCE and (spec.get("selector") or spec.get("type") == "ExternalName"):
        return Fate.MOVED, "" if spec.get("type") == "ExternalName" else "gets another clusterIP"
    elif resource in _SCALED and not owner and spec.get("replicas", 1) != 0:
        told = f"has replicas, and no pod changes its namespace: scale it to 0, {up}"
    return (Fate.REFUSED, told) if told else None

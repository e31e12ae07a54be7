"""Which controller owns what on the host after a move, and which rights cover others: pure.

Kubernetes' controllers take over pods and ReplicaSets without an owner that their selector matches, whatever owned them
inside. So a selector that matches what belongs to another refuses the conversion: a ReplicaSet deletes what it has too
much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenantry.api.model import Json, Resource
from tenantry.controllers.conversion import objects
from tenantry.controllers.conversion.moves import Worlds
from tenantry.controllers.conversion.objects import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, name_of
from tenantry.controllers.conversion.plan import Fate, PlannedObject
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import PODS
from tenantry.world.selectors import meets

_HASH = "pod-template-hash"
_PAIRS = ((REPLICA_SETS, PODS), (STATEFUL_SETS, PODS), (DEPLOYMENTS, REPLICA_SETS))
_ANY = "*"


def comparable(template: Json) -> Json:
    """Return the template of a workload as the controller of Deployments compares it: without its hash."""
    meta = part(template, "metadata")
    labels = {key: value for key, value in part(meta, "labels").items() if key != _HASH}
    return {**template, "metadata": {**meta, "labels": labels}}


def overlaps(worlds: Worlds) -> Iterator[PlannedObject]:
    """Yield the workloads that would take over what belongs to another."""
    for resource, kind in _PAIRS:
        for each in sorted(worlds.inside.all(resource), key=name_of):
            other = _other(worlds, each, kind)
            if other:
                told = f"selects {kind.kind} {other!r}, which belongs to another, or to none: change its labels"
                yield PlannedObject(kind=resource.kind, name=worlds.told(name_of(each)), fate=Fate.REFUSED, reason=told)


def _other(worlds: Worlds, owner: Json, kind: Resource) -> str:
    selector, uid = part(part(owner, "spec"), "selector"), owner["metadata"].get("uid")
    for each in worlds.inside.all(kind):
        if objects.controller_of(each).get("uid") != uid and selects(selector, objects.labels(each)):
            return name_of(each)
    return ""


def selects(selector: Json, labels: Json) -> bool:
    """Return whether a label selector selects an object; an empty one selects nothing here.

    Args:
        selector: As workloads have it.
        labels: The labels of the object.
    """
    equal, expressions = part(selector, "matchLabels"), items(selector, "matchExpressions")
    if not equal and not expressions:
        return False
    return all(labels.get(key) == value for key, value in equal.items()) and all(
        meets(labels, str(each.get("key")), str(each.get("operator")), each.get("values") or ()) for each in expressions
    )


# -- rights ---------------------------------------------------------------------------------------


def uncovered(wanted: Sequence[Json], given: Sequence[Json]) -> str:
    """Return what a Role grants that owners do not have on the host, and what to do; "" if they have all of it.

    Source: kubernetes/pkg/registry/rbac/validation/rule.go (Covers).

    Args:
        wanted: The rules of the Role.
        given: The rules of the ClusterRole of owners.
    """
    for rule in wanted:
        if items_of(rule, "nonResourceURLs"):
            return "grants paths of the API server, which owners do not have on the host: remove them"
        for group in items_of(rule, "apiGroups"):
            for resource in items_of(rule, "resources"):
                for verb in items_of(rule, "verbs"):
                    if not any(_covers(each, group, resource, verb) for each in given):
                        named = f"{resource}.{group}" if group else resource
                        return f"grants {verb!r} on {named!r}, which owners do not have on the host: remove it"
    return ""


def _covers(rule: Json, group: str, resource: str, verb: str) -> bool:
    if items_of(rule, "resourceNames"):
        return False
    return all(
        value in items_of(rule, field) or _ANY in items_of(rule, field)
        for field, value in (("apiGroups", group), ("resources", resource), ("verbs", verb))
    )


def items_of(rule: Json, field: str) -> list[str]:
    """Return a list of texts of a rule."""
    found: list[object] = rule.get(field) or []
    return [str(each) for each in found]

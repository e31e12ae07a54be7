"""What moves from a control plane to the namespace of its tenant on the host, and what cannot: pure.

A tenant returns as a whole or not at all. Pods, Services and claims stay as they are on the host, under the names that
they have there; everything else is copied by an allow-list (`outcopies`). What owners could not create on the host
themselves is refused here, or by the host in a dry run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenantry.api.model import Json, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tokens import TOKEN_SECRET
from tenantry.api.wording import shortened
from tenantry.controllers.conversion import elsewhere, objects, outcopies, owned
from tenantry.controllers.conversion.moves import Worlds
from tenantry.controllers.conversion.objects import (
    BASICS,
    DEPLOYMENTS,
    HIGH,
    JOBS,
    LOW,
    REPLICA_SETS,
    REVISIONS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    name_of,
)
from tenantry.controllers.conversion.plan import (
    ConversionPlan,
    Fate,
    PlannedObject,
    finalizers_reason,
    is_moved,
    of_owner,
)
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.mirror import names
from tenantry.mirror.kinds import budgets, claims, ingresses, networkpolicies, services
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import PODS

BARRIERS = (networkpolicies.RESOURCE, budgets.RESOURCE, ingresses.RESOURCE)
"""The kinds of which the host gets objects of the plain names before those of the mirror end."""

STAYING = (PODS, services.RESOURCE, claims.RESOURCE)
"""The kinds whose objects stay on the host as they are."""

COPIED = (*BASICS, *BARRIERS, *LOW, *HIGH)
"""The kinds whose objects are copied to the host."""

INSIDE = (*COPIED, *STAYING, JOBS)
HOST = (*COPIED, *STAYING)

_CONTROLLED = (REPLICA_SETS.kind, STATEFUL_SETS.kind, JOBS.kind)
_TENANTRYS = "tenantry-"
_RIGHTS_OF_SYSTEM = ("system:", _TENANTRYS)


def counterpart(worlds: Worlds, resource: Resource, above: Json) -> Json | None:
    """Return the object of the host that an object inside stands for; None if there is none.

    Args:
        worlds: Both sides.
        resource: The kind.
        above: The object inside.
    """
    computed = names.lower_name(worlds.profile.owner_uid, resource.kind, worlds.profile.namespace, name_of(above))
    return worlds.host.find(resource, computed) or worlds.host.find(resource, name_of(above))


def carried(worlds: Worlds, resource: Resource) -> list[Json]:
    """Return the objects inside that are copied to the host."""
    return [
        each
        for each in worlds.inside.all(resource)
        if not _is_kubernetes(resource, each) and not objects.is_deleting(each)
    ]


def _is_kubernetes(resource: Resource, found: Json) -> bool:
    """Return whether each namespace has its own object of this name, or an object is only of use inside."""
    if resource == SECRETS and found.get("type") == TOKEN_SECRET:
        return True
    return (resource, name_of(found)) in objects.OF_KUBERNETES


def claim_names(worlds: Worlds) -> dict[str, str]:
    """Return the names of claims on the host, by those inside, if they differ."""
    found: dict[str, str] = {}
    for each in worlds.inside.all(claims.RESOURCE):
        below = counterpart(worlds, claims.RESOURCE, each)
        if below is not None and name_of(below) != name_of(each):
            found[name_of(each)] = name_of(below)
    return found


def plan(
    scope: ConversionScope,
    worlds: Worlds,
    obstacles: Iterable[PlannedObject] = (),
    rules: Sequence[Json] | None = None,
    *,
    others: Sequence[Worlds] = (),
    children: Mapping[str, Subnamespace] | None = None,
) -> ConversionPlan:
    """Return what the return of a Tenant or Subnamespace to the API server of the host does, before anything has moved.

    Args:
        scope: The Tenant or Subnamespace.
        worlds: Both sides; of kinds of the host that are not read, nothing is compared.
        obstacles: What else is inside, and cannot move.
        rules: The rules of the ClusterRole of owners; None if it is not known.
        others: Both sides of the other namespaces inside.
        children: The Subnamespaces on the host, by name.
    """
    found = [*of_owner(scope), *obstacles, *of_objects(worlds, rules)]
    found += elsewhere.namespaces(scope, [each.source for each in others], children or {})
    for each in others:
        found += of_objects(each, rules)
    return ConversionPlan(objects=tuple(found))


def of_objects(worlds: Worlds, rules: Sequence[Json] | None) -> Iterator[PlannedObject]:
    """Yield what happens to the objects of one namespace inside.

    Args:
        worlds: Both sides of the namespace.
        rules: As for `plan`.
    """
    for resource in (*STAYING, *COPIED, JOBS):
        every = worlds.inside.all(resource)
        for index, each in enumerate(sorted(every, key=name_of)):
            if _is_kubernetes(resource, each):
                continue
            fate, reason = _fate(worlds, resource, each)
            if fate is not Fate.REFUSED and (resource in COPIED or (fate is Fate.MOVED and worlds.source)):
                refusal = _of_copy(worlds, resource, each, rules)
                fate, reason = (Fate.REFUSED, refusal) if refusal else (fate, reason)
            if index >= worlds.profile.most_objects:
                fate = Fate.REFUSED
                reason = f"is one more than the {worlds.profile.most_objects} that move: delete those not needed"
            yield PlannedObject(kind=resource.kind, name=worlds.told(name_of(each)), fate=fate, reason=reason)
    yield from owned.overlaps(worlds)


def _fate(worlds: Worlds, resource: Resource, found: Json) -> tuple[Fate, str]:
    if resource == JOBS:
        refused = (Fate.REFUSED, "has not ended: wait, or delete it")
        return (Fate.DELETED, "") if objects.is_finished(found) else refused
    other = elsewhere.fate(worlds, resource, found) if worlds.source else None
    if other is not None:
        return other
    if resource in STAYING:
        return _stays(worlds, resource, found)
    owner = objects.controller_of(found)
    refusal = ""
    if objects.is_deleting(found):
        refusal = "is being deleted: wait until it is gone"
    elif owner and not is_moved(resource, owner):
        refusal = f"belongs to {owner.get('kind')} {owner.get('name')!r}, which does not move: delete the owner first"
    elif resource in (*LOW, *HIGH):
        refusal = finalizers_reason(resource, found) or _workload(worlds, resource, found)
    return (Fate.REFUSED, refusal) if refusal else (Fate.MOVED, "")


def _stays(worlds: Worlds, resource: Resource, found: Json) -> tuple[Fate, str]:
    owner, below, spec = objects.controller_of(found), counterpart(worlds, resource, found), part(found, "spec")
    is_there = below is not None and outcopies.stands_for(below, worlds.profile, name_of(found))
    is_led = resource == services.RESOURCE and not spec.get("selector") and spec.get("type") != "ExternalName"
    fate, told = Fate.ADOPTED, ""
    if owner and resource == PODS and owner.get("kind") not in _CONTROLLED:
        fate, told = Fate.REFUSED, f"belongs to {owner.get('kind')} {owner.get('name')!r}, which does not move"
    elif owner and resource == PODS and owner.get("kind") == JOBS.kind:
        fate = Fate.DELETED  # with its Job; if that runs, it refuses
    elif is_led:
        fate, told = Fate.REFUSED, "has no selector, so that its endpoints cannot move: create it again on the host"
    elif not is_there and below is not None:
        fate, told = Fate.REFUSED, "has the name of another object on the host: delete one of them"
    elif not is_there and resource == PODS and (owner or objects.is_deleting(found)):
        fate, told = Fate.MOVED, "is not on the host yet, where its controller creates it again"
    elif not is_there:
        fate, told = Fate.REFUSED, "is not on the host, which may have refused it: wait, or delete it"
    elif below is not None and name_of(below) != name_of(found):
        told = f"keeps the name {name_of(below)!r} on the host"
        if resource == services.RESOURCE:
            told += f", with its addresses; another Service {name_of(found)!r} selects the same pods"
    return fate, told


# -- workloads ------------------------------------------------------------------------------------


def _workload(worlds: Worlds, resource: Resource, found: Json) -> str:
    if resource == STATEFUL_SETS:
        return _stateful_set(worlds, found)
    if resource == DEPLOYMENTS:
        return _deployment(worlds, found)
    return ""


def _stateful_set(worlds: Worlds, found: Json) -> str:
    """Return why a StatefulSet cannot move: Kubernetes finds its pods and claims by their names."""
    name, renamed = name_of(found), list[str]()
    for pod in worlds.inside.all(PODS):
        owner = objects.controller_of(pod)
        below = counterpart(worlds, PODS, pod)
        if owner.get("uid") == found["metadata"].get("uid") and below is not None and name_of(below) != name_of(pod):
            renamed.append(f"Pod {name_of(pod)!r}")
    others = claim_names(worlds)
    templates = [f"{part(each, 'metadata').get('name')}-{name}-" for each in _claim_templates(found)]
    named = outcopies.claimed(part(outcopies.template_of(STATEFUL_SETS, found), "spec"))
    renamed += [
        f"PersistentVolumeClaim {each!r}"
        for each in sorted(others)
        if each in named or any(each.startswith(template) for template in templates)
    ]
    if not renamed:
        return ""
    return (
        f"finds its pods and claims by their names, and these have other names on the host: {shortened(renamed)};"
        " delete it, and create it again on the host"
    )


def _claim_templates(found: Json) -> list[Json]:
    return items(part(found, "spec"), "volumeClaimTemplates")


def _deployment(worlds: Worlds, found: Json) -> str:
    """Return why a Deployment cannot move now: one without a ReplicaSet of its template would begin a rollout."""
    seen = part(found, "status").get("observedGeneration", 0)
    template = owned.comparable(outcopies.template_of(DEPLOYMENTS, found))
    for each in worlds.inside.all(REPLICA_SETS):
        is_own = objects.controller_of(each).get("uid") == found["metadata"].get("uid")
        if is_own and owned.comparable(outcopies.template_of(REPLICA_SETS, each)) == template:
            return "" if seen >= found["metadata"].get("generation", 0) else "is being changed: wait"
    return "has no ReplicaSet of its template yet: wait until its controller has made one"


# -- what the owners could not create -------------------------------------------------------------


def _of_copy(worlds: Worlds, resource: Resource, found: Json, rules: Sequence[Json] | None) -> str:
    name = name_of(found)
    if name.startswith(_TENANTRYS):
        return "has a name that is Tenantry's on the host: delete it"
    if resource == ROLE_BINDINGS:
        refusal = _binding(worlds, found)
    elif resource == ROLES and rules is not None:
        refusal = owned.uncovered(items(found, "rules"), rules)
    else:
        refusal = ""
    return refusal or _taken(worlds, resource, found)


def _binding(worlds: Worlds, found: Json) -> str:
    role = part(found, "roleRef")
    if role.get("kind") != "Role" and str(role.get("name", "")).startswith(_RIGHTS_OF_SYSTEM):
        return f"binds {role.get('kind')} {role.get('name')!r}, which tenants may not bind: delete it"
    for each in items(found, "subjects"):
        kind, name = each.get("kind"), str(each.get("name", ""))
        if kind == "ServiceAccount":
            is_foreign = worlds.place(str(each.get("namespace", ""))) is None
        else:
            is_foreign = name.startswith((*_RIGHTS_OF_SYSTEM, "tenantry:"))
        if is_foreign:
            return f"names {kind} {name!r}, which is none of the tenant on the host: remove it"
    if role.get("kind") == "Role" and worlds.inside.find(ROLES, str(role.get("name", ""))) is None:
        # No dry run asks the host, which refuses it only once objects have moved.
        return f"binds Role {role.get('name')!r}, which does not exist: delete it"
    return ""


def _taken(worlds: Worlds, resource: Resource, found: Json) -> str:
    """Return why the name of an object is taken on the host; what an attempt has left there may be the same."""
    there = worlds.host.find(resource, name_of(found))
    if there is None or resource == SERVICE_ACCOUNTS or outcopies.stands_for(there, worlds.profile, name_of(found)):
        return ""
    renamed = claim_names(worlds)
    is_ours = outcopies.is_marked(there, worlds.profile)
    if resource == services.RESOURCE:
        is_same = outcopies.alias(there, worlds.profile) == outcopies.alias(found, worlds.profile)
    else:
        copied = outcopies.lower(resource, found, worlds.profile, renamed, worlds.place)
        is_same = outcopies.lower(resource, there, worlds.profile) == copied
    if is_same and not is_ours:
        return ""
    return "has the name of another object on the host: delete one of them"


def missing(worlds: Worlds) -> Iterator[tuple[Resource, Json]]:
    """Yield the kind and the copy of each object that the host does not have yet, for a dry run.

    Bindings of a Role that moves, too, are left out: the host refuses them until it has the Role.
    """
    renamed: Mapping[str, str] = claim_names(worlds)
    for resource in COPIED:
        if resource == REVISIONS:
            continue  # only with their owners
        for each in carried(worlds, resource):
            if worlds.host.find(resource, name_of(each)) is not None:
                continue
            if resource == ROLE_BINDINGS and part(each, "roleRef").get("kind") == "Role":
                continue
            yield resource, outcopies.lower(resource, each, worlds.profile, renamed, worlds.place)
    for each in worlds.inside.all(services.RESOURCE):
        if worlds.host.find(services.RESOURCE, name_of(each)) is None:
            yield services.RESOURCE, outcopies.alias(each, worlds.profile)

"""What a conversion moves, and what it cannot move: pure.

A Tenant or Subnamespace is converted as a whole or not at all: one object that cannot move refuses the conversion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from tenantry.api import marks
from tenantry.api.controlplanechoice import MAX_NAME
from tenantry.api.model import Json, Resource
from tenantry.api.requests import ROLE_BINDING_PREFIX
from tenantry.api.subnamespace import InheritanceMode, Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.controllers.conversion import objects
from tenantry.controllers.conversion.objects import (
    ADOPTED_KINDS,
    BASICS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFAULT_ACCOUNT,
    DEPLOYMENTS,
    HIGH,
    JOBS,
    LOW,
    REFUSED_KINDS,
    REPLICA_SETS,
    REVISIONS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Holdings,
    name_of,
)
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.mirror import pods
from tenantry.mirror.cachedpods import MOST_BYTES
from tenantry.mirror.kinds import claims, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part
from tenantry.mirror.things import PODS

_CONTROLLERS = {
    PODS: (REPLICA_SETS.kind, STATEFUL_SETS.kind, JOBS.kind),
    REPLICA_SETS: (DEPLOYMENTS.kind,),
    REVISIONS: (STATEFUL_SETS.kind, DAEMON_SETS.kind),
    claims.RESOURCE: (STATEFUL_SETS.kind, PODS.kind),
}
"""The kinds of controllers that move together with an object."""

_OF_CLAIMS = ("selector", "dataSource", "dataSourceRef")
_OF_COLLECTOR = ("orphan", "foregroundDeletion")
"""The finalizers that the garbage collector itself takes away."""

_NO_MIRROR = Profile(owner_uid="-", namespace="-", prefix="-")


class Fate(StrEnum):
    """What a conversion does with an object."""

    ADOPTED = "Adopted"
    MOVED = "Moved"
    DELETED = "Deleted"
    REFUSED = "Refused"


class PlannedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object in the plan of a conversion.

    Args:
        kind: Its kind.
        name: Its name.
        fate: What happens.
        reason: Why it cannot move, and what to do; "" if it can.
    """

    kind: str
    name: str
    fate: Fate
    reason: str = ""


class ConversionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversion does.

    Args:
        objects: What happens to each object of users.
    """

    objects: tuple[PlannedObject, ...]

    @property
    def refused(self) -> tuple[PlannedObject, ...]:
        """Return what cannot move."""
        return tuple(each for each in self.objects if each.fate is Fate.REFUSED)

    @property
    def refusal(self) -> str:
        """Return why nothing is converted; "" if it is."""
        found = [f"{each.kind} {each.name!r} {each.reason}" for each in self.refused]
        return f"cannot move: {shortened(found)}" if found else ""

    def told(self, scope: ConversionScope) -> str:
        """Return the refusal as the journal reports it: without names if its readers may not see them.

        Args:
            scope: The Tenant or Subnamespace.
        """
        if not scope.is_blind or not self.refused:
            return self.refusal
        counts = Counter(each.kind for each in self.refused)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        return f"cannot move: {told}; an Event in namespace {scope.namespace!r} names them"


def plan(
    scope: ConversionScope, host: Holdings, children: Sequence[Subnamespace] = (), profile: Profile | None = None
) -> ConversionPlan:
    """Return what the conversion of a Tenant or Subnamespace to a control plane of its own does.

    Args:
        scope: The Tenant or Subnamespace.
        host: The objects of its namespace; kinds that are not read are missing in the plan.
        children: The Subnamespaces in its namespace.
        profile: The configuration of the mirror that adopts; None before there is one.
    """
    named, accounts = objects.named(host, profile), _accounts(host, profile)
    found = [*of_owner(scope), *_inherits(scope), *_of_children(children), *_granted(host), *_borrowed(host, named)]
    for resource in (*BASICS, *ADOPTED_KINDS, PODS, *LOW, *HIGH, *REFUSED_KINDS, JOBS):
        for each in sorted(host.all(resource), key=name_of):
            if objects.is_movable(resource, each, profile) and _counts(resource, each):
                fate, reason = _fate(
                    resource, each, host, is_named=(resource, name_of(each)) in named, accounts=accounts
                )
                found.append(PlannedObject(kind=resource.kind, name=name_of(each), fate=fate, reason=reason))
    return ConversionPlan(objects=tuple(_within(found, host, profile or _NO_MIRROR)))


def _counts(resource: Resource, found: Json) -> bool:
    """Return whether an object is there when objects move: one that is being deleted, only if finalizers keep it."""
    return not objects.is_deleting(found) or bool(_finalizers(resource, found))


def _finalizers(resource: Resource, found: Json) -> list[str]:
    """Return the finalizers that keep what is deleted on the host once it is inside."""
    if resource not in (*LOW, *HIGH):
        return []
    return sorted(each for each in found["metadata"].get("finalizers") or () if each not in _OF_COLLECTOR)


def finalizers_reason(resource: Resource, found: Json) -> str:
    """Return why finalizers keep an object from a move; "" if it has none that matter."""
    found_there = _finalizers(resource, found)
    if not found_there:
        return ""
    return f"has finalizers ({shortened(found_there)}), which would keep it where it is: remove them"


def _within(found: Iterable[PlannedObject], host: Holdings, profile: Profile) -> Iterator[PlannedObject]:
    """Refuse what is adopted, and the mirror would not bring to the host: too many objects, or too large ones."""
    numbers: dict[str, int] = {}
    resources = {each.kind: each for each in (PODS, *ADOPTED_KINDS)}
    for each in found:
        resource = resources.get(each.kind)
        if resource is None or each.fate is not Fate.ADOPTED:
            yield each
            continue
        most = profile.most_pods if resource == PODS else profile.most_objects
        numbers[each.kind] = numbers.get(each.kind, 0) + 1
        whole = host.find(resource, each.name)
        reason = ""
        if numbers[each.kind] > most:
            reason = f"is one more than the {most} that a control plane mirrors: delete those that are not needed"
        elif len(msgspec.json.encode(whole)) > MOST_BYTES:
            reason = f"has more than the {MOST_BYTES // 1024} KiB that a control plane mirrors: divide it"
        yield _refused(resource, each.name, reason) if reason else each


def of_owner(scope: ConversionScope) -> Iterator[PlannedObject]:
    """Yield what of a Tenant or Subnamespace itself refuses its conversion."""
    owner = scope.owner
    if len(owner.metadata.name) > MAX_NAME:
        why = f"has a name of more than {MAX_NAME} characters, and its control plane would have the same name"
        yield _refused(owner.resource, owner.metadata.name, why)
    if scope.is_suspended:
        why = "is suspended, or its lease has ended: resume it first"
        if not isinstance(owner, Tenant):
            why = "is in a tenant that is suspended, or whose lease has ended: resume the tenant first"
        yield _refused(owner.resource, owner.metadata.name, why)


def _inherits(scope: ConversionScope) -> Iterator[PlannedObject]:
    """Refuse inherited bindings, as the API server does: they would give rights on the host."""
    owner = scope.owner
    if isinstance(owner, Subnamespace) and owner.spec.inheritance.role_bindings is not InheritanceMode.NONE:
        why = "inherits roleBindings: set spec.inheritance.roleBindings to None, and name the owners in spec.owners"
        yield _refused(owner.resource, owner.metadata.name, why)


def _borrowed(host: Holdings, named: set[tuple[Resource, str]]) -> Iterator[PlannedObject]:
    """Refuse inherited objects that pods name: they stay on the host, where pods that start inside do not find them."""
    for resource in (CONFIG_MAPS, SECRETS):
        for each in sorted(host.all(resource), key=name_of):
            if marks.INHERITED_FROM in objects.labels(each) and (resource, name_of(each)) in named:
                why = "is inherited from the parent, which a control plane does not have: let pods name another one"
                yield _refused(resource, name_of(each), why)


def _of_children(children: Iterable[Subnamespace]) -> Iterator[PlannedObject]:
    for each in sorted(children, key=lambda child: child.metadata.name):
        if each.spec.mode is Mode.WORKSPACE:
            why = (
                "is a Workspace, and its pods cannot change their namespace: delete it, or create it again with the"
                " mode Subtenant"
            )
            yield _refused(Subnamespace.resource, each.metadata.name, why)


def _granted(host: Holdings) -> Iterator[PlannedObject]:
    for each in sorted(host.all(ROLE_BINDINGS), key=name_of):
        if name_of(each).startswith(ROLE_BINDING_PREFIX):
            yield _refused(ROLE_BINDINGS, name_of(each), "grants rights on the host: delete its RoleRequest first")


def _refused(resource: Resource, name: str, reason: str) -> PlannedObject:
    return PlannedObject(kind=resource.kind, name=name, fate=Fate.REFUSED, reason=reason)


def _accounts(host: Holdings, profile: Profile | None) -> set[str] | None:
    """Return the names of the ServiceAccounts that there are inside; None if those of the host are not read."""
    if SERVICE_ACCOUNTS not in host.of:
        return None
    moved = (
        name_of(each)
        for each in host.all(SERVICE_ACCOUNTS)
        if objects.is_movable(SERVICE_ACCOUNTS, each, profile) and not objects.is_deleting(each)
    )
    return {DEFAULT_ACCOUNT, *moved}


def _fate(
    resource: Resource, found: Json, host: Holdings, *, is_named: bool, accounts: set[str] | None
) -> tuple[Fate, str]:
    refusal = _refusal(resource, found, accounts)
    if refusal:
        return Fate.REFUSED, refusal
    if resource == JOBS:
        return Fate.DELETED, ""
    if resource == PODS and objects.controller_of(found).get("kind") == JOBS.kind:
        # If it runs, its Job refuses.
        job = host.find(JOBS, str(objects.controller_of(found).get("name", "")))
        return (Fate.DELETED if job is not None and objects.is_finished(job) else Fate.MOVED), ""
    return (Fate.ADOPTED if resource == PODS or resource in ADOPTED_KINDS or is_named else Fate.MOVED), ""


def _refusal(resource: Resource, found: Json, accounts: set[str] | None) -> str:
    """Return why an object cannot move, and what to do; "" if it can."""
    owner, spec = objects.controller_of(found), part(found, "spec")
    refusal = finalizers_reason(resource, found)
    if refusal:
        return refusal
    if resource == JOBS:
        refusal = "" if objects.is_finished(found) else "has not ended: wait, or delete it"
    elif resource in REFUSED_KINDS:
        refusal = "is not supported in a conversion: delete it, and create it again inside"
    elif resource == PODS:
        refusal = _pod(found, owner, accounts)
    elif resource == ROLE_BINDINGS and objects.is_suspended(found):
        refusal = "does not have its subjects yet, which a suspension has taken: wait until they are back"
    elif owner and not is_moved(resource, owner):
        refusal = _foreign(owner)
    elif resource == services.RESOURCE and not spec.get("selector") and spec.get("type") != "ExternalName":
        refusal = "has no selector, so that its endpoints cannot move: delete it, and create it again inside"
    elif resource == claims.RESOURCE and any(spec.get(field) for field in _OF_CLAIMS):
        refusal = "has a selector or a source, which a control plane cannot name: copy its data to another claim"
    return refusal


def is_moved(resource: Resource, owner: Json) -> bool:
    """Return whether an object may have a controller, because that moves too, or only its data counts."""
    kinds = _CONTROLLERS.get(resource, ())
    return resource in BASICS or owner.get("kind") in kinds


def _foreign(owner: Json) -> str:
    return (
        f"belongs to {owner.get('kind')} {owner.get('name')!r}, whose controller runs outside: delete the owner first"
    )


def _pod(found: Json, owner: Json, accounts: set[str] | None) -> str:
    kind = owner.get("kind")
    if kind == DAEMON_SETS.kind or kind in {each.kind for each in REFUSED_KINDS}:
        return ""  # its owner refuses
    if owner and kind not in _CONTROLLERS[PODS]:
        return _foreign(owner)
    account = part(found, "spec").get("serviceAccountName") or DEFAULT_ACCOUNT
    if accounts is not None and account not in accounts and kind != JOBS.kind:
        return f"has the ServiceAccount {account!r}, which does not exist or does not move: delete the pod"
    twin = objects.upper(PODS, found)
    refusal = pods.down({**twin, "metadata": {**twin["metadata"], "uid": "-"}}, _NO_MIRROR).refusal
    return f"is not mirrored: {refusal}" if refusal else ""

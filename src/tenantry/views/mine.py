"""What belongs to the user: tenants, namespaces, quota, requests and rights, read with the user's own rights only.

No user but an administrator may list Tenants. So the tenants are those that the user names, that of the namespace of
the context, and those of the user's own TenantRequests:

    names, namespace of the context, own TenantRequests ─► core namespaces ─► a tree for each ─► rights in each

An administrator, who may list Tenants, gets those that name the user or one of its groups as an owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import NetworkPolicy, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.requests import Decision, Request, RoleRequest, TenantRequest
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.tenant import summary
from tenantry.engine.tasks import all_of
from tenantry.views import requests as requested
from tenantry.views import tree
from tenantry.views.acting import ActingUser, acting_as, readable
from tenantry.views.objects import NamespaceWithPhase
from tenantry.views.permitted import list_permitted
from tenantry.views.requests import RequestView
from tenantry.views.tree import NamespaceView, TenantView

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_PODS = Resource("", "v1", "pods", "Pod")
_SECRETS = Resource("", "v1", "secrets", "Secret")

RIGHTS: tuple[tuple[str, str, Resource, str], ...] = (
    ("run pods", "create", _PODS, ""),
    ("open shells in pods", "create", _PODS, "exec"),
    ("read Secrets", "get", _SECRETS, ""),
    ("write NetworkPolicies", "create", NetworkPolicy.resource, ""),
    ("give roles", "create", RoleBinding.resource, ""),
    ("create subnamespaces", "create", Subnamespace.resource, ""),
    ("claim nodes", "create", SliceClaim.resource, ""),
    ("create control planes", "create", VirtualControlPlane.resource, ""),
    ("request roles", "create", RoleRequest.resource, ""),
    ("decide requests", "patch", RoleRequest.resource, "status"),
)
"""The rights that are looked at in each namespace: what it allows, verb, resource and subresource."""


class PlaceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tenant, or a part of one.

    Args:
        tenant: The name of the tenant.
        namespace: The namespace at the top of what the user may read.
        summary: The tenant as its owners may read it; None for a part.
        tree: The namespaces from there down.
        may: The rights that the user has in that namespace, of `RIGHTS`.
        may_not: Those that the user does not have.
    """

    tenant: str
    namespace: str
    summary: TenantView | None
    tree: NamespaceView
    may: tuple[str, ...]
    may_not: tuple[str, ...]


class MineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that is the user's.

    Args:
        user: The name of the user.
        groups: Its groups.
        places: The tenants, or parts of tenants.
        requests: The user's own requests, and those that wait for a decision in the user's namespaces, oldest first.
    """

    user: str
    groups: tuple[str, ...]
    places: tuple[PlaceView, ...]
    requests: tuple[RequestView, ...]


async def read(client: Client, named: Sequence[str], context: str) -> MineView:
    """Return what is the user's.

    Args:
        client: The user's.
        named: Names of tenants, or of namespaces in them, which the user must be allowed to read; () to find them.
        context: The namespace of the context; "" for none.

    Raises:
        Forbidden: A named tenant may not be read.
        InputError: A named namespace belongs to no tenant.
    """
    async with acting_as(client, "", ()) as user:
        own = await _own_requests(client, user)
        if named:
            roots = [await _named(client, name) for name in dict.fromkeys(named)]
        else:
            roots = await _found(client, user, context, own)
        places = await all_of(_place(client, user, each) for each in roots)
        waiting = await all_of(_requests_in(client, name) for each in places for name in _names(each.tree))
        others = [one for found in waiting for one in found if one.status.decision is Decision.PENDING]
        mine = [one for found in waiting for one in found if one.spec.requester.name == user.user]
        shown = {(one.resource.kind, one.key): one for one in [*own, *mine, *others]}
        ordered = sorted(shown.values(), key=lambda one: (one.metadata.creation_timestamp, one.key))
        return MineView(
            user=user.user,
            groups=user.groups,
            places=tuple(places),
            requests=tuple(requested.view(each) for each in ordered),
        )


async def _own_requests(client: Client, user: ActingUser) -> list[Request]:
    """Return the user's own requests that are in no namespace."""
    try:
        names = partial(readable, client, TenantRequest.resource)
        found = await requested.read(client, "", names)
    except Forbidden:
        return []
    return [each for each in found.requests if each.spec.requester.name == user.user]


async def _named(client: Client, name: str) -> NamespaceWithPhase:
    """Return a namespace that the user named.

    Raises:
        Forbidden: It may not be read, or does not exist: no answer tells which.
        InputError: It belongs to no tenant.
    """
    try:
        found = await client.get(NamespaceWithPhase, name)
    except (Forbidden, NotFound) as error:
        raise Forbidden(
            f"you may not read tenant or namespace {name!r}, or it does not exist; its owners may read it unless the"
            " tenant is suspended",
            status=403,
        ) from error
    if not _tenant_of(found):
        raise InputError(f"the namespace {name!r} belongs to no tenant")
    return found


def _tenant_of(namespace: NamespaceWithPhase) -> str:
    labels = namespace.metadata.labels
    return labels.get(marks.TENANT, "") if labels.get(marks.MANAGED_BY) == marks.MANAGER else ""


async def _found(client: Client, user: ActingUser, context: str, own: Sequence[Request]) -> list[NamespaceWithPhase]:
    """Return the tops of what the user has, each once, by name."""
    names = [each.spec.tenant for each in own if isinstance(each, TenantRequest)]
    names += await _owned(client, user)
    here = await _readable(client, context) if context else None
    tenant = _tenant_of(here) if here is not None else ""
    found = await all_of(_readable(client, name) for name in sorted({*names, tenant} - {""}))
    roots = {each.metadata.name: each for each in found if each is not None and _tenant_of(each)}
    if here is not None and tenant and tenant not in roots:
        # The owner of a Subtenant may not read the namespace of the tenant.
        roots[here.metadata.name] = here
    return [roots[name] for name in sorted(roots)]


async def _owned(client: Client, user: ActingUser) -> list[str]:
    """Return the tenants that name the user as an owner; [] if the user may not list tenants."""
    found = await list_permitted(client, Tenant) or []
    return [each.metadata.name for each in found if any(_is_user(owner, user) for owner in each.spec.owners)]


def _is_user(owner: Owner, user: ActingUser) -> bool:
    if owner.kind is OwnerKind.GROUP:
        return owner.name in user.groups
    account = f"system:serviceaccount:{owner.namespace}:{owner.name}"
    return user.user == (account if owner.kind is OwnerKind.SERVICE_ACCOUNT else owner.name)


async def _readable(client: Client, name: str) -> NamespaceWithPhase | None:
    try:
        return await client.get(NamespaceWithPhase, name)
    except (Forbidden, NotFound):
        return None


async def _place(client: Client, user: ActingUser, top: NamespaceWithPhase) -> PlaceView:
    name = top.metadata.name
    _, below = await tree.read(client, (), name, only=True)
    if below is None:
        raise AssertionError("a tree that begins at a namespace has one")
    answers = await all_of(user.may(verb, resource, name, part) for _, verb, resource, part in RIGHTS)
    told = [what for what, *_ in RIGHTS]
    return PlaceView(
        tenant=_tenant_of(top),
        namespace=name,
        summary=_summary(top, below),
        tree=below,
        may=tuple(what for what, allowed in zip(told, answers, strict=True) if allowed),
        may_not=tuple(what for what, allowed in zip(told, answers, strict=True) if not allowed),
    )


def _summary(top: NamespaceWithPhase, below: NamespaceView) -> TenantView | None:
    """Return the tenant of a core namespace; None for a part, and before the operator has written the summary."""
    try:
        return tree.of_tenant(summary.read(top.metadata), (below,))
    except InputError:
        return None


def _names(top: NamespaceView) -> list[str]:
    """Return the names of the namespaces of a tree that the user may read."""
    own = [top.name] if top.name and not top.is_closed else []
    return [*own, *(name for child in top.children for name in _names(child))]


async def _requests_in(client: Client, namespace: str) -> Sequence[Request]:
    return await list_permitted(client, RoleRequest, namespace=namespace) or []

"""The role by which a requester reads the own TenantRequests: pure.

RBAC cannot filter a list by requester, so a ClusterRole names the requests of each requester:

    TenantRequests of bob: shop, blog ─► ClusterRole tenantry-requester-81b6…: get, list, watch  shop, blog
                                         ClusterRoleBinding of that name to the User bob

A request keeps a finalizer while a role names it. Otherwise bob could withdraw `shop` while the operator is stopped,
and read the request that another user creates under that name.
"""

from __future__ import annotations

from hashlib import sha256

from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRole, ClusterRoleBinding, RoleRef, RoleRule, Subject
from tenantry.api.model import READ, ObjectMeta
from tenantry.api.requests import FINALIZER, REQUESTER_ROLE_PREFIX, SubjectKind, TenantRequest
from tenantry.controllers.requesters.gather import RequesterInputs
from tenantry.engine import request
from tenantry.engine.plan import Child, DirectWrite, Equivalent, Plan, compare, same

MOST_READABLE = 1000
"""How many of the newest requests a role names: 64 KB of names. A user has at most 20 undecided ones."""

DIGITS = 32
"""Of the digest: a user who names ServiceAccounts must not find a name with the digits of another user's."""

_OURS = {marks.MANAGED_BY: frozenset({marks.MANAGER})}


def role_name(user: str) -> str:
    """Return the name of the role of a requester."""
    return f"{REQUESTER_ROLE_PREFIX}{sha256(user.encode()).hexdigest()[:DIGITS]}"


def role_of(asked: TenantRequest) -> list[str]:
    """Return the name of the role of a request's requester, for an index."""
    # A request from before the API server wrote the requester has none.
    name = asked.spec.requester.name
    return [role_name(name)] if name else []


def plan(inputs: RequesterInputs, equivalent: Equivalent = same) -> Plan:
    """Return the writes of a requester's role: finalizers before it names a request, and off after it does not."""
    current = [each for each in inputs.requests if not each.metadata.deletion_timestamp]
    ended = [each for each in inputs.requests if each.metadata.deletion_timestamp]
    children = _children(inputs.name, current) if current else []
    made = compare(children, inputs.lookup, stale=() if current else inputs.made, equivalent=equivalent)
    return replace(
        made,
        before=tuple(
            _finalizers(each, (*each.metadata.finalizers, FINALIZER))
            for each in current
            if FINALIZER not in each.metadata.finalizers
        ),
        writes=tuple(
            _finalizers(each, tuple(name for name in each.metadata.finalizers if name != FINALIZER))
            for each in ended
            if FINALIZER in each.metadata.finalizers
        ),
    )


def _children(name: str, current: list[TenantRequest]) -> list[Child]:
    newest = sorted(current, key=lambda each: (each.metadata.creation_timestamp, each.key))[-MOST_READABLE:]
    names = tuple(sorted(each.metadata.name for each in newest))
    meta = ObjectMeta(name=name, labels={marks.MANAGED_BY: marks.MANAGER})
    rule = RoleRule(
        api_groups=(marks.GROUP,), resources=(TenantRequest.resource.plural,), verbs=READ, resource_names=names
    )
    role = ClusterRole(metadata=meta, rules=(rule,))
    binding = ClusterRoleBinding(
        metadata=meta,
        role_ref=RoleRef(kind=ClusterRole.resource.kind, name=name, api_group=RBAC_GROUP),
        # A ServiceAccount's user name works as well as its namespace and name.
        subjects=(Subject(kind=SubjectKind.USER, name=newest[0].spec.requester.name, api_group=RBAC_GROUP),),
    )
    return [Child(object=role, wave=0, marks=_OURS), Child(object=binding, wave=1, marks=_OURS)]


def _finalizers(asked: TenantRequest, names: tuple[str, ...]) -> DirectWrite:
    return DirectWrite(request=request.finalizers(asked, names), quiet=True)

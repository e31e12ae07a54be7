"""What `tenantry explain who-can` asks an API server: no more than whoever asks may read.

A role that may not be read is not guessed at: an owner may ask the API server what somebody may do in the namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Resource
from tenantry.kube import wire
from tenantry.policy.request import part
from tenantry.world.explain.access import (
    EVERYTHING,
    Binding,
    Holder,
    PolicyRule,
    Reference,
    Subject,
    Wanted,
    by_reason,
    holder,
    holders,
    in_order,
    unknown,
)

if TYPE_CHECKING:
    from tenantry.kube.client import Client

Json = dict[str, Any]
Roles = dict[Reference, Sequence[PolicyRule]]

BINDINGS = Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding")
ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
CLUSTER_BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
MAY_THEY = Resource("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview")
NAMESPACES = "namespaces"
OF_ALL = ("list", "watch", "create", "deletecollection")
"""What is asked of namespaces in none of them. Source: Kubernetes, "Authorization" (request attributes)."""


class Access(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who may do something.

    Args:
        verb: What.
        resource: With what.
        group: Of which API group.
        name: Which one; "" for any.
        namespace: Where.
        holders: Who.
        notes: What could not be read.
    """

    verb: str
    resource: str
    group: str
    name: str
    namespace: str
    holders: tuple[Holder, ...]
    notes: tuple[str, ...]


async def resolve(client: Client, text: str) -> tuple[Resource, str]:
    """Return the kind that is meant by a word, and its subresource.

    Args:
        client: Of the cluster.
        text: As in pods, po, Pod, deployments.apps, pods/log.

    Raises:
        InputError: The cluster has none.
    """
    word, _, subresource = text.partition("/")
    if word == EVERYTHING:
        return Resource(EVERYTHING, "v1", EVERYTHING, EVERYTHING), subresource
    plural, _, group = word.lower().partition(".")
    if not group:
        found = _named(await _json(client, "/api/v1"), "", "v1", plural)
        if found is not None:
            return found, subresource
    listed: list[Json] = (await _json(client, "/apis"))["groups"]
    chosen = [each for each in listed if not group or each["name"] == group]
    versions = [each["preferredVersion"]["version"] for each in chosen]
    answers = await asyncio.gather(
        *(_kinds(client, each["name"], version) for each, version in zip(chosen, versions, strict=True))
    )
    for each, version, answer in zip(chosen, versions, answers, strict=True):
        found = _named(answer, each["name"], version, plural)
        if found is not None:
            return found, subresource
    raise InputError(f"this cluster has no resource {text!r}; `kubectl api-resources` prints those that it has")


async def _kinds(client: Client, group: str, version: str) -> Json:
    try:
        return await _json(client, f"/apis/{group}/{version}")
    except NotFound:
        return {}


def _named(answer: Json, group: str, version: str, word: str) -> Resource | None:
    for each in answer.get("resources", ()):
        words = {each["name"], each.get("singularName"), each["kind"].lower(), *each.get("shortNames", ())}
        if word in words and "/" not in each["name"]:
            return Resource(group, version, each["name"], each["kind"], namespaced=each["namespaced"])
    return None


async def who_can(client: Client, verb: str, text: str, name: str, namespace: str) -> Access:
    """Return who may do something in a namespace.

    Args:
        client: As whoever asks.
        verb: What.
        text: With what; see `resolve`.
        name: Which one; "" for any.
        namespace: Where.

    Raises:
        InputError: The cluster has no such resource.
        Forbidden: Whoever asks may not even read the RoleBindings of the namespace.
    """
    resource, subresource = await resolve(client, text)
    full = f"{resource.plural}/{subresource}" if subresource else resource.plural
    notes: list[str] = []
    is_in = resource.namespaced
    if resource.plural == NAMESPACES and not resource.group and verb not in OF_ALL:
        # A request about one namespace counts as one in it.
        name, is_in = name or namespace, True
    wanted = Wanted(verb=verb, group=resource.group, resource=full, name=name)
    bindings = _bindings(await _items(client, BINDINGS, namespace), namespace)
    roles = await _roles(client, namespace)
    wide = await _cluster_wide(client)
    if wide is None:
        notes.append("who may in the whole cluster is not shown: you may not read ClusterRoleBindings")
    if not is_in:
        bindings = []
        notes.append(f"{resource.plural} are in no namespace: only what holds in the whole cluster counts")
    every = [*bindings, *(wide or ())]
    found = holders(every, roles, wanted)
    more, left = await _asked(client, list(unknown(every, roles)), every, wanted, namespace)
    if left:
        told = ", ".join(sorted({f"{each.kind} {each.name}" for each in left}))
        notes.append(f"what these give could not be read: {told}")
    return Access(
        verb=verb,
        resource=full,
        group=resource.group,
        name=name,
        namespace=namespace,
        holders=tuple(in_order([*found, *more])),
        notes=tuple(notes),
    )


# -- reading --------------------------------------------------------------------------------------


async def _json(client: Client, path: str) -> Json:
    return msgspec.json.decode(await client.request("GET", path))


async def _items(client: Client, resource: Resource, namespace: str = "") -> list[Json]:
    found: list[Json] = []
    async for page in client.pages(resource, dict[str, Any], namespace=namespace):
        found += page.items
    return found


def _bindings(found: Iterable[Json], namespace: str) -> list[Binding]:
    kind = BINDINGS.kind if namespace else CLUSTER_BINDINGS.kind
    return [
        Binding(
            own=Reference(kind, each["metadata"]["name"]),
            role=Reference(each["roleRef"]["kind"], each["roleRef"]["name"]),
            subjects=tuple(_subject(subject, namespace) for subject in each.get("subjects") or ()),
            inherited_from=part(each, "metadata", "labels").get(marks.INHERITED_FROM, ""),
        )
        for each in found
    ]


def _subject(subject: Json, namespace: str) -> Subject:
    is_account = subject["kind"] == "ServiceAccount"
    where = (subject.get("namespace") or namespace) if is_account else ""
    return Subject(kind=subject["kind"], name=subject["name"], namespace=where)


async def _roles(client: Client, namespace: str) -> Roles:
    """Return the roles that may be read, those of the namespace and those of the cluster."""
    found: Roles = {}
    for resource, where in ((ROLES, namespace), (CLUSTER_ROLES, "")):
        try:
            for each in await _items(client, resource, where):
                rules = msgspec.convert(each.get("rules") or [], tuple[PolicyRule, ...])
                found[Reference(resource.kind, each["metadata"]["name"])] = rules
        except Forbidden:
            continue
    return found


async def _cluster_wide(client: Client) -> list[Binding] | None:
    try:
        return _bindings(await _items(client, CLUSTER_BINDINGS), "")
    except Forbidden:
        return None


async def _asked(
    client: Client, bindings: Sequence[Binding], every: Sequence[Binding], wanted: Wanted, namespace: str
) -> tuple[list[Holder], list[Reference]]:
    """Ask the API server about those whom roles are given that may not be read.

    Returns:
        Who of them may, and the roles of which that could not be told.
    """
    subjects = list(dict.fromkeys(subject for each in bindings for subject in each.subjects))
    try:
        reasons = await asyncio.gather(*(_reason(client, each, wanted, namespace) for each in subjects))
    except Forbidden:
        return [], [each.role for each in bindings if each.subjects]
    found: list[Holder] = []
    for subject, reason in zip(subjects, reasons, strict=True):
        if reason is None:
            continue
        named = by_reason(reason, subject, every)
        mine = next(each for each in bindings if subject in each.subjects)
        found.append(named if named is not None else holder(mine, subject))
    return found, []


async def _reason(client: Client, subject: Subject, wanted: Wanted, namespace: str) -> str | None:
    """Return why somebody may; None where they may not.

    Raises:
        Forbidden: Whoever asks may not ask that.
    """
    resource, _, subresource = wanted.resource.partition("/")
    attributes = {"verb": wanted.verb, "group": wanted.group, "resource": resource, "name": wanted.name}
    attributes |= {"subresource": subresource, "namespace": namespace}
    who: Json = {"user": subject.name}
    if subject.kind == "Group":
        who = {"groups": [subject.name]}
    elif subject.kind == "ServiceAccount":
        who = {"user": f"system:serviceaccount:{subject.namespace}:{subject.name}"}
    body = {
        "apiVersion": MAY_THEY.api_version,
        "kind": MAY_THEY.kind,
        "metadata": {"namespace": namespace},
        "spec": {"resourceAttributes": attributes, **who},
    }
    answer = await client.request("POST", wire.path(MAY_THEY, namespace), body=wire.encode_json(body))
    status: Json = msgspec.json.decode(answer)["status"]
    return str(status.get("reason", "")) if status["allowed"] else None

"""Find the subjects that have a right in a namespace, and the binding and role of each, within the reader's rights.

A role that may not be read is not guessed: the API server is asked whether each subject of its bindings has the right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRoleBinding, RoleBinding, Subject
from tenantry.api.model import Json, Model, ObjectMeta, Resource
from tenantry.api.wording import suggestion
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import all_of
from tenantry.views.acting import post
from tenantry.views.discovery import Discovery
from tenantry.views.permitted import NO_CLUSTER_BINDINGS, list_permitted
from tenantry.world.explain.access import (
    EVERYTHING,
    Binding,
    Grant,
    PolicyRule,
    RbacSubject,
    Reference,
    RequestedAccess,
    by_reason,
    grant,
    grants,
    in_order,
    unknown,
)

if TYPE_CHECKING:
    from tenantry.kube.client import Client
Roles = Mapping[Reference, Sequence[PolicyRule]]

BINDINGS = RoleBinding.resource
ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
CLUSTER_BINDINGS = ClusterRoleBinding.resource
CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
REVIEWS = Resource("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview")
NAMESPACES = "namespaces"
VERBS = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("use", "bind", "escalate", "impersonate", "approve", "sign", "attest", "administer"),
)
"""Verbs of requests, and those that Kubernetes or Tenantry checks by itself.

Source: Kubernetes, "Authorization" (request verbs), "Using RBAC Authorization", "Certificate Signing Requests".
"""

COLLECTION_VERBS = ("list", "watch", "create", "deletecollection")
"""Verbs on namespaces that name none. Source: Kubernetes, "Authorization" (request attributes)."""


class _Role(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta
    # The API server stores and returns a role without rules with the value null.
    rules: tuple[PolicyRule, ...] | None = ()


class AccessReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The subjects that have a right.

    Args:
        verb: The verb.
        resource: The resource, with its subresource.
        group: Its API group.
        name: The object's name; "" for any.
        namespace: The namespace.
        holders: The subjects that have the right.
        notes: What could not be read.
    """

    verb: str
    resource: str
    group: str
    name: str
    namespace: str
    holders: tuple[Grant, ...]
    notes: tuple[str, ...]


class AccessInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the reader may read of a namespace's rights.

    Args:
        bindings: The RoleBindings of the namespace.
        cluster_bindings: The ClusterRoleBindings; None if they may not be read.
        roles: The roles that may be read.
    """

    bindings: Sequence[Binding]
    cluster_bindings: Sequence[Binding] | None
    roles: Roles


async def who_can(client: Client, verb: str, text: str, name: str, namespace: str) -> AccessReport:
    """Return the subjects that have a right in a namespace.

    Args:
        client: The reader's client.
        verb: The verb.
        text: The resource; see `Discovery.by_word`.
        name: The object's name; "" for any.
        namespace: The namespace.

    Raises:
        InputError: The cluster has no such resource, or nothing knows the verb.
        Forbidden: The reader may not even read the RoleBindings of the namespace.
    """
    resource, subresource = await Discovery(client).by_word(text)
    full = f"{resource.plural}/{subresource}" if subresource else resource.plural
    notes: list[str] = []
    is_namespaced = resource.namespaced
    if resource.plural == NAMESPACES and not resource.group and verb not in COLLECTION_VERBS:
        # RBAC evaluates a request about one namespace as a request in that namespace.
        name, is_namespaced = name or namespace, True
    wanted = RequestedAccess(verb=verb, group=resource.group, resource=full, name=name)
    inputs = await gather(client, namespace)
    _check_verb(verb, inputs.roles)
    if inputs.cluster_bindings is None:
        notes.append(NO_CLUSTER_BINDINGS)
    if not is_namespaced:
        notes.append(f"{resource.plural} are cluster-scoped: only cluster-wide rights count")
    bindings = [*(inputs.bindings if is_namespaced else ()), *(inputs.cluster_bindings or ())]
    found = grants(bindings, inputs.roles, wanted)
    reviewed, left = await _reviewed(client, list(unknown(bindings, inputs.roles)), bindings, wanted, namespace)
    if left:
        names = ", ".join(sorted({f"{each.kind} {each.name}" for each in left}))
        notes.append(f"these roles could not be read: {names}")
    return AccessReport(
        verb=verb,
        resource=full,
        group=resource.group,
        name=name,
        namespace=namespace,
        holders=tuple(in_order([*found, *reviewed])),
        notes=tuple(notes),
    )


def _check_verb(verb: str, roles: Roles) -> None:
    """Refuse a verb that is probably mistyped, to which the answer would be that no user has the right.

    Raises:
        InputError: Neither Kubernetes nor a role that may be read knows the verb.
    """
    own = {each for rules in roles.values() for rule in rules for each in rule.verbs or ()}
    if verb not in {EVERYTHING, *VERBS, *own}:
        raise InputError(
            f"{verb!r} is no verb of Kubernetes, and no role here has it{suggestion(verb, [*VERBS, *sorted(own)])}"
        )


async def gather(reader: ObjectReader, namespace: str) -> AccessInputs:
    """Read the bindings and roles of a namespace and of the cluster that the reader may read.

    Raises:
        Forbidden: The RoleBindings of the namespace may not be read.
    """
    roles: dict[Reference, Sequence[PolicyRule]] = {}
    bindings = _bindings(await reader.list(RoleBinding, namespace=namespace), namespace)
    for resource, where in ((ROLES, namespace), (CLUSTER_ROLES, "")):
        try:
            async for each in reader.items(resource, _Role, namespace=where):
                roles[Reference(resource.kind, each.metadata.name)] = each.rules or ()
        except Forbidden:
            continue
    cluster_wide = await list_permitted(reader, ClusterRoleBinding)
    cluster_bindings = None if cluster_wide is None else _bindings(cluster_wide, "")
    return AccessInputs(bindings=bindings, cluster_bindings=cluster_bindings, roles=roles)


def _bindings(found: Iterable[RoleBinding | ClusterRoleBinding], namespace: str) -> list[Binding]:
    return [
        Binding(
            own=Reference(each.resource.kind, each.metadata.name),
            role=Reference(each.role_ref.kind, each.role_ref.name),
            subjects=tuple(_subject(subject, namespace) for subject in each.subjects),
            inherited_from=each.metadata.labels.get(marks.INHERITED_FROM, ""),
        )
        for each in found
    ]


def _subject(subject: Subject, namespace: str) -> RbacSubject:
    is_account = subject.kind == "ServiceAccount"
    where = (subject.namespace or namespace) if is_account else ""
    return RbacSubject(kind=subject.kind, name=subject.name, namespace=where)


async def _reviewed(
    client: Client, bindings: Sequence[Binding], known: Sequence[Binding], wanted: RequestedAccess, namespace: str
) -> tuple[list[Grant], list[Reference]]:
    """Ask the API server about the subjects of bindings whose roles may not be read.

    Returns:
        The subjects that have the right, and the roles for which the reader may not ask.
    """
    subjects = list(dict.fromkeys(subject for each in bindings for subject in each.subjects))
    try:
        reasons = await all_of(_reason(client, each, wanted, namespace) for each in subjects)
    except Forbidden:
        return [], [each.role for each in bindings if each.subjects]
    found: list[Grant] = []
    for subject, reason in zip(subjects, reasons, strict=True):
        # Another authorizer than RBAC gives a reason of its own; then the first binding of the subject stands in.
        if reason is not None:
            binding = next(each for each in bindings if subject in each.subjects)
            found.append(by_reason(reason, subject, known) or grant(binding, subject))
    return found, []


async def _reason(client: Client, subject: RbacSubject, wanted: RequestedAccess, namespace: str) -> str | None:
    """Return why a subject has the right; None if it does not have it.

    Raises:
        Forbidden: The reader may not create LocalSubjectAccessReviews.
    """
    resource, _, subresource = wanted.resource.partition("/")
    attributes = {"verb": wanted.verb, "group": wanted.group, "resource": resource, "name": wanted.name}
    attributes |= {"subresource": subresource, "namespace": namespace}
    who: Json = {"user": subject.name}
    if subject.kind == "Group":
        who = {"groups": [subject.name]}
    elif subject.kind == "ServiceAccount":
        who = {"user": f"system:serviceaccount:{subject.namespace}:{subject.name}"}
    review = {"metadata": {"namespace": namespace}, "spec": {"resourceAttributes": attributes, **who}}
    status: Json = (await post(client, REVIEWS, review, namespace))["status"]
    return str(status.get("reason", "")) if status["allowed"] else None

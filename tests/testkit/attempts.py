"""Requests that policies must refuse, as data, and users with too many rights to send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.kube import wire
from tenantry.kube.client import APPLY_PATCH, JSON, MERGE_PATCH
from testkit.api import Api, tenant_json, until

Json = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Attempt(NamedTuple):
    """One request.

    Args:
        method: HTTP's.
        path: Where to.
        body: As JSON; None for none.
        content_type: Of the body.
        query: As in the API.
    """

    method: str
    path: str
    body: object = None
    content_type: str = JSON
    query: Mapping[str, str] = {}


def merge(path: str, patch: object) -> Attempt:
    """Return a JSON merge patch."""
    return Attempt("PATCH", path, patch, MERGE_PATCH)


def strategic(path: str, patch: object) -> Attempt:
    """Return a strategic merge patch."""
    return Attempt("PATCH", path, patch, STRATEGIC_PATCH)


def steps(path: str, *patch: object) -> Attempt:
    """Return a JSON patch."""
    return Attempt("PATCH", path, patch, JSON_PATCH)


def apply(path: str, resource: Resource, value: Json) -> Attempt:
    """Return a server-side apply that takes over every field."""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **value}
    return Attempt("PATCH", path, whole, APPLY_PATCH, {"fieldManager": "attempt", "force": "true"})


def post(path: str, resource: Resource, value: Json) -> Attempt:
    """Return a creation."""
    return Attempt("POST", path, {"apiVersion": resource.api_version, "kind": resource.kind, **value})


async def succeeded(person: Api, attempts: Mapping[str, Attempt], *, told: str, or_told: str = "") -> list[str]:
    """Send each request, and return a line for each that was not refused with these words.

    The words tell that the policy in question refuses, not rights that are missing by chance. Where a second policy
    refuses, too, either may be the one that the API server names: `or_told` are its words.
    """
    wrong: list[str] = []
    for what, attempt in attempts.items():
        body = msgspec.json.encode(attempt.body) if attempt.body is not None else None
        try:
            await person.client.request(
                attempt.method, attempt.path, query=attempt.query, body=body, content_type=attempt.content_type
            )
        except Forbidden as error:
            if told not in str(error) and not (or_told and or_told in str(error)):
                wrong.append(f"{what}: refused with other words: {error}")
        except ApiError as error:
            wrong.append(f"{what}: failed otherwise: {error}")
        else:
            wrong.append(f"{what}: went through")
    return wrong


async def make_careless(api: Api, name: str, user: str, **spec: object) -> Tenant:
    """Create a tenant whose owner has every right on its objects and on all namespaces."""
    await api.create(Tenant.resource, tenant_json(name, owners=[{"kind": "User", "name": user}], **spec))
    tenant = await api.ready(name)
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    namespaces = {"apiGroups": [""], "resources": ["namespaces", "namespaces/*"], "verbs": ["*"]}
    subjects = [{"kind": "User", "name": user, "apiGroup": RBAC}]
    await api.create(CLUSTER_ROLES, {"metadata": {"name": f"{name}-all"}, "rules": [every]})
    await api.create(CLUSTER_ROLES, {"metadata": {"name": f"{name}-namespaces"}, "rules": [namespaces]})
    await api.create(RoleBinding.resource, _binding("careless", f"{name}-all", subjects), name)
    await api.create(CLUSTER_ROLE_BINDINGS, _binding(f"{name}-namespaces", f"{name}-namespaces", subjects))
    await api.open(name)
    await careless(api, name, user)
    return tenant


async def careless(api: Api, namespace: str, user: str) -> None:
    """Wait until the API server knows that a user has every right in a namespace, and on all namespaces."""
    subject = {"kind": "User", "name": user}

    async def so() -> bool:
        inside = await api.may(subject, "*", "*", "*", namespace)
        return inside and await api.may(subject, "*", "", "namespaces")

    await until(so, f"{user} has too many rights in {namespace}")


def _binding(name: str, role: str, subjects: list[dict[str, str]]) -> Json:
    reference = {"kind": "ClusterRole", "name": role, "apiGroup": RBAC}
    return {"metadata": {"name": name}, "subjects": subjects, "roleRef": reference}


def namespace_path(name: str, subresource: str = "") -> str:
    """Return the path of a namespace."""
    return wire.path(Namespace.resource, "", name, subresource)

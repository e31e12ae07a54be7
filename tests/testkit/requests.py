"""Requests on a real API server, created and decided by users with certificates."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.requests import Request, RoleRequest
from tenantry.engine.conditions import find, is_true
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, until
from testkit.people import as_person

Json = dict[str, Any]


class People:
    """Clients of the API server for different users, each with a client certificate.

    Args:
        cluster: The cluster whose authority signs.
        folder: For keys and certificates.
        stack: Closes the clients.
    """

    def __init__(self, cluster: LocalCluster, folder: Path, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._folder = folder
        self._stack = stack

    async def person(self, user: str, group: str = "") -> Api:
        """Return a client with a user's certificate."""
        return await self._stack.enter_async_context(as_person(self._cluster, self._folder, user, group))

    async def node(self, name: str) -> Api:
        """Return a client with the certificate of a node's kubelet."""
        return await self.person(f"system:node:{name}", "system:nodes")


async def decide(who: Api, request: type[Request], name: str, namespace: str = "", **status: object) -> Json:
    """Write a decision as a user."""
    patch = {"status": status or {"decision": "Approved"}}
    data = await who.client.merge_patch(request.resource, namespace, name, patch, subresource="status")
    return msgspec.json.decode(data)


async def said(
    api: Api, kind: type[Request], name: str, namespace: str = "", *, type_: str = "Ready", holds: bool, reason: str
) -> Request:
    """Wait until a condition has a status, and return the request."""

    async def so() -> Request | None:
        found = await api.client.get(kind, name, namespace)
        condition = find(found.status.conditions, type_)
        right = is_true(found.status.conditions, type_) is holds
        return found if right and condition is not None and condition.reason == reason else None

    return await until(so, f"{kind.__name__} {name} has {type_}={holds} {reason}")


async def granted(who: Api, administrator: Api, name: str, namespace: str) -> None:
    """Request the role edit in a namespace as a user, approve it as an administrator, and wait for the grant."""
    await ask(who, RoleRequest, role_request(name), namespace)
    await decide(administrator, RoleRequest, name, namespace)
    await said(administrator, RoleRequest, name, namespace, holds=True, reason=reasons.GRANTED)


async def member(api: Api, user: str, namespace: str, role: str = "view") -> None:
    """Give a user access to a namespace."""
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    value = {"metadata": {"name": f"{user}-{role}"}, "roleRef": ref, "subjects": [subject]}
    await api.create(RoleBinding.resource, value, namespace)


async def ask(who: Api, kind: type[Request], value: Json, namespace: str = "") -> Json:
    """Create a request once the user may: the API server applies a new binding a moment later."""

    async def made() -> Json | None:
        try:
            return await who.create(kind.resource, value, namespace)
        except Forbidden as error:
            if "cannot create resource" not in str(error):
                raise
            return None

    return await until(made, f"{kind.__name__} can be made")


def role_request(name: str, **spec: object) -> Json:
    """Return a request for the role edit, as in YAML."""
    return {"metadata": {"name": name}, "spec": {"roleRef": {"kind": "ClusterRole", "name": "edit"}, **spec}}

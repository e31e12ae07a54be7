"""Trees of namespaces on a real API server: tests create Subnamespaces and wait for them."""

from __future__ import annotations

from typing import Any

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.engine.conditions import find, is_true
from testkit.api import SECONDS, Api, until

Json = dict[str, Any]

WORKSPACE: Json = {"mode": "Workspace", "inheritance": {"roles": "Sync", "roleBindings": "Sync"}}
"""The spec of a Workspace, whose owners are its parent's."""


def subtenant(*owners: str, **spec: object) -> Json:
    """Return the spec of a Subtenant."""
    return {"mode": "Subtenant", "owners": [{"kind": "User", "name": owner} for owner in owners], **spec}


def subnamespace_json(name: str, spec: Json) -> Json:
    """Return a Subnamespace as JSON."""
    return {"metadata": {"name": name}, "spec": spec}


class Trees:
    """Actions on Subnamespaces.

    Args:
        api: An administrator.
    """

    def __init__(self, api: Api) -> None:
        self.api = api

    async def ask(self, parent: str, name: str, spec: Json | None = None) -> Subnamespace:
        """Create a Subnamespace, by default a Workspace, without waiting."""
        await self.api.create(Subnamespace.resource, subnamespace_json(name, spec or WORKSPACE), parent)
        return await self.get(parent, name)

    async def make(self, parent: str, name: str, spec: Json | None = None) -> str:
        """Create a Subnamespace, wait until its owners can work in its namespace, and return that."""
        await self.ask(parent, name, spec)
        return await self.open(parent, name)

    async def open(self, parent: str, name: str) -> str:
        """Wait until a Subnamespace is ready and its owners can work in its namespace, and return that."""
        namespace = (await self.ready(parent, name)).status.namespace
        await self.api.open(namespace)
        return namespace

    async def get(self, parent: str, name: str) -> Subnamespace:
        """Return a Subnamespace."""
        return await self.api.client.get(Subnamespace, name, parent)

    async def ready(self, parent: str, name: str) -> Subnamespace:
        """Wait until a Subnamespace is ready for its current spec, and return it."""
        return await self.condition(parent, name, reasons.READY, holds=True)

    async def condition(
        self, parent: str, name: str, type_: str, *, holds: bool, reason: str = "", seconds: float = SECONDS
    ) -> Subnamespace:
        """Wait until a condition has a status for the current spec, and return the Subnamespace."""
        last: Subnamespace | None = None

        async def so() -> Subnamespace | None:
            nonlocal last
            found = last = await self.get(parent, name)
            condition = find(found.status.conditions, type_)
            current = found.status.observed_generation == found.metadata.generation
            right = is_true(found.status.conditions, type_) is holds
            told = not reason or (condition is not None and condition.reason == reason)
            return found if current and right and told else None

        return await until(
            so,
            f"Subnamespace {parent}/{name} has {type_}={holds} {reason}",
            seconds=seconds,
            seen=lambda: last and last.status,
        )

    async def message(self, parent: str, name: str, type_: str = reasons.READY) -> str:
        """Return the message of a condition."""
        condition = find((await self.get(parent, name)).status.conditions, type_)
        return condition.message if condition is not None else ""

    async def namespace_gone(self, name: str) -> None:
        """Wait until a namespace is gone."""
        await self.api.gone(Namespace.resource, name)

    async def labels(self, namespace: str) -> dict[str, str]:
        """Return a namespace's labels."""
        labels: dict[str, str] = (await self.api.get(Namespace.resource, namespace))["metadata"]["labels"]
        return labels

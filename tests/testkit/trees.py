"""Trees of namespaces on a real API server: Subnamespaces asked for, waited for, and looked at."""

from __future__ import annotations

from typing import Any

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.engine.conditions import find, is_true
from testkit.api import SECONDS, Api, until

Json = dict[str, Any]

WORKSPACE: Json = {"mode": "Workspace", "inheritance": {"roles": "Sync", "roleBindings": "Sync"}}
"""The spec of a team's child, whose people are its parent's."""


def subtenant(*owners: str, **spec: object) -> Json:
    """Return the spec of a customer's child."""
    return {"mode": "Subtenant", "owners": [{"kind": "User", "name": owner} for owner in owners], **spec}


def subnamespace_json(name: str, spec: Json) -> Json:
    """Return a Subnamespace, as in YAML."""
    return {"metadata": {"name": name}, "spec": spec}


class Trees:
    """What tests do with Subnamespaces.

    Args:
        api: An administrator.
    """

    def __init__(self, api: Api) -> None:
        self.api = api

    async def ask(self, parent: str, name: str, spec: Json | None = None) -> Subnamespace:
        """Create a Subnamespace, a workspace where nothing else is said, and wait for nothing."""
        await self.api.create(Subnamespace.resource, subnamespace_json(name, spec or WORKSPACE), parent)
        return await self.get(parent, name)

    async def make(self, parent: str, name: str, spec: Json | None = None) -> str:
        """Create a Subnamespace, wait until it is ready and can be worked in, and return its namespace."""
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
        """Wait until a Subnamespace is ready as its spec is now, and return it."""
        return await self.condition(parent, name, reasons.READY, holds=True)

    async def condition(
        self, parent: str, name: str, type_: str, *, holds: bool, reason: str = "", seconds: float = SECONDS
    ) -> Subnamespace:
        """Wait until a condition is so for the spec as it is now, and return the Subnamespace."""

        async def so() -> Subnamespace | None:
            found = await self.get(parent, name)
            condition = find(found.status.conditions, type_)
            current = found.status.observed_generation == found.metadata.generation
            right = is_true(found.status.conditions, type_) is holds
            told = not reason or (condition is not None and condition.reason == reason)
            return found if current and right and told else None

        return await until(so, f"Subnamespace {parent}/{name} has {type_}={holds} {reason}", seconds=seconds)

    async def message(self, parent: str, name: str, type_: str = reasons.READY) -> str:
        """Return what a condition says."""
        condition = find((await self.get(parent, name)).status.conditions, type_)
        return condition.message if condition is not None else ""

    async def namespace_gone(self, name: str) -> None:
        """Wait until a namespace is gone."""
        await self.api.gone(Namespace.resource, name)

    async def labels(self, namespace: str) -> dict[str, str]:
        """Return a namespace's labels."""
        labels: dict[str, str] = (await self.api.get(Namespace.resource, namespace))["metadata"]["labels"]
        return labels

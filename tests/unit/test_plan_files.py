"""The plan of files: what a user sees of it who may not read what the operator's part follows from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest
from typing_extensions import override

from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.tenant import Tenant
from tenantry.kube import wire
from tenantry.kube.client import ATTEMPTS
from tenantry.kube.transport import JSON
from tenantry.views.drift.files import FilesPlan, plan
from tenantry.views.manifests import WantedObject
from testkit.model import World
from testkit.worldclient import WorldClient
from testkit.worlds import tenant

LABELS = {"team": "platform"}


class _RefusingClient(WorldClient):
    """A client to whom one path is answered by an error.

    Args:
        world: Answers the others.
        refused: The path, or how it begins.
        error: The error.
    """

    def __init__(self, world: World, refused: str, error: ApiError) -> None:
        super().__init__(world, lambda: "none")
        self._refused = refused
        self._error = error

    @override
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
        seconds: float | None = None,
    ) -> bytes:
        if path.startswith(self._refused):
            raise self._error
        return await super().request(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts, seconds=seconds
        )


def labelled(name: str) -> Tenant:
    found = tenant(name)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=LABELS))


def planned(prunes: Mapping[str, str] | None) -> FilesPlan:
    """Return the plan of a file with the Tenant acme, which the cluster has too, beside globex: of an owner."""
    world = World()
    for name in ("acme", "globex"):
        world.create(labelled(name))
    error = Forbidden("namespaces is forbidden", status=403)
    return asyncio.run(plan(_RefusingClient(world, wire.path(Namespace.resource, ""), error), _wanted(), prunes))


def _wanted() -> list[WantedObject]:
    document = {"apiVersion": Tenant.resource.api_version, "kind": "Tenant", "metadata": {"name": "acme"}}
    return [WantedObject("tenants.yaml", labelled("acme"), document)]


def test_a_partial_plan_has_the_prunes() -> None:
    found = planned(LABELS)
    assert found.is_partial
    assert [(each.by, each.action, each.kind, each.name) for each in found.steps] == [
        ("Prune", "delete", "Tenant", "globex")
    ]


def test_a_partial_plan_without_prunes_deletes_nothing() -> None:
    found = planned(None)
    assert found.is_partial
    assert found.steps == ()


def test_a_cluster_without_the_kinds_is_no_refusal_of_an_object() -> None:
    """Issue 20: the command reports what to install, with another exit code."""
    missing = NotFound("404 page not found", status=404)
    with pytest.raises(NotFound):
        asyncio.run(plan(_RefusingClient(World(), "/apis/tenantry.dev/", missing), _wanted(), None))

"""The plan of files: what a user sees of it who may not read what the operator's part follows from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from typing_extensions import override

from tenantry.api.errors import Forbidden
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


class _OwnersClient(WorldClient):
    """A client that may not list Namespaces."""

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
        if path == wire.path(Namespace.resource, ""):
            raise Forbidden("namespaces is forbidden", status=403)
        return await super().request(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts, seconds=seconds
        )


def labelled(name: str) -> Tenant:
    found = tenant(name)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=LABELS))


def planned(prunes: Mapping[str, str] | None) -> FilesPlan:
    """Return the plan of a file with the Tenant acme, which the cluster has too, beside globex."""
    world = World()
    for name in ("acme", "globex"):
        world.create(labelled(name))
    kept = labelled("acme")
    document = {"apiVersion": Tenant.resource.api_version, "kind": "Tenant", "metadata": {"name": "acme"}}
    wanted = [WantedObject("tenants.yaml", kept, document)]
    return asyncio.run(plan(_OwnersClient(world, lambda: "none"), wanted, prunes))


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

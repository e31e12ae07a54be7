"""The plan of files: what a user sees of it who may not read what the operator's part follows from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.tenant import Tenant
from tenantry.kube import wire
from tenantry.views.drift.files import FilesPlan, plan
from tenantry.views.manifests import WantedObject
from testkit.model import World
from testkit.worldclient import AnsweredClient
from testkit.worlds import tenant

LABELS = {"team": "platform"}


def labelled(name: str) -> Tenant:
    found = tenant(name)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=LABELS))


def planned(prunes: Mapping[str, str] | None) -> FilesPlan:
    """Return the plan of a file with the Tenant acme, which the cluster has too, beside globex: of an owner."""
    world = World()
    for name in ("acme", "globex"):
        world.create(labelled(name))
    error = Forbidden("namespaces is forbidden", status=403)
    return asyncio.run(plan(AnsweredClient(world, {wire.path(Namespace.resource, ""): error}), _wanted(), prunes))


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
        asyncio.run(plan(AnsweredClient(World(), {"/apis/tenantry.dev/": missing}), _wanted(), None))

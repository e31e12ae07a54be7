"""What is inside a control plane is listed whole, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import NotFound, ServerError
from tenantry.api.model import Resource
from tenantry.controllers.conversion import inventory
from tenantry.controllers.conversion.surroundings import API_SERVICES
from tenantry.engine.reader import Reader
from tenantry.engine.served import listable

Json = dict[str, Any]

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")


def kinds_of(*resources: Resource) -> Json:
    """Return the kinds of a group in the form of the discovery API."""
    found = [
        {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced, "verbs": ["list"]} for each in resources
    ]
    return {"resources": found}


class ServedGroups:
    """An API server with groups; the client of a `Reader`, too.

    Args:
        groups: By path: what it answers, or how it fails.
        objects: By kind.
    """

    def __init__(
        self, groups: Mapping[str, Json | bytes | Exception], objects: Mapping[Resource, Sequence[Json]]
    ) -> None:
        versions = [{"groupVersion": path.removeprefix("/apis/")} for path in groups]
        self._found = {"/apis": {"groups": [{"versions": versions}]}, "/api/v1": {}, **groups}
        self._objects = objects

    async def request(self, method: str, path: str) -> bytes:  # noqa: ARG002 - it only reads
        """Answer a request."""
        found = self._found[path]
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, bytes) else msgspec.json.encode(found)

    async def items(self, resource: Resource, kind: object, **_: object) -> AsyncIterator[msgspec.Raw]:  # noqa: ARG002
        """Yield the objects of a kind."""
        for each in self._objects.get(resource, ()):
            yield msgspec.Raw(msgspec.json.encode(each))


async def test_a_group_that_does_not_answer_is_never_left_out_in_silence() -> None:
    """Its objects would be deleted with the control plane."""
    asked = ServedGroups({"/apis/apps/v1": ServerError("no")}, {})
    with pytest.raises(ServerError):
        await listable(lambda path: asked.request("GET", path))


async def test_a_group_that_is_gone_since_has_no_kinds() -> None:
    asked = ServedGroups({"/apis/a.example/v1": NotFound("no"), "/apis/apps/v1": kinds_of(DAEMON_SETS)}, {})
    assert await listable(lambda path: asked.request("GET", path)) == [DAEMON_SETS]


@pytest.mark.parametrize("answer", [ServerError("no"), b"not JSON"])
async def test_a_program_of_the_tenant_that_serves_a_group_is_not_asked(answer: Exception | bytes) -> None:
    """It may answer anything, and its APIService refuses the return."""
    service = {"metadata": {"name": "v1.a.example"}, "spec": {"group": "a.example", "service": {"name": "s"}}}
    groups: dict[str, Json | bytes | Exception] = {
        "/apis/a.example/v1": answer,
        "/apis/metrics.k8s.io/v1beta1": answer,
        f"/apis/{API_SERVICES.api_version}": kinds_of(API_SERVICES),
    }
    asked = ServedGroups(groups, {API_SERVICES: [service]})
    found = await inventory.obstacles(Reader(asked), "acme")  # pyright: ignore[reportArgumentType] - it only reads
    assert [each.name for each in found] == ["v1.a.example"]

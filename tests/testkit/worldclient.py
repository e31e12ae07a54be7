"""A client whose requests a `testkit.model.World` answers; see `testkit.worldcluster`."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from tenantry.api.errors import NotFound, TenantryError, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject, Resource
from tenantry.controllers.webhook.controller import CONFIGURATIONS
from tenantry.engine.cluster import CRDS
from tenantry.engine.request import TOKEN_REVIEWS, ApiRequest, PatchType, Verb
from tenantry.kube.client import ATTEMPTS, Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import JSON
from tenantry.world import inheritance
from testkit.model import World


class Crash(BaseException):
    """The operator ends before it sends a request; a new `WorldCluster` on the same World is the next operator."""


def _models(kind: type[KubernetesObject]) -> Iterator[type[KubernetesObject]]:
    for each in kind.__subclasses__():
        if hasattr(each, "resource"):
            yield each
        yield from _models(each)


class WorldClient(Client):
    """A client whose requests a World answers.

    Args:
        world: It has the objects.
        faults: Called before each request; returns one of `testkit.runs.FAULTS`.
    """

    def __init__(self, world: World, faults: Callable[[], str]) -> None:
        super().__init__(Connection(server="https://192.0.2.1", source="a test"))
        self._world = world
        self._faults = faults

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,  # noqa: ARG002 - the World never asks to repeat a request
        seconds: float | None = None,  # noqa: ARG002 - the World answers at once
    ) -> bytes:
        """Answer a request; see `Client.request`."""
        fault = self._faults()
        if fault == "crash":
            raise Crash(f"{method} {path}")
        if fault == "lost":
            raise Unreachable("the request was lost")
        answer = self._answer(method, path, query or {}, body, content_type)
        if fault == "answer lost":
            raise Unreachable("the response was lost")
        return answer

    def _answer(self, method: str, path: str, query: Mapping[str, str], body: bytes | None, content_type: str) -> bytes:
        found = self._discovered(path)
        if found is not None:
            return msgspec.json.encode(found)
        resource, namespace, name, subresource = self._parse(path)
        if method == "GET" and not name:
            items = self._world.list(resource, namespace, query)
            metadata = {"resourceVersion": str(self._world.revision)}
            return msgspec.json.encode({"items": items, "metadata": metadata})
        content: Any = msgspec.json.decode(body) if body else None
        asked = ApiRequest(
            verb=Verb(method),
            resource=resource,
            namespace=namespace,
            name=name or content.get("metadata", {}).get("name", ""),
            body=content,
            subresource=subresource,
            patch_type=PatchType(content_type) if method == "PATCH" else PatchType.MERGE,
        )
        if method == "POST" and resource == Namespace.resource:
            # Whether the operator created a namespace decides whether it may delete it as an orphan.
            content["metadata"]["managedFields"] = [{"manager": query.get("fieldManager", "")}]
        # A dry run changes nothing.
        world = copy.deepcopy(self._world) if query.get("dryRun") == "All" else self._world
        return world.answer(asked)

    def _discovered(self, path: str) -> dict[str, Any] | None:
        """Return the answer of the discovery API, which has the kinds of the World's objects; None for other paths."""
        kinds = {resource for resource, _ in self._world.objects}
        if path == "/apis":
            versions = sorted({each.api_version for each in kinds if each.group})
            return {"groups": [{"versions": [{"groupVersion": each}]} for each in versions]}
        listed = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced, "verbs": ["list"]}
            for each in sorted(kinds, key=lambda each: each.plural)
            if path == f"/{'apis' if each.group else 'api'}/{each.api_version}"
        ]
        return {"resources": listed} if listed or path == "/api/v1" else None

    def _parse(self, path: str) -> tuple[Resource, str, str, str]:
        """Return the parts of a URL path: kind, namespace, name and subresource.

        Raises:
            NotFound: The kind has no model.
        """
        root, *parts = path.strip("/").split("/")
        group = parts.pop(0) if root == "apis" else ""
        version = parts.pop(0)
        # "/namespaces/x" is a namespace itself.
        namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
        plural, name, subresource = (*(parts[2:] if namespace else parts), "", "")[:3]
        found = self._kinds().get((group, version, plural))
        if found is None:
            raise NotFound(f"the World has no kind for {path!r}", status=404)
        return found, namespace, unquote(name), subresource

    def _kinds(self) -> dict[tuple[str, str, str], Resource]:
        """Return the kinds of the World's objects, of the models, and of inherited objects."""
        known = [
            *(kind.resource for kind in _models(KubernetesObject)),
            *inheritance.KINDS,
            CRDS,
            TOKEN_REVIEWS,
            CONFIGURATIONS,
            *(resource for resource, _ in self._world.objects),
        ]
        return {(each.group, each.version, each.plural): each for each in known}


class OperatedClient(WorldClient):
    """A client of a cluster with an operator, which acts on each change before the client goes on.

    Args:
        world: It answers the requests.
        operate: What the operator does after a change.
    """

    def __init__(self, world: World, operate: Callable[[], object]) -> None:
        super().__init__(world, lambda: "none")
        self._operate = operate

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
        """Answer a request; see `Client.request`."""
        answer = await super().request(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts, seconds=seconds
        )
        if method != "GET":
            # In a thread, because the operator of a test has an event loop of its own.
            await asyncio.to_thread(self._operate)
        return answer


class AnsweredClient(WorldClient):
    """A client of an API server that answers some paths in another way than the World does.

    Args:
        world: It answers the other requests.
        answers: The beginning of a path to its answer, or to the error that it ends in.
    """

    def __init__(self, world: World, answers: Mapping[str, bytes | TenantryError]) -> None:
        super().__init__(world, lambda: "none")
        self._answers = answers

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
        """Answer a request; see `Client.request`."""
        for begins, answer in self._answers.items():
            if path.startswith(begins):
                if isinstance(answer, TenantryError):
                    raise answer
                return answer
        return await super().request(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts, seconds=seconds
        )

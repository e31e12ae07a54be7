"""The one writer of the operator: every write goes through here, with its field manager, preconditions and retries.

    plan ─► Applier ───────ApiRequest──► Writer ─► Client ─► API server
                    ◄─────response──        └► cache: a write of our own wakes no reconciler

Sources: Kubernetes, "API concepts" (resource versions, conditional requests) and "API-initiated eviction".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

from tenantry.api.errors import ApiError, NotFound, TenantryError
from tenantry.api.model import Json, KubernetesObject, Resource
from tenantry.engine import request
from tenantry.engine.apply import Applier, Caches, NoCaches, Outcome
from tenantry.engine.pace import Pace
from tenantry.engine.plan import Plan
from tenantry.engine.request import ApiRequest, PatchType, Together, Work
from tenantry.engine.slots import Slots
from tenantry.kube import wire
from tenantry.kube.client import ATTEMPTS, Client
from tenantry.kube.transport import JSON

TOGETHER = 32
"""How many pieces of one work are under way at once: a large plan must not occupy every connection of the client."""

K = TypeVar("K", bound=KubernetesObject)
T = TypeVar("T")

log = logging.getLogger(__name__)


class Turns(NamedTuple):
    """The order of the requests of one writer.

    Args:
        slots: How many are under way at once.
        rank: Returns the rank of a request; those of a lower rank go first.
    """

    slots: Slots
    rank: Callable[[ApiRequest], int]


class Writer:
    """Write to one API server.

    Args:
        client: Its field manager signs every write, and it counts every request.
        caches: They take in every response.
        pace: Bounds the rate of writes; None for no bound.
        turns: Bounds how many requests are under way at once; None for no bound but the client's connections.
        seconds: The deadline of a write after its turn, with all its attempts; None for the client's own.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches | None = None,
        pace: Pace | None = None,
        turns: Turns | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._pace = pace
        self._turns = turns
        self._caches = caches or NoCaches()
        self._applier = Applier(self._caches)
        self.equivalent = self._applier.equivalent
        self.is_like = self._applier.is_like

    # -- plans ----------------------------------------------------------------------------------

    async def apply(self, plan: Plan) -> Outcome:
        """Carry out a plan; refusals and failures are in the outcome."""
        return await self.do(self._applier.run(plan))

    # -- single writes --------------------------------------------------------------------------

    async def create(self, value: K, *, quiet: bool = False) -> K:
        """Create an object and return it as the server stored it.

        Args:
            value: The object.
            quiet: Do not wake the reconcilers that the write itself concerns.

        Raises:
            AlreadyExists: The name is taken.
        """
        found = await self.own(request.create(value), quiet=quiet)
        return found if isinstance(found, type(value)) else value

    async def own(self, asked: ApiRequest, *, quiet: bool = False) -> Any:  # noqa: ANN401 - as it is cached
        """Send a creation, replacement or patch; return the object in the form in which its kind is cached.

        Args:
            asked: The request.
            quiet: Do not wake the reconcilers that the write itself concerns.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        return await self.do(self._applier.own(asked, quiet=quiet))

    async def status(self, value: KubernetesObject) -> None:
        """Replace an object's status at the resourceVersion that it was read at; one that is gone needs none.

        Raises:
            Conflict: The object has changed since; look at it again.
        """
        await self._unless_gone(request.replace(value, subresource="status"))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Json,
        *,
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
        quiet: bool = False,
    ) -> Any:  # noqa: ANN401 - the object in the form in which its kind is cached
        """Patch an object and return it as the server stored it, in the form in which its kind is cached.

        Args:
            resource: The kind.
            namespace: "" for a cluster-scoped object.
            name: The object's name.
            body: The patch; a resourceVersion in it is a precondition.
            subresource: As in "status".
            patch_type: How it is merged.
            quiet: Do not wake the reconcilers that the write itself concerns.

        Raises:
            NotFound: The object is gone.
            Conflict: It is no longer at the resourceVersion that the patch names.
        """
        asked = request.patch(resource, namespace, name, body, subresource=subresource, patch_type=patch_type)
        return await self.own(asked, quiet=quiet)

    async def delete(self, value: KubernetesObject) -> None:
        """Delete an object by its uid: another object of its name stays."""
        meta = value.metadata
        await self.remove(value.resource, meta.namespace, meta.name, uid=meta.uid)

    async def remove(self, resource: Resource, namespace: str, name: str, *, uid: str, version: int = 0) -> bool:
        """Delete an object of a uid, at any resourceVersion or at one, and return whether it was there.

        Raises:
            Conflict: The name belongs to another object, or the object has changed.
        """
        return await self.do(self._applier.remove(request.delete(resource, namespace, name, uid=uid, version=version)))

    async def _unless_gone(self, asked: ApiRequest) -> None:
        try:
            # What a controller has written into a status is no news to it.
            await self.own(asked, quiet=True)
        except NotFound:
            log.debug("deleted before it was written", extra={"key": asked.name})

    # -- the driver -----------------------------------------------------------------------------

    async def do(self, work: Work[T]) -> T:
        """Send what work asks for until it ends, and return its result.

        Raises:
            ApiError: As the work raises it.
        """
        try:
            asked = request.resume(work, None)
            while True:
                try:
                    answer: object = await self._answer(asked)
                except ApiError as error:
                    answer = error
                asked = request.resume(work, answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            work.close()

    async def _answer(self, asked: ApiRequest | Together) -> bytes | list[Any]:
        if isinstance(asked, ApiRequest):
            return await self.send(asked)
        if len(asked.work) == 1:
            return [await self._result(asked.work[0])]
        # One gate for each `Together`: nested work has its own, or inner work could wait for its outer work forever.
        gate = asyncio.Semaphore(TOGETHER)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._result(work, gate)) for work in asked.work]
        return [task.result() for task in tasks]

    async def _result(self, work: Work[Any], gate: asyncio.Semaphore | None = None) -> Any:  # noqa: ANN401 - any result
        """Return what a piece of work results in, or the error that ended it."""
        try:
            async with gate or nullcontext():
                return await self.do(work)
        except TenantryError as error:
            return error

    async def send(self, asked: ApiRequest) -> bytes:
        """Send one request and return the body of the response.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        if self._turns is None:
            return await self._paced(asked)
        async with self._turns.slots.taken(self._turns.rank(asked)):
            return await self._paced(asked)

    async def _paced(self, asked: ApiRequest) -> bytes:
        is_write = asked.verb is not request.Verb.GET
        if self._pace is not None and is_write:
            await self._pace.turn()
        # A creation is a POST to the collection; a POST to a subresource, such as an eviction, names the object.
        is_creation = asked.verb is request.Verb.CREATE and not asked.subresource
        path = wire.path(asked.resource, asked.namespace, "" if is_creation else asked.name, asked.subresource)
        body = asked.body
        return await self._client.request(
            asked.verb,
            path,
            query=self._signature(asked) if asked.verb in _SIGNED else asked.selectors,
            body=wire.encode(body) if isinstance(body, KubernetesObject) else _encoded(body),
            content_type=asked.patch_type if asked.verb is request.Verb.PATCH else JSON,
            attempts=ATTEMPTS if asked.is_repeated else 1,
            seconds=self._seconds if is_write else None,
        )

    def _signature(self, asked: ApiRequest) -> dict[str, str]:
        forced = {"force": "true"} if asked.patch_type is PatchType.APPLY else {}
        dry = {"dryRun": "All"} if asked.is_dry_run else {}
        return {"fieldManager": self._client.field_manager, **forced, **dry}


_SIGNED = frozenset({request.Verb.CREATE, request.Verb.REPLACE, request.Verb.PATCH})


def _encoded(body: bytes | Json | None) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else wire.encode_json(body)

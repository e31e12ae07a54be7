"""Carries out a plan: the only place that writes children."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, NotFound, TenantryError
from tenantry.api.model import Resource
from tenantry.engine.cache import Cache, Change
from tenantry.engine.observed import Observed, fingerprint, observe
from tenantry.engine.plan import Action, Blocked, Edit, Plan, Step, step_for, update_patch
from tenantry.kube import wire
from tenantry.kube.client import Client

_json: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])

IMMUTABLE = {
    "rolebindings": (("roleRef",),),
    "clusterrolebindings": (("roleRef",),),
    "resourcequotas": (("spec", "scopes"),),
}
"""Paths of fields that the server never changes: an object that differs there is made anew."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a plan.

    Args:
        done: The steps that were carried out.
        blocked: What stood in the way.
        error: The first refusal or failure; what came after it was not tried.
    """

    done: tuple[Step, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    error: TenantryError | None = None


class Applier:
    """Writes with one field manager, and tells the caches what the server answered.

    Args:
        client: Its field manager is the controller's.
        cache_of: The cache of a kind; None for a kind that nobody watches.
        news: Told of what others did to an object while we wrote it.
    """

    def __init__(
        self,
        client: Client,
        cache_of: Callable[[Resource], Cache[Observed] | None],
        news: Callable[[Resource, Change[Observed]], None],
    ) -> None:
        self._client = client
        self._cache_of = cache_of
        self._news = news
        # Fingerprints of what we wanted, and the digest under which the server stored it where it differs: a newer
        # server may fill in defaults that our models do not know.
        self._stored_as: dict[bytes, bytes] = {}

    def equivalent(self, wanted: bytes, found: bytes) -> bool:
        """Tell whether an object of our fingerprint is stored with this digest."""
        return wanted == found or self._stored_as.get(wanted) == found

    async def run(self, plan: Plan) -> Outcome:
        """Carry out a plan wave by wave; the steps of a wave at once. Stops after the wave in which something fails."""
        done: list[Step] = []
        for wave in plan.waves:
            results = await asyncio.gather(*(self._step(step) for step in wave), return_exceptions=True)
            done += [step for step, result in zip(wave, results, strict=True) if result is None]
            blocked = tuple(result for result in results if isinstance(result, Blocked))
            failures = [result for result in results if isinstance(result, BaseException)]
            for failure in failures:
                if not isinstance(failure, ApiError):
                    raise failure
            if failures or blocked:
                error = next((failure for failure in failures if isinstance(failure, ApiError)), None)
                return Outcome(done=tuple(done), blocked=(*blocked, *plan.blocked), error=error)
        return Outcome(done=tuple(done), blocked=plan.blocked)

    async def edit(self, edits: Sequence[Edit]) -> ApiError | None:
        """Change objects that others made, all at once; return the first refusal or failure."""
        results = await asyncio.gather(*(self._edit(edit) for edit in edits), return_exceptions=True)
        failures = [result for result in results if result is not None]
        for failure in failures:
            if not isinstance(failure, ApiError):
                raise failure
        return next((failure for failure in failures if isinstance(failure, ApiError)), None)

    async def _edit(self, edit: Edit) -> None:
        try:
            data = await self._client.request("GET", wire.path(edit.resource, edit.namespace, edit.name))
        except NotFound:
            return  # gone meanwhile: the watch will say so
        live = _json.decode(data)
        patch = edit.change(live)
        if not patch:
            self._learn(edit.resource, data)
            return
        metadata = {**patch.get("metadata", {}), "resourceVersion": live["metadata"]["resourceVersion"]}
        whole = {**patch, "metadata": metadata}
        write = self._client.merge_patch(edit.resource, edit.namespace, edit.name, whole)
        await self._write(edit.resource, edit.observed.key, write)

    async def _step(self, step: Step) -> Blocked | None:
        if step.action is Action.CREATE:
            return await self._create(step)
        if step.action is Action.UPDATE:
            return await self._update(step)
        return await self._delete(step)

    async def _create(self, step: Step) -> Blocked | None:
        child = step.child
        assert child is not None  # noqa: S101 - a creation has one
        try:
            found = await self._write(step.resource, step.key, self._client.create(child.object))
        except AlreadyExists:
            return await self._meet(step)
        wanted = fingerprint(child.object)
        if found.digest != wanted:
            self._stored_as[wanted] = found.digest
        return None

    async def _meet(self, step: Step) -> Blocked | None:
        """Deal with an object that was there although the cache did not know it: ours, or somebody else's."""
        assert step.child is not None  # noqa: S101 - only creations and updates come here
        try:
            data = await self._client.request("GET", wire.path(step.resource, step.namespace, step.name))
        except NotFound as error:
            # There a moment ago, gone now: the next try creates it.
            raise AlreadyExists(str(error), status=409) from error
        if step.child.once:
            await self._claim(step, data)
            return None
        outcome = step_for(step.child, self._learn(step.resource, data), self.equivalent)
        if isinstance(outcome, Step):
            return await self._update(outcome)
        return outcome

    async def _claim(self, step: Step, data: bytes) -> None:
        """Put our labels on an object that is not ours to change otherwise."""
        found = self._learn(step.resource, data)
        wanted = step.child.object.metadata.labels if step.child is not None else {}
        if any(found.labels.get(key) != value for key, value in wanted.items()):
            patch = {"metadata": {"labels": wanted, "resourceVersion": str(found.version)}}
            write = self._client.merge_patch(step.resource, step.namespace, step.name, patch)
            await self._write(step.resource, step.key, write)

    async def _update(self, step: Step) -> Blocked | None:
        child, found = step.child, step.observed
        assert child is not None  # noqa: S101 - an update has both
        assert found is not None  # noqa: S101 - the same
        try:
            data = await self._client.request("GET", wire.path(step.resource, step.namespace, step.name))
        except NotFound:
            self._forget(step)
            return await self._create(step)
        live = _json.decode(data)
        if live["metadata"]["uid"] != found.uid:
            return await self._meet(step)
        patch = update_patch(child.object, live)
        if not patch:
            seen = self._learn(step.resource, data)
            self._stored_as[fingerprint(child.object)] = seen.digest
            return None
        if needs_new(step.resource, patch):
            await self._client.delete(step.resource, step.namespace, step.name, uid=found.uid)
            self._forget(step)
            return await self._create(step)
        metadata = {**patch.get("metadata", {}), "resourceVersion": live["metadata"]["resourceVersion"]}
        whole = {**patch, "metadata": metadata}
        seen = await self._write(
            step.resource, step.key, self._client.merge_patch(step.resource, step.namespace, step.name, whole)
        )
        wanted = fingerprint(child.object)
        if seen.digest != wanted:
            self._stored_as[wanted] = seen.digest
        return None

    async def _delete(self, step: Step) -> None:
        found = step.observed
        assert found is not None  # noqa: S101 - a deletion has one
        try:
            await self._client.delete(step.resource, step.namespace, step.name, uid=found.uid)
        except NotFound:
            self._forget(step)

    async def _write(self, resource: Resource, key: str, answer: Awaitable[bytes]) -> Observed:
        """Await a write of ours, so that the watch's word of it wakes nobody."""
        cache = self._cache_of(resource)
        if cache is None:
            return observe(resource, await answer)
        cache.expect(key)
        found = None
        try:
            found = observe(resource, await answer)
            return found
        finally:
            change = cache.settle(key, found)
            if change is not None:
                self._news(resource, change)

    def _learn(self, resource: Resource, data: bytes) -> Observed:
        found = observe(resource, data)
        cache = self._cache_of(resource)
        if cache is not None:
            cache.put(found)
        return found

    def _forget(self, step: Step) -> None:
        cache = self._cache_of(step.resource)
        if cache is not None and step.observed is not None:
            cache.forget(step.key, step.observed.version)


def needs_new(resource: Resource, patch: Mapping[str, Any]) -> bool:
    """Tell whether a merge patch touches what the server never changes."""
    return any(_touches(patch, path) for path in IMMUTABLE.get(resource.plural, ()))


def _touches(patch: object, path: tuple[str, ...]) -> bool:
    if not path:
        return True
    return isinstance(patch, dict) and path[0] in patch and _touches(cast("object", patch[path[0]]), path[1:])

"""Apply a plan, as work that yields requests: pure.

The caches take in every response, so that the watch's event of an own write wakes no reconciler. A worked
example, a RoleBinding that was deleted by hand while its cache is behind:

    plan: UPDATE acme/tenantry-owner      (the cache still has it)
    ──► GET      ◄── NotFound             the cache forgets it, the step becomes a creation
    ──► POST     ◄── 201                  the cache has the answer; the watch's ADDED is older and changes nothing
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, TenantryError
from tenantry.api.model import Json, KubernetesObject, Resource, object_key
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.copies import Copier
from tenantry.engine.observed import Observed, fingerprint, observe
from tenantry.engine.plan import (
    Amendment,
    Blocked,
    Child,
    CopyStep,
    DirectWrite,
    Plan,
    Read,
    Step,
    StepAction,
    needs_new,
    step_for,
    update_patch,
)
from tenantry.engine.request import ApiRequest, Together, Verb, Work

ATTEMPTS = 5
"""How often an amendment is tried: kubelet may write the same node at the same time."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource_version: str


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Version


_versioned = msgspec.json.Decoder(_Versioned)


class _Items(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


_items = msgspec.json.Decoder(_Items)

_EXPLAINED = (Conflict, NotFound, Forbidden)
"""Another client wrote, or a namespace is being deleted: reading again shows which."""

CopyResult = tuple[CopyStep, Blocked | ApiError | None]
"""A copy that was tried, and what blocks it or the error that ended it; None if it is as it should be."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a plan.

    Args:
        done: The steps that were carried out.
        copied: The copies that were tried.
        blocked: The obstacles.
        error: The first refusal or failure; the waves after it were not tried.
        written: The direct writes and amendments that changed something.
        found: The objects that the plan's reads found, in the form in which their kinds are cached.
        is_abandoned: A write before the waves was not carried out, so nothing else was tried.
    """

    done: tuple[Step, ...] = ()
    copied: tuple[CopyResult, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    error: TenantryError | None = None
    written: tuple[DirectWrite | Amendment, ...] = ()
    found: tuple[Any, ...] = ()
    is_abandoned: bool = False


class Caches(Protocol):
    """The part of one API server's caches that writes use."""

    def cache_of(self, resource: Resource) -> Cache[Any] | None:
        """Return the cache of a kind; None for a kind that is not watched."""
        ...

    def notify(self, resource: Resource, change: Change[Any]) -> None:
        """Wake the reconcilers that a change concerns, which no event of a watch will report."""
        ...

    def decode(self, resource: Resource, data: bytes) -> Any:  # noqa: ANN401 - each kind is cached in a form of its own
        """Return an object in the form in which its kind is cached; None for one that the cache would not hold."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...


class NoCaches:
    """The caches of a client that watches no kind."""

    def cache_of(self, resource: Resource) -> Cache[Any] | None:
        """Return None."""

    def notify(self, resource: Resource, change: Change[Any]) -> None:
        """Wake no reconciler."""

    def decode(self, resource: Resource, data: bytes) -> Observed:
        """Return what an object is seen as."""
        return observe(resource, data)

    def monotonic(self) -> float:
        """Return 0: without caches, no object is copied."""
        return 0.0


class Applier:
    """Apply plans to one API server.

    Args:
        caches: They take in every response.
    """

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._copier = Copier(caches, self.own)
        self.is_like = self._copier.is_like
        # Fingerprints of what we wanted, and the digest under which the server stored it if that differs: a newer
        # server may fill in defaults that our models do not know.
        self._stored_as: dict[bytes, bytes] = {}

    def equivalent(self, wanted: bytes, found: bytes) -> bool:
        """Return whether an object of our fingerprint is stored with this digest."""
        return wanted == found or self._stored_as.get(wanted) == found

    def run(self, plan: Plan) -> Work[Outcome]:
        """Carry out a plan wave by wave, the steps of a wave together, then the rest.

        It stops after the wave in which a step fails.
        """
        done: list[Step] = []
        found: tuple[Any, ...] = ()
        if plan.reads:
            answers: list[Any] = yield Together([self._read(read) for read in plan.reads])
            if (failure := first_failure(answers)) is not None:
                return Outcome(error=failure)
            found = tuple(each for answer in answers for each in answer)
        if plan.before:
            first: list[Any] = yield Together([self.direct(write) for write in plan.before])
            if not all(result is True for result in first):
                return Outcome(error=first_failure(first), is_abandoned=True)
        for wave in plan.waves:
            results: list[Any] = yield Together([self._step(step) for step in wave])
            done += [step for step, result in zip(wave, results, strict=True) if result is None]
            blocked = tuple(result for result in results if isinstance(result, Blocked))
            error = first_failure(results)
            if error is not None or blocked:
                return Outcome(done=tuple(done), blocked=(*blocked, *plan.blocked), error=error)
        copied, error = yield from self._copy(plan.copies)
        blocked = (*(result for _, result in copied if isinstance(result, Blocked)), *plan.blocked)
        if error is not None or blocked:
            return Outcome(done=tuple(done), copied=copied, blocked=blocked, error=error)
        results = (yield Together([self._write(write) for write in plan.writes])) if plan.writes else []
        written = tuple(write for write, result in zip(plan.writes, results, strict=True) if result is True)
        error = first_failure(results)
        return Outcome(done=tuple(done), copied=copied, error=error, written=written, found=found)

    def _copy(self, waves: Sequence[Sequence[CopyStep]]) -> Work[tuple[tuple[CopyResult, ...], ApiError | None]]:
        """Carry out waves of copies, up to the end of the first one in which a copy fails."""
        tried: list[CopyResult] = []
        for wave in waves:
            results: list[Any] = yield from self._copier.run(wave)
            tried += zip(wave, results, strict=True)
            error = first_failure(results)
            if error is not None:
                return tuple(tried), error
        return tuple(tried), None

    def own(self, asked: ApiRequest, *, quiet: bool = True) -> Work[Any]:
        """Send a write of our own and return the object as the server answered, in the form in which it is cached.

        Args:
            asked: A creation, replacement or patch.
            quiet: Wake only the reconcilers that a write of others in between concerns, not those that the write
                itself concerns.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        resource = asked.resource
        cache = self._caches.cache_of(resource)
        if cache is None:
            return self._caches.decode(resource, (yield asked))
        if not quiet:
            found = self._caches.decode(resource, (yield asked))
            self._tell(resource, cache.put(found) if found is not None else None)
            return found
        with self._expected(resource, cache, object_key(asked.namespace, asked.name)) as answer:
            found = self._caches.decode(resource, (yield asked))
            answer.append(found)
        return found

    def remove(self, asked: ApiRequest, version: int = 0) -> Work[bool]:
        """Delete an object and return whether it was there; one that is gone leaves the cache.

        Args:
            asked: The deletion.
            version: The object as it was known; the cache keeps a newer one. 0 to leave the cache alone.

        Raises:
            Conflict: The name belongs to an object of another uid or resourceVersion.
        """
        try:
            yield asked
        except NotFound:
            cache = self._caches.cache_of(asked.resource)
            if cache is not None and version:
                cache.forget(object_key(asked.namespace, asked.name), version)
            return False
        return True

    def direct(self, write: DirectWrite) -> Work[bool]:
        """Carry out a write as it stands, and return whether it was; False for a refusal that is no failure."""
        try:
            return (yield from self._send(write))
        except ApiError as error:
            is_explained = False
            if write.rereads and isinstance(error, _EXPLAINED):
                is_explained = yield from self._has_changed(write.rereads)
            if isinstance(error, write.ignores) or is_explained:
                return False
            raise

    def _send(self, write: DirectWrite) -> Work[bool]:
        asked = write.request
        if asked.verb is Verb.DELETE:
            return (yield from self.remove(asked, write.version))
        if asked.subresource == "eviction":
            yield asked
            return True
        try:
            found = yield from self.own(asked, quiet=write.quiet)
        except AlreadyExists:
            if not write.once:
                raise
            data = yield request.get(asked.resource, asked.namespace, asked.name)
            wanted = cast("KubernetesObject", asked.body).metadata.labels  # a creation is sent as an object
            yield from self._claim(wanted, asked.resource, self._learn(asked.resource, data))
            return True
        following = write.then(found) if write.then is not None else None
        if following is not None:
            yield from self.own(following, quiet=write.quiet)
        return True

    def amend(self, amendment: Amendment) -> Work[bool]:
        """Change an object, and return whether that was necessary; one that is gone needs no change.

        Raises:
            Conflict: The object changes all the time, or may no longer be changed.
        """
        resource, namespace, name = amendment.resource, amendment.namespace, amendment.name
        # A cache of `Observed` lacks the fields that the change depends on.
        seen = amendment.seen
        found: KubernetesObject | Json | None = (
            seen if isinstance(seen, KubernetesObject) and not amendment.is_read else None
        )
        data = b""
        for attempt in range(1, ATTEMPTS + 1):
            if found is None:
                try:
                    data = yield request.get(resource, namespace, name)
                except NotFound:
                    return False
                found = _amended(amendment, data)
            body = amendment.change(found)
            if not body:
                if isinstance(found, dict) and isinstance(seen, Observed):
                    # The cache is behind: the next plan would ask for the change again.
                    self._learn(resource, data)
                return False
            versioned = _at_version(body, _resource_version(found))
            subresource = "status" if "status" in body else ""
            asked = request.patch(resource, namespace, name, versioned, subresource=subresource)
            try:
                yield from self.own(asked, quiet=amendment.quiet)
            except NotFound:
                return False
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return True
            found = None
        return False

    def _write(self, write: DirectWrite | Amendment) -> Work[bool]:
        return self.direct(write) if isinstance(write, DirectWrite) else self.amend(write)

    # -- one step -------------------------------------------------------------------------------

    def _step(self, step: Step) -> Work[Blocked | None]:
        if step.action is StepAction.CREATE:
            return (yield from self._create(step))
        if step.action is StepAction.UPDATE:
            return (yield from self._update(step))
        found = cast("Observed", step.observed)  # a deletion has one
        asked = request.delete(step.resource, step.namespace, step.name, uid=found.uid)
        yield from self.remove(asked, found.version)
        return None

    def _create(self, step: Step) -> Work[Blocked | None]:
        child = cast("Child", step.child)  # a creation has one
        try:
            found: Observed = yield from self.own(request.create(child.object))
        except AlreadyExists:
            return (yield from self._meet(step))
        yield from self._finish(child, found)
        return None

    def _meet(self, step: Step) -> Work[Blocked | None]:
        """Deal with an object that was there although the cache did not know it: ours, or another's."""
        child = cast("Child", step.child)  # only creations and updates come here
        try:
            data = yield request.get(step.resource, step.namespace, step.name)
        except NotFound as error:
            # There a moment ago, gone now: the next try creates it.
            raise AlreadyExists(str(error), status=409) from error
        found = self._learn(step.resource, data)
        if child.once:
            yield from self._claim(child.object.metadata.labels, step.resource, found)
            return None
        outcome = step_for(child, found, self.equivalent)
        if isinstance(outcome, Step):
            return (yield from self._update(outcome))
        return outcome

    def _claim(self, wanted: Mapping[str, str], resource: Resource, found: Observed) -> Work[None]:
        """Put our labels on an object that is not ours to change otherwise."""
        if any(found.labels.get(key) != value for key, value in wanted.items()):
            body = {"metadata": {"labels": dict(wanted), "resourceVersion": str(found.version)}}
            yield from self.own(request.patch(resource, found.namespace, found.name, body))

    def _update(self, step: Step) -> Work[Blocked | None]:
        child, found = cast("Child", step.child), cast("Observed", step.observed)  # an update has both
        try:
            data = yield request.get(step.resource, step.namespace, step.name)
        except NotFound:
            self._forget(step)
            return (yield from self._create(step))
        live = _live(data)
        if live["metadata"]["uid"] != found.uid:
            return (yield from self._meet(step))
        patch = update_patch(child.object, live)
        if not patch:
            self._stored_as[fingerprint(child.object)] = self._learn(step.resource, data).digest
            return None
        if needs_new(step.resource, patch):
            yield request.delete(step.resource, step.namespace, step.name, uid=found.uid)
            self._forget(step)
            return (yield from self._create(step))
        seen: Observed = yield from self.own(
            request.patch(step.resource, step.namespace, step.name, _at_version(patch, _resource_version(live)))
        )
        yield from self._finish(child, seen)
        return None

    # -- reads ----------------------------------------------------------------------------------

    def _read(self, read: Read) -> Work[list[Any]]:
        """Read objects into the cache of their kind, and return them; reconcilers hear of what is new."""
        resource, cache = read.resource, self._caches.cache_of(read.resource)
        if not read.name:
            answer = yield request.listing(resource, read.namespace, read.selectors)
            texts = [bytes(raw) for raw in _items.decode(answer).items]
        else:
            key = object_key(read.namespace, read.name)
            known = cache.get(key) if cache is not None else None
            try:
                texts = [(yield request.get(resource, read.namespace, read.name))]
            except NotFound:
                if cache is not None and known is not None:
                    cache.forget(key, known.version)
                    self._tell(resource, Change(known, None))
                return []
        found = [self._caches.decode(resource, text) for text in texts]
        if cache is not None:
            for each in found:
                self._tell(resource, cache.put(each))
        return found

    def _has_changed(self, reads: Sequence[Read]) -> Work[bool]:
        """Read objects, and return whether one is not as the plan saw it."""
        results: list[Any] = yield Together([self._read(read) for read in reads])
        error = first_failure(results)
        if error is not None:
            raise error
        versions = [found[0].version if found else 0 for found in results]
        return versions != [read.version for read in reads]

    # -- caches ---------------------------------------------------------------------------------

    @contextmanager
    def _expected(self, resource: Resource, cache: Cache[Any], key: str) -> Generator[list[Any]]:
        """Hold back the watch's events of a key during an own write; the caller appends the response to the list."""
        cache.expect(key)
        answer: list[Any] = []
        try:
            yield answer
        finally:
            self._tell(resource, cache.settle(key, answer[0] if answer else None))

    def _tell(self, resource: Resource, change: Change[Any] | None) -> None:
        if change is not None:
            self._caches.notify(resource, change)

    def _learn(self, resource: Resource, data: bytes) -> Observed:
        found = observe(resource, data)
        cache = self._caches.cache_of(resource)
        if cache is not None:
            cache.put(found)
        return found

    def _forget(self, step: Step) -> None:
        cache = self._caches.cache_of(step.resource)
        if cache is not None and step.observed is not None:
            cache.forget(step.key, step.observed.version)

    def _finish(self, child: Child, found: Observed) -> Work[None]:
        """Remember how a child is stored, and send the write that makes it usable."""
        wanted = fingerprint(child.object)
        if found.digest != wanted:
            self._stored_as[wanted] = found.digest
        if child.then is None:
            return
        for _ in range(ATTEMPTS):
            following = child.then(found)
            if following is None or (yield from self.direct(following)):
                return
            resource, metadata = child.object.resource, child.object.metadata
            found = self._learn(resource, (yield request.get(resource, metadata.namespace, metadata.name)))


def _live(data: bytes) -> Json:
    """Return an object as it is stored.

    Raises:
        msgspec.ValidationError: It has no uid or no resourceVersion.
    """
    _versioned.decode(data)
    return _json.decode(data)


def _amended(amendment: Amendment, data: bytes) -> KubernetesObject | Json:
    """Return an object that was read, in the form that its change takes."""
    seen = amendment.seen
    if amendment.is_read or isinstance(seen, Observed):
        return _live(data)
    return msgspec.json.decode(data, type=type(seen))


def _resource_version(found: KubernetesObject | Json) -> str:
    return found["metadata"]["resourceVersion"] if isinstance(found, dict) else found.metadata.resource_version


def first_failure(results: Iterable[object]) -> ApiError | None:
    """Return the first refusal or failure of the API server.

    Raises:
        TenantryError: The work itself found that something is wrong.
    """
    for result in results:
        if isinstance(result, TenantryError) and not isinstance(result, ApiError):
            raise result
    return next((result for result in results if isinstance(result, ApiError)), None)


def _at_version(patch: Mapping[str, Any], version: str) -> Json:
    """Return a patch that holds only at the resourceVersion that was read."""
    return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}

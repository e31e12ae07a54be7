"""Copy objects into other namespaces, as work that yields requests: whole, by POST and PUT. Pure.

A thousand copies of one object cost a thousand writes and one read:

    plan: 1,000 CopySteps ─► GET the source ─► copy_for(step) ─► POST or PUT each copy
                                └► SourceContents: kept for the next plans, for 30 seconds
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from tenantry.api.errors import Conflict, Invalid, NotFound
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.model import Resource, object_key
from tenantry.engine import request
from tenantry.engine.observed import Inheritable, Observed, observe
from tenantry.engine.plan import Blocked, CopyStep, StepAction
from tenantry.engine.request import ApiRequest, Together, Verb, Work
from tenantry.world import inheritance

if TYPE_CHECKING:
    from tenantry.engine.apply import Caches

REMEMBERED = 10_000
"""How many copies are remembered that the API server stores in another form than they were written."""

TRIES = 5
"""How often a copy is tried that other clients write, too, before the queue's back-off takes over."""

AT_ONCE = 64
"""How many copies are prepared at once: their bodies are in memory, each of up to a megabyte."""

KEPT_SECONDS = 30.0
"""How long the content of a source is kept. Secrets must not stay in memory."""

KEPT_BYTES = 16 * 1024 * 1024

_encoder = msgspec.json.Encoder()
_whole = msgspec.json.Decoder(dict[str, msgspec.Raw])
_json: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class _Marks(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


_marks = msgspec.json.Decoder(_Marks)


class CopyContent(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an object that its copies have.

    Args:
        version: The resourceVersion at which it was read.
        likeness: As in `Inheritable`.
        body: The JSON of a copy up to its metadata.
        closed: The same without subjects, for a RoleBinding.
        labels: The labels of a copy.
        annotations: The annotations of a copy.
        read_at: The time of the read, on the monotonic clock.
    """

    version: int
    likeness: bytes
    body: bytes
    closed: bytes
    labels: dict[str, str]
    annotations: dict[str, str]
    read_at: float

    def copy_for(self, step: CopyStep, live: Mapping[str, Any] | None = None) -> bytes:
        """Return the JSON of a copy.

        Args:
            step: The copy.
            live: The metadata of the object that it replaces, if its finalizers and owners must stay.
        """
        metadata: dict[str, Any] = {"name": step.name, "namespace": step.namespace}
        labels = {**self.labels, **step.labels}
        if labels:
            metadata["labels"] = labels
        if self.annotations:
            metadata["annotations"] = self.annotations
        if step.observed is not None:
            metadata["resourceVersion"] = str(step.observed.version)
        if live is not None:
            stays = ("resourceVersion", "finalizers", "ownerReferences")
            metadata |= {key: live[key] for key in stays if key in live}
        body = self.closed if step.is_closed else self.body
        # The body was encoded once for all copies; encoding a large Secret again for each would dominate the cost.
        return b'%b,"metadata":%b}' % (body, _encoder.encode(metadata))


def content_of(resource: Resource, data: bytes, now: float) -> CopyContent | None:
    """Return the content that copies of an object have; None if it can no longer be inherited."""
    seen = observe(resource, data)
    if not isinstance(seen, Inheritable):
        return None
    whole = _whole.decode(data)
    fields = inheritance.content(resource.full_name, whole)
    given = _marks.decode(whole["metadata"])
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    closed = b""
    if resource == RoleBinding.resource:
        closed = _encoder.encode({**head, **{key: fields[key] for key in fields if key != "subjects"}})[:-1]
    return CopyContent(
        version=seen.version,
        likeness=seen.likeness,
        body=_encoder.encode({**head, **fields})[:-1],
        closed=closed,
        labels=inheritance.carried(given.labels),
        annotations=inheritance.carried(given.annotations),
        read_at=now,
    )


class SourceContents:
    """The contents of sources that were read lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Resource, str], CopyContent] = OrderedDict()
        self._bytes = 0

    def get(self, resource: Resource, source: Inheritable, now: float) -> CopyContent | None:
        """Return a source's content as of its resourceVersion or later; None if it must be read."""
        found = self._known.get((resource, source.key))
        if found is None or found.version < source.version:
            return None
        return found if now - found.read_at < KEPT_SECONDS else None

    def keep(self, resource: Resource, key: str, content: CopyContent | None, now: float) -> None:
        """Take in what was read of a source, and drop contents that are too old or too many."""
        self._drop((resource, key))
        if content is not None:
            self._known[resource, key] = content
            self._bytes += len(content.body)
        while self._known:
            oldest = next(iter(self._known))
            if self._bytes <= KEPT_BYTES and now - self._known[oldest].read_at <= KEPT_SECONDS:
                break
            self._drop(oldest)

    def _drop(self, key: tuple[Resource, str]) -> None:
        old = self._known.pop(key, None)
        if old is not None:
            self._bytes -= len(old.body)


class Copier:
    """Copy objects within one cluster.

    Args:
        caches: They hear of every response.
        own: See `Applier.own`.
    """

    def __init__(self, caches: Caches, own: Callable[[ApiRequest], Work[Any]]) -> None:
        self._caches = caches
        self._own = own
        self._contents = SourceContents()
        # By copy: the likeness that it should have, and the one that it was stored with. A mutating webhook may add
        # to every object of a namespace; a copier that removed the addition would fight it forever.
        self._stored_as: OrderedDict[tuple[Resource, str], tuple[bytes, bytes]] = OrderedDict()

    def is_like(self, resource: Resource, found: Inheritable, wanted: bytes) -> bool:
        """Return whether an object is a copy of an object of this likeness."""
        return found.likeness == wanted or self._stored_as.get((resource, found.key)) == (wanted, found.likeness)

    def run(self, steps: Sequence[CopyStep]) -> Work[list[Any]]:
        """Carry out steps and return a result for each: None, what blocks it, or the error that ended it.

        A step that fails does not keep the others from being tried.
        """
        results: list[Any] = []
        for start in range(0, len(steps), AT_ONCE):
            some = steps[start : start + AT_ONCE]
            yield from self._read_shared(some)
            results += yield Together([self._carry(step) for step in some])
        return results

    def _read_shared(self, steps: Sequence[CopyStep]) -> Work[None]:
        """Read each source that several steps share once. A failure is left to the steps, which read it again."""
        sources = {(step.resource, step.source.key): step.source for step in steps if step.source is not None}
        uses = Counter((step.resource, step.source.key) for step in steps if step.source is not None)
        reads = [self._content(key[0], source) for key, source in sources.items() if uses[key] > 1]
        if reads:
            yield Together(reads)

    def _content(self, resource: Resource, source: Inheritable) -> Work[CopyContent | None]:
        """Return a source's content; None if the source is gone, or can no longer be inherited."""
        now = self._caches.monotonic()
        found = self._contents.get(resource, source, now)
        if found is not None:
            return found
        try:
            data = yield request.get(resource, source.namespace, source.name)
        except NotFound:
            return None
        found = content_of(resource, data, now)
        self._contents.keep(resource, source.key, found, now)
        return found

    def _carry(self, step: CopyStep) -> Work[Blocked | None]:
        """Carry out a step. If another client wrote meanwhile, decide again from what is there then.

        Raises:
            ApiError: The API server refuses or fails.
        """
        for attempt in range(1, TRIES + 1):
            try:
                yield from self._write(step)
            except NotFound:
                if step.action is StepAction.CREATE:
                    return None  # the namespace is gone: the watch reports it
            except Conflict:
                if attempt == TRIES:
                    raise
            else:
                return None
            again = step.again((yield from self._look(step)))
            if not isinstance(again, CopyStep):
                return again
            step = again
        return None

    def _write(self, step: CopyStep) -> Work[None]:
        found, source = step.observed, step.source
        if source is None:
            if found is not None:
                yield from self._delete(step.resource, found)
            return
        content = yield from self._content(step.resource, source)
        if content is None:
            return  # the source is gone, or no namespace inherits it now: the watch reports that
        if found is None:
            yield from self._put(step, Verb.CREATE, content, content.copy_for(step))
        else:
            yield from self._replace(step, found, content)

    def _replace(self, step: CopyStep, found: Observed, content: CopyContent) -> Work[None]:
        resource = step.resource
        live = None
        if resource.full_name not in inheritance.SEVEN:
            # Controllers may hold on to an object of this kind by a finalizer, which a PUT must not remove.
            data = yield request.get(resource, step.namespace, step.name)
            live = _json.decode(data)["metadata"]
        try:
            yield from self._put(step, Verb.REPLACE, content, content.copy_for(step, live))
        except Invalid:
            if resource.full_name not in inheritance.NEW_IF_IMMUTABLE:
                raise
            # The roleRef of a binding, and data of an immutable Secret or ConfigMap, never change.
            yield from self._delete(resource, found)
            body = content.copy_for(msgspec.structs.replace(step, observed=None))
            yield from self._put(step, Verb.CREATE, content, body)

    def _put(self, step: CopyStep, verb: Verb, content: CopyContent, body: bytes) -> Work[None]:
        resource = step.resource
        asked = ApiRequest(verb=verb, resource=resource, namespace=step.namespace, name=step.name, body=body)
        found: object = yield from self._own(asked)
        # A copy that is closed, or made once, never has the likeness of its source.
        is_kept = bool(step.labels) and not step.is_closed
        if is_kept and isinstance(found, Inheritable) and found.likeness != content.likeness:
            self._stored_as[resource, found.key] = (content.likeness, found.likeness)
            while len(self._stored_as) > REMEMBERED:
                self._stored_as.popitem(last=False)

    def _delete(self, resource: Resource, found: Observed) -> Work[None]:
        """Delete a copy, and not another object of its name; the cache forgets it before the watch reports it."""
        with suppress(NotFound):
            yield request.delete(resource, found.namespace, found.name, uid=found.uid)
        self._forget(resource, found.key, found.version)

    def _look(self, step: CopyStep) -> Work[Observed | None]:
        """Read the object that has a copy's name, and have the cache hear of it."""
        resource, key = step.resource, object_key(step.namespace, step.name)
        cache = self._caches.cache_of(resource)
        try:
            data = yield request.get(resource, step.namespace, step.name)
        except NotFound:
            known = cache.get(key) if cache is not None else None
            if known is not None:
                self._forget(resource, key, known.version)
            return None
        found = observe(resource, data)
        # The watch leaves out objects that cannot be inherited: in the cache, one would stay after it is deleted.
        if cache is not None and isinstance(found, Inheritable):
            change = cache.put(found)
            if change is not None:
                self._caches.notify(resource, change)
        return found

    def _forget(self, resource: Resource, key: str, version: int) -> None:
        cache = self._caches.cache_of(resource)
        if cache is not None:
            cache.forget(key, version)

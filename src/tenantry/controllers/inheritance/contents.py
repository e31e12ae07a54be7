"""The contents of sources, for as long as they are being written: read once for all children. Secrets do not stay."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from tenantry.api.kubernetes import RoleBinding
from tenantry.api.model import Json, Resource
from tenantry.controllers.inheritance.desired import ChildNamespace, CopyStep
from tenantry.engine.clock import Clock
from tenantry.engine.copies import Copier
from tenantry.engine.observed import Inheritable, observe
from tenantry.world import inheritance

KEPT_SECONDS = 30.0
KEPT_BYTES = 16 * 1024 * 1024

_encoder = msgspec.json.Encoder()
_whole = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Marks(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


_marks = msgspec.json.Decoder(_Marks)


class CopyContent(msgspec.Struct, frozen=True, kw_only=True):
    """What copies have of an object.

    Args:
        version: The resourceVersion that it was read at.
        likeness: As in `Inheritable`.
        body: The JSON of a copy up to its metadata.
        closed: The same without subjects, of a binding.
        labels: What is carried over.
        annotations: What is carried over.
        read_at: When, on the monotonic clock.
    """

    version: int
    likeness: bytes
    body: bytes
    closed: bytes
    labels: dict[str, str]
    annotations: dict[str, str]
    read_at: float

    def copy_for(self, child: ChildNamespace, step: CopyStep, live: Mapping[str, Any] | None = None) -> bytes:
        """Return the JSON of a copy in a child.

        Args:
            child: The child.
            step: Whether it is kept the same, and what it replaces.
            live: The metadata of what it replaces, where more than that is to stay.
        """
        metadata: Json = {"name": step.name, "namespace": child.name}
        labels = {**self.labels, **child.own_marks()} if step.is_kept else self.labels
        if labels:
            metadata["labels"] = labels
        if self.annotations:
            metadata["annotations"] = self.annotations
        if step.found is not None:
            metadata["resourceVersion"] = str(step.found.version)
        if live is not None:
            stays = ("resourceVersion", "finalizers", "ownerReferences")
            metadata |= {key: live[key] for key in stays if key in live}
        body = self.closed if step.is_closed else self.body
        return b'%b,"metadata":%b}' % (body, _encoder.encode(metadata))


class CopyContents:
    """What was read of sources lately.

    Args:
        copier: Reads them.
        clock: The time.
    """

    def __init__(self, copier: Copier, clock: Clock) -> None:
        self._copier = copier
        self._clock = clock
        self._known: OrderedDict[tuple[Resource, str], CopyContent] = OrderedDict()
        self._bytes = 0
        self._reading: WeakValueDictionary[tuple[Resource, str], asyncio.Lock] = WeakValueDictionary()

    async def get(self, resource: Resource, source: Inheritable) -> CopyContent | None:
        """Return a source's content as of its resourceVersion or later; None where it is gone."""
        key = (resource, source.key)
        found = self._fresh(key, source.version)
        if found is not None:
            return found
        lock = self._reading.get(key)
        if lock is None:
            lock = self._reading[key] = asyncio.Lock()
        async with lock:
            found = self._fresh(key, source.version)
            if found is not None:
                return found
            data = await self._copier.read(resource, source.namespace, source.name)
            if data is None:
                return None
            return self._keep(key, content_of(resource, data, self._clock.monotonic()))

    def _fresh(self, key: tuple[Resource, str], version: int) -> CopyContent | None:
        found = self._known.get(key)
        if found is None or found.version < version:
            return None
        return found if self._clock.monotonic() - found.read_at < KEPT_SECONDS else None

    def _keep(self, key: tuple[Resource, str], content: CopyContent | None) -> CopyContent | None:
        self._drop(key)
        if content is not None:
            self._known[key] = content
            self._bytes += len(content.body)
        end = self._clock.monotonic() - KEPT_SECONDS
        while self._known:
            oldest = next(iter(self._known))
            if self._bytes <= KEPT_BYTES and self._known[oldest].read_at >= end:
                break
            self._drop(oldest)
        return content

    def _drop(self, key: tuple[Resource, str]) -> None:
        old = self._known.pop(key, None)
        if old is not None:
            self._bytes -= len(old.body)


def content_of(resource: Resource, data: bytes, now: float) -> CopyContent | None:
    """Return what copies have of an object; None where it cannot be inherited any more."""
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

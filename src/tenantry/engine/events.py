"""Events: something happened to an object, and to what value. A repeat updates the first one's count.

Source: Kubernetes API reference, events.k8s.io/v1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from enum import StrEnum
from typing import ClassVar

import msgspec

from tenantry.api.errors import ApiError, NotFound
from tenantry.api.marks import MANAGER
from tenantry.api.model import KubernetesObject, Model, ObjectMeta, Resource, object_key
from tenantry.engine.clock import Clock, rfc3339_micro
from tenantry.engine.writer import Writer

REMEMBERED = 1000
"""Events whose repeats update the first one; a repeat of an older event is a new one."""

WAITING = 1000
"""Events that wait to be written. More are dropped: a reconcile must never wait for an event."""

log = logging.getLogger(__name__)


class EventKind(StrEnum):
    """Whether a person should look."""

    NORMAL = "Normal"
    WARNING = "Warning"


class ObjectReference(Model, frozen=True, kw_only=True):
    """What an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


class Event(KubernetesObject, frozen=True, kw_only=True):
    """An event of events.k8s.io."""

    resource: ClassVar[Resource] = Resource("events.k8s.io", "v1", "events", "Event")

    event_time: str
    type: EventKind
    reason: str
    action: str
    note: str
    regarding: ObjectReference
    reporting_controller: str
    reporting_instance: str


class NamedObject(msgspec.Struct, frozen=True):
    """What an event is about, if its kind has no model, or only its metadata is known."""

    resource: Resource
    metadata: ObjectMeta

    @property
    def key(self) -> str:
        """Return `namespace/name`, or the name of a cluster-scoped object."""
        return object_key(self.metadata.namespace, self.metadata.name)


class _Said(msgspec.Struct, frozen=True):
    about: KubernetesObject | NamedObject
    kind: EventKind
    reason: str
    note: str


class Recorder:
    """Takes events at once and writes them in the background; a full queue drops them, never the work.

    Args:
        writer: Sends them.
        clock: For their times and names.
        instance: Which replica speaks.
    """

    def __init__(self, writer: Writer, clock: Clock, instance: str) -> None:
        self._writer = writer
        self._clock = clock
        self._instance = instance
        self._queue: asyncio.Queue[_Said] = asyncio.Queue(WAITING)
        self._written: OrderedDict[tuple[str, str, str], tuple[str, str, int]] = OrderedDict()

    def say(self, about: KubernetesObject | NamedObject, kind: EventKind, reason: str, note: str) -> None:
        """Record that something happened to an object.

        Args:
            about: The object; a cluster-scoped one's events stand in the namespace `default`.
            kind: Normal or Warning.
            reason: A constant of `tenantry.api.reasons`.
            note: What happened, and to what value.
        """
        try:
            self._queue.put_nowait(_Said(about, kind, reason, note))
        except asyncio.QueueFull:
            log.warning("event dropped", extra={"reason": reason, "object": about.key})

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            said = await self._queue.get()
            try:
                await self._write(said)
            except ApiError as error:
                # An event is talk: losing one must not stop anything.
                log.warning("event not written", extra={"object": said.about.key, "error": str(error)})

    async def _write(self, said: _Said) -> None:
        identity = (said.about.metadata.uid, said.reason, said.note)
        now = rfc3339_micro(self._clock.now())
        known = self._written.get(identity)
        if known is not None:
            namespace, name, count = known
            series = {"series": {"count": count + 1, "lastObservedTime": now}}
            try:
                await self._writer.patch(Event.resource, namespace, name, series)
            except NotFound:
                del self._written[identity]  # events live for an hour: begin anew
            else:
                self._remember(identity, (namespace, name, count + 1))
                return
        event = self._event(said, now)
        await self._writer.create(event)
        self._remember(identity, (event.metadata.namespace, event.metadata.name, 1))

    def _remember(self, identity: tuple[str, str, str], value: tuple[str, str, int]) -> None:
        self._written[identity] = value
        self._written.move_to_end(identity)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

    def _event(self, said: _Said, now: str) -> Event:
        meta, resource = said.about.metadata, said.about.resource
        namespace = meta.namespace or "default"
        # client-go also names an event by its object and the time, so that names do not collide.
        suffix = f"{int(self._clock.now().timestamp() * 1e6):x}"
        return Event(
            metadata=ObjectMeta(name=f"{meta.name}.{suffix}", namespace=namespace),
            event_time=now,
            type=said.kind,
            reason=said.reason,
            action="Reconcile",
            # The API server rejects an event with a longer note.
            note=said.note[:1024],
            regarding=ObjectReference(
                api_version=resource.api_version,
                kind=resource.kind,
                name=meta.name,
                uid=meta.uid,
                namespace=meta.namespace,
            ),
            reporting_controller=f"tenantry.dev/{MANAGER}",
            reporting_instance=self._instance[:128],  # as much as the API takes
        )

"""Events of lower pods as they are cached, and as upper events: pure.

    lower  acme/web-5c1b….18a  Scheduled: "Successfully assigned acme/web-5c1b… to worker-7"
    upper  shop/web.93fe…      Scheduled: "Successfully assigned shop/web to node-1f2e…"

Source: Kubernetes, k8s.io/api/core/v1, Event.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256

import msgspec

from tenantry.api.model import Json, Resource, object_key
from tenantry.api.wording import visible
from tenantry.engine.clock import rfc3339
from tenantry.mirror.names import DIGITS

EVENTS = Resource("", "v1", "events", "Event")
OF_PODS = {"fieldSelector": "involvedObject.kind=Pod"}

_LOWER_NAME = re.compile(rf".*-[0-9a-f]{{{DIGITS}}}|[0-9a-f]{{{DIGITS}}}")
_MOST_TEXT = 1024
"""Characters of a message; the API server has the same limit for newer events."""

_MOST_NAME = 128
"""Characters of every other text: users with the right to write Events write anything into them."""

_LONGEST_NAME = 200
_MOST_COUNT = 2**31 - 1
_TYPES = ("Normal", "Warning")
_YEARS = range(1970, 9999)
"""No time zone leads out of what Python and the API server can write."""


class _Meta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class _Involved(msgspec.Struct, frozen=True, rename="camel", gc=False):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


class _Source(msgspec.Struct, frozen=True, gc=False):
    component: str = ""


class _Series(msgspec.Struct, frozen=True, rename="camel", gc=False):
    count: int = 0
    last_observed_time: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel", gc=False):
    metadata: _Meta
    involved_object: _Involved
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None
    source: _Source = _Source()
    reporting_component: str = ""


class PodEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a lower pod.

    Args:
        key: `namespace/name` of the event.
        uid: Its uid.
        version: Its resourceVersion.
        pod: `namespace/name` of the pod.
        pod_uid: The pod's uid.
        field_path: The part of the pod, as in "spec.containers{web}".
        reason: As in "BackOff".
        message: The text.
        type: Normal or Warning.
        count: How often.
        first: The first time, as RFC 3339.
        last: The last time, as RFC 3339.
        component: The program that has reported it.
    """

    key: str
    uid: str
    version: int
    pod: str
    pod_uid: str
    field_path: str
    reason: str
    message: str
    type: str
    count: int
    first: str
    last: str
    component: str


_decoder = msgspec.json.Decoder(_Event)


@cache
def decoder(*, computed: bool) -> Callable[[msgspec.Raw], PodEvent | None]:
    """Return the function that decodes an event of a lower pod; it returns None for any other event.

    The same function each time, as listeners of one kind must name it.

    Args:
        computed: Whether lower names are computed, so that others are none.
    """

    def decode(data: msgspec.Raw) -> PodEvent | None:
        found = _decoder.decode(data)
        about = found.involved_object
        is_one = about.kind == "Pod" and (not computed or _LOWER_NAME.fullmatch(about.name) is not None)
        return _event(found) if is_one else None

    return decode


def _event(found: _Event) -> PodEvent:
    about, meta = found.involved_object, found.metadata
    series = found.series or _Series()
    first = found.first_timestamp or found.event_time or ""
    return PodEvent(
        key=object_key(meta.namespace, meta.name),
        uid=meta.uid,
        version=int(meta.resource_version or 0),
        pod=object_key(about.namespace, about.name),
        pod_uid=about.uid,
        field_path=about.field_path[:_MOST_NAME],
        reason=visible(found.reason)[:_MOST_NAME],
        message=visible(found.message[:_MOST_TEXT])[:_MOST_TEXT],
        type=found.type if found.type in _TYPES else _TYPES[0],
        count=min(max(found.count, series.count, 1), _MOST_COUNT),
        first=first[:_MOST_NAME],
        last=(found.last_timestamp or series.last_observed_time or first)[:_MOST_NAME],
        component=visible(found.source.component or found.reporting_component)[:_MOST_NAME],
    )


def time_of(text: str) -> dt.datetime | None:
    """Return a time that an event names; None for what is none."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None and found.year in _YEARS else None


def up(event: PodEvent, upper: Json, words: list[tuple[str, str]], now: dt.datetime) -> Json:
    """Return the upper event; it has no time after now.

    Args:
        event: The lower one.
        upper: The metadata of the upper pod.
        words: Texts of the lower side, and what stands in their place in the message, in this order.
        now: The time.
    """
    first, last = (_shown(time_of(each), now) for each in (event.first, event.last))
    message = event.message
    for below, above in words:
        message = message.replace(below, above)
    namespace, name = upper["namespace"], upper["name"]
    digits = sha256(event.uid.encode()).hexdigest()[:DIGITS]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:_LONGEST_NAME].rstrip('-.')}.{digits}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "uid": upper["uid"],
            **({"fieldPath": event.field_path} if event.field_path else {}),
        },
        "reason": event.reason,
        "message": message,
        "type": event.type,
        "count": event.count,
        **({"firstTimestamp": first} if first else {}),
        **({"lastTimestamp": last} if last else {}),
        "source": {"component": event.component},
    }


def _shown(time: dt.datetime | None, now: dt.datetime) -> str:
    return rfc3339(min(time, now)) if time is not None else ""

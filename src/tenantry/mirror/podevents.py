"""Events of lower pods as they are cached, and as upper events: pure.

    lower  acme/web-5c1b….18a  Scheduled: "Successfully assigned acme/web-5c1b… to worker-7"
    upper  shop/web.93fe…      Scheduled: "Successfully assigned shop/web to node-1f2e…"

Source: Kubernetes, k8s.io/api/core/v1, Event.
"""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from tenantry.api.model import Json, Resource, object_key
from tenantry.mirror.names import DIGITS

EVENTS = Resource("", "v1", "events", "Event")
OF_PODS = {"fieldSelector": "involvedObject.kind=Pod"}

_LOWER_NAME = re.compile(rf".*-[0-9a-f]{{{DIGITS}}}|[0-9a-f]{{{DIGITS}}}")
_MOST_TEXT = 1024
"""Characters of a message; the API server has the same limit for newer events."""

_MOST_NAME = 128
"""Characters of every other text: users with the right to write Events write anything into them."""

_LONGEST_NAME = 200


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


def decode(data: msgspec.Raw) -> PodEvent | None:
    """Return an event of a pod whose name can be that of a lower pod; None for any other."""
    found = _decoder.decode(data)
    about, meta = found.involved_object, found.metadata
    if about.kind != "Pod" or not _LOWER_NAME.fullmatch(about.name):
        return None
    series = found.series or _Series()
    first = found.first_timestamp or found.event_time or ""
    return PodEvent(
        key=object_key(meta.namespace, meta.name),
        uid=meta.uid,
        version=int(meta.resource_version or 0),
        pod=object_key(about.namespace, about.name),
        pod_uid=about.uid,
        field_path=about.field_path[:_MOST_NAME],
        reason=found.reason[:_MOST_NAME],
        message=found.message[:_MOST_TEXT],
        type=found.type[:_MOST_NAME],
        count=max(found.count, series.count, 1),
        first=first[:_MOST_NAME],
        last=(found.last_timestamp or series.last_observed_time or first)[:_MOST_NAME],
        component=(found.source.component or found.reporting_component)[:_MOST_NAME],
    )


def up(event: PodEvent, upper: Json, words: list[tuple[str, str]]) -> Json:
    """Return the upper event.

    Args:
        event: The lower one.
        upper: The metadata of the upper pod.
        words: Texts of the lower side, and what stands in their place in the message, in this order.
    """
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
        "type": event.type or "Normal",
        "count": event.count,
        **({"firstTimestamp": event.first} if event.first else {}),
        **({"lastTimestamp": event.last} if event.last else {}),
        "source": {"component": event.component},
    }

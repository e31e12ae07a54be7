"""Events of lower pods: which are kept, and what becomes of them."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.mirror.podevents import PodEvent, decode, up

Json = dict[str, Any]


def event(pod: str, **more: object) -> msgspec.Raw:
    """Return an event of a pod as JSON."""
    about = {"kind": "Pod", "namespace": "acme", "name": pod, "uid": "u-lower"}
    meta = {"name": "e", "namespace": "acme", "uid": "u-event", "resourceVersion": "7"}
    return msgspec.Raw(msgspec.json.encode({"metadata": meta, "involvedObject": about, **more}))


def test_only_events_of_pods_that_can_be_mirrored_are_kept() -> None:
    """The host has many more, which would take memory."""
    assert decode(event("web-0123456789abcdef")) is not None
    assert decode(event("0123456789abcdef")) is not None
    assert decode(event("web-7d9f")) is None
    data = msgspec.json.decode(event("web-0123456789abcdef"))
    data["involvedObject"]["kind"] = "Node"
    assert decode(msgspec.Raw(msgspec.json.encode(data))) is None


def test_a_series_has_its_count_and_times() -> None:
    """The scheduler reports in the newer form: one event with a series."""
    series = {"count": 4, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}
    found = decode(
        event("web-0123456789abcdef", eventTime="2026-01-01T00:00:00.000000Z", series=series, message="m" * 5000)
    )
    assert isinstance(found, PodEvent)
    assert (found.count, found.first, found.last) == (4, "2026-01-01T00:00:00.000000Z", series["lastObservedTime"])
    assert len(found.message) == 1024


def test_words_of_the_lower_side_are_replaced() -> None:
    """In order: the longer text first, since it has the shorter one in it."""
    found = decode(event("web-0123456789abcdef", message="assigned acme/web-0123456789abcdef to worker-7", reason="S"))
    assert found is not None
    upper: Json = {"name": "web", "namespace": "shop", "uid": "u-upper"}
    words = [("acme/web-0123456789abcdef", "shop/web"), ("web-0123456789abcdef", "web"), ("worker-7", "node-1")]
    made = up(found, upper, words)
    assert made["message"] == "assigned shop/web to node-1"
    assert made["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", **upper}
    assert made["metadata"]["namespace"] == "shop"
    assert made["metadata"]["name"].startswith("web.")

"""Events of lower pods: which are kept, and what becomes of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from tenantry.mirror.podevents import PodEvent, decoder, up

Json = dict[str, Any]

decode = decoder(computed=True)
NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


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
    made = up(found, upper, words, NOW)
    assert made["message"] == "assigned shop/web to node-1"
    assert made["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", **upper}
    assert made["metadata"]["namespace"] == "shop"
    assert made["metadata"]["name"].startswith("web.")


def test_names_that_are_not_computed_are_kept() -> None:
    assert decoder(computed=False)(event("web-7d9f")) is not None


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [
        ("2026-01-01T13:00:00+02:00", "2026-01-01T11:30:00Z", ("2026-01-01T11:00:00Z", "2026-01-01T11:30:00Z")),
        ("2026-W01-4T11:00:00Z", "2027-01-01T00:00:00Z", ("2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z")),
        ("0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", (None, None)),
        ("yesterday", "2026-01-01T11:30:00", (None, None)),
    ],
)
def test_times_are_those_that_the_upper_api_server_reads(
    first: str, last: str, shown: tuple[str | None, str | None]
) -> None:
    """L06: another cluster reports any text."""
    found = decode(event("web-0123456789abcdef", firstTimestamp=first, lastTimestamp=last))
    assert found is not None
    made = up(found, {"name": "web", "namespace": "shop", "uid": "u"}, [], NOW)
    assert (made.get("firstTimestamp"), made.get("lastTimestamp")) == shown


def test_texts_of_another_cluster_are_bounded_and_move_no_cursor() -> None:
    found = decode(
        event(
            "web-0123456789abcdef",
            message="\x1b[2Jall is well\x9b" + "x" * 5000,
            reason="\u202e" * 200,
            source={"component": "\x07"},
            type="Bell\x07",
            count=2**40,
        )
    )
    assert found is not None
    assert found.message.startswith(r"\x1b[2Jall is well\x9b")
    assert (len(found.message), len(found.reason)) == (1024, 128)
    assert (found.component, found.type, found.count) == (r"\x07", "Normal", 2**31 - 1)

"""Metrics come up by an allow-list, whatever the lower side reports, and nodes show own pods only."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.mirror import metrics
from tenantry.world import quantity
from testkit.mirroring import upper_pod

Json = dict[str, Any]

TIME = "2026-11-24T10:00:00Z"
WEB: Json = upper_pod(containers=[{"name": "web"}], initContainers=[{"name": "side"}])
WEB["metadata"]["labels"] = {"app": "web"}

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["secret", "7m", "1Gi"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
amounts = st.sampled_from(["0", "7m", "123456n", "1.5", "64Mi", "-1", "much", "9Ei", "1e3"]) | junk
boxes = st.fixed_dictionaries(
    {"name": st.sampled_from(["web", "side", "other"]) | junk},
    optional={"usage": st.dictionaries(st.sampled_from(["cpu", "memory", "secret"]), amounts) | junk, "secret": junk},
)
measured = st.fixed_dictionaries(
    {},
    optional={
        "metadata": junk,
        "timestamp": st.sampled_from([TIME, "2026-11-24T09:00:00.5Z", "now"]) | junk,
        "window": st.sampled_from(["15s", "1m0.5s", "secret"]) | junk,
        "containers": st.lists(boxes, max_size=4) | junk,
        "secret": junk,
    },
)


@given(measured)
def test_only_listed_fields_with_checked_values_come_up(lower: Json) -> None:
    found = metrics.pod_metrics(WEB, lower)
    if found is None:
        return
    assert set(found) == {"kind", "apiVersion", "metadata", "timestamp", "window", "containers"}
    meta = {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}, "creationTimestamp": found["timestamp"]}
    assert found["metadata"] == meta
    assert b"secret" not in msgspec.json.encode(found)
    for box in found["containers"]:
        assert set(box) == {"name", "usage"}
        assert box["name"] in {"web", "side"}
        assert set(box["usage"]) <= {"cpu", "memory"}
        assert all(quantity.parse(value) >= 0 for value in box["usage"].values())


@given(st.lists(measured, max_size=4))
def test_a_node_shows_the_sum_of_own_pods(lower: list[Json]) -> None:
    pods = [found for each in lower if (found := metrics.pod_metrics(WEB, each)) is not None]
    found = metrics.node_metrics("node-1", pods, "2026-11-24T11:00:00Z")
    assert set(found) == {"kind", "apiVersion", "metadata", "timestamp", "window", "usage"}
    for resource in ("cpu", "memory"):
        total = sum(quantity.parse(box["usage"].get(resource, "0")) for each in pods for box in each["containers"])
        assert quantity.parse(found["usage"][resource]) == total
    assert found["timestamp"] == min([each["timestamp"] for each in pods], default="2026-11-24T11:00:00Z")


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"cpu": "7m", "memory": "64Mi"}, {"cpu": "7000000n", "memory": "65536Ki"}),
        ({"cpu": "1", "memory": "1025"}, {"cpu": "1000000000n", "memory": "2Ki"}),
        ({"cpu": 1, "memory": "-1"}, None),
    ],
)
def test_values_are_written_as_metrics_server_writes_them(usage: Json, wanted: Json | None) -> None:
    lower = {"timestamp": TIME, "window": "15s", "containers": [{"name": "web", "usage": usage}]}
    found = metrics.pod_metrics(WEB, lower)
    assert found is not None
    assert found["window"] == "15s"
    assert [each["usage"] for each in found["containers"]] == ([wanted] if wanted else [])

"""How many pods run on the nodes inside, for a pool that shrinks (H04)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import cast

import msgspec
import pytest

from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.controllers.joining import podcounts
from tenantry.controllers.joining.podcounts import MOST_COUNTED, PodCounts
from tenantry.engine.reader import Reader


class Inside:
    """The API server of a control plane.

    Args:
        pods: How many pods each node has, besides one of a DaemonSet.
        fault: What it answers instead; None for the pods.
    """

    def __init__(self, pods: Mapping[str, int], fault: Exception | None = None) -> None:
        self._pods = pods
        self._fault = fault
        self.listed = 0

    async def raw(self, resource: Resource, *, selectors: Mapping[str, str]) -> AsyncIterator[msgspec.Raw]:
        """See `Reader.raw`."""
        assert resource.plural == "pods"
        if self._fault is not None:
            raise self._fault
        node = selectors["fieldSelector"].removeprefix("spec.nodeName=")
        yield _pod("agent", "DaemonSet")
        for number in range(self._pods[node]):
            self.listed += 1
            yield _pod(f"web-{number}", "ReplicaSet")


def _pod(name: str, controller: str) -> msgspec.Raw:
    owner = {"kind": controller, "controller": True}
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "ownerReferences": [owner]}
    return msgspec.Raw(msgspec.json.encode({"metadata": meta, "spec": {"nodeName": "a"}}))


def _counts(inside: Inside | None) -> PodCounts:
    counts = PodCounts()
    counts.put("p", lambda: cast("Reader | None", inside))
    return counts


async def test_pods_that_would_have_to_leave_are_counted() -> None:
    """H04: not those of DaemonSets, and not without end: users inside create as many as they like."""
    inside = Inside({"a": 2, "b": 0, "c": 10 * MOST_COUNTED})
    found = await _counts(inside).count("p", ["a", "b", "c"])
    assert found == {"a": 2, "b": 0, "c": MOST_COUNTED}
    assert inside.listed <= MOST_COUNTED + 3


async def test_what_cannot_be_known_is_left_to_the_other_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """H04: a cluster that is asleep, does not answer, or is slow still shrinks."""
    assert await PodCounts().count("p", ["a"]) == {}
    assert await _counts(None).count("p", ["a"]) == {}
    assert await _counts(Inside({}, ApiError("no", status=500))).count("p", ["a"]) == {}
    counts = _counts(Inside({"a": 1}))
    counts.forget("p")
    assert await counts.count("p", ["a"]) == {}

    class Slow(Inside):
        async def raw(self, resource: Resource, *, selectors: Mapping[str, str]) -> AsyncIterator[msgspec.Raw]:
            await asyncio.get_running_loop().create_future()
            async for each in super().raw(resource, selectors=selectors):
                yield each

    monkeypatch.setattr(podcounts, "COUNT_SECONDS", 0.01)
    assert await _counts(Slow({"a": 1})).count("p", ["a"]) == {}

"""Pods as a mirror caches them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.mirror import cachedpods
from tenantry.mirror.cachedpods import MOST_BYTES, CachedPod, Kept
from testkit.mirroring import FULL, PROFILE, cached, changed, copied, lower_pod, status_up

Json = dict[str, Any]


def test_a_cached_pod_is_translated_as_the_pod_itself() -> None:
    pod = cached(FULL)
    assert (pod.key, pod.uid, pod.kept) == ("shop/web-0", "u-web", Kept.WHOLE)
    assert "managedFields" not in pod.meta
    assert (pod.spec, pod.status) == (FULL["spec"], FULL["status"])
    lower = lower_pod(FULL, phase="Running", observedGeneration=1)
    assert changed(pod.object, lower) == changed(FULL, lower)
    assert status_up(pod.object, cached(lower).object) == status_up(FULL, lower)


def test_a_pod_without_a_status_or_spec_has_empty_ones() -> None:
    pod = cached({"metadata": {"name": "a"}})
    assert (pod.key, pod.spec, pod.status, pod.is_deleting) == ("a", {}, {}, False)
    assert cached({"metadata": {"name": "a"}, "spec": None, "status": [1]}).spec == {}


LARGE = "x" * (MOST_BYTES + 1)


@pytest.mark.parametrize("field", ["metadata.labels", "metadata.annotations", "spec", "status"])
def test_the_head_of_a_large_pod_decides_about_its_end(field: str) -> None:
    pod = copied(FULL)
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7}
    pod["metadata"]["annotations"] |= {"example.dev/uid": "u", "example.dev/given-labels": LARGE}
    pod["metadata"]["labels"] |= {"example.dev/owner": "o"}
    pod["status"] |= {"conditions": [{"type": "PodScheduled", "status": "False", "message": "m"}, {"type": LARGE}]}
    holder: Json = pod
    for part in field.split("."):
        holder = holder[part]
    holder["large"] = LARGE
    found = cached(pod)
    assert found.kept is Kept.TOO_LARGE
    assert found.size > MOST_BYTES
    assert len(found.metadata) + len(found.specification) + len(found.state) < 1024
    assert (found.is_deleting, found.meta["deletionGracePeriodSeconds"], found.meta["generation"]) == (True, 7, 2)
    assert (found.mark(PROFILE, "uid"), found.meta["labels"]) == ("u", {"example.dev/owner": "o"})
    assert found.spec == {"nodeName": "n-1"}
    assert found.status == {"phase": "Pending", "conditions": pod["status"]["conditions"][:1]}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
def test_any_content_has_a_head(labels: object, deletion: object, spec: object, status: object) -> None:
    meta = {"name": "a", "resourceVersion": "1", "labels": labels, "annotations": labels, "deletionTimestamp": deletion}
    pod = cached({"metadata": meta, "spec": {"nodeName": spec}, "status": {"phase": status, "conditions": status}})
    head = pod.head(PROFILE.prefix, Kept.TOO_MANY)
    assert (head.key, head.version, head.kept) == (pod.key, pod.version, Kept.TOO_MANY)
    assert isinstance(head.object, dict)


def test_what_is_no_pod_is_not_cached() -> None:
    with pytest.raises(msgspec.MsgspecError):
        cachedpods.decode(msgspec.Raw(b'{"metadata": {"name": 3}}'), PROFILE.prefix)
    assert cachedpods.decoder("a.example") is cachedpods.decoder("a.example")
    assert isinstance(cachedpods.decoder("a.example")(msgspec.Raw(b'{"metadata": {"name": "a"}}')), CachedPod)

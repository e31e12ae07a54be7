"""What is cached of the volumes that an upper side shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.mirror import volumes
from tenantry.mirror.volumes import ShownVolume

Json = dict[str, Any]
CLAIM = {"namespace": "shop", "name": "data"}
SHOWN = ShownVolume(
    key="pvc-1", version=7, uid="u", claim="shop/data", capacity={"storage": "1Gi"}, is_bound=True, is_deleting=False
)


def seen(*, phase: str = "Bound", **spec: object) -> ShownVolume:
    """Return a volume as it is cached."""
    value: Json = {
        "metadata": {"name": "pvc-1", "uid": "u", "resourceVersion": "7", "annotations": {"a": "x" * 200_000}},
        "spec": {"capacity": {"storage": "1Gi"}, "claimRef": CLAIM, **spec},
        "status": {"phase": phase},
    }
    return volumes.seen(msgspec.Raw(msgspec.json.encode(value)))


def test_a_volume_is_cached_with_what_is_read_of_it() -> None:
    found = seen(csi={"driver": "d", "volumeAttributes": {"a": "x" * 1_000_000}})
    assert found == SHOWN
    assert list(volumes.claim_of(found)) == ["shop/data"]
    assert volumes.difference(found, {"capacity": {"storage": "1Gi"}}) == {}
    assert volumes.difference(found, {"capacity": {"storage": "2Gi"}}) == {"capacity": {"storage": "2Gi"}}


@pytest.mark.parametrize(
    "change",
    [
        {"claimRef": {"namespace": "shop", "name": "x" * 1_000_000}},
        {"claimRef": {"namespace": "x" * 1_000_000, "name": "data"}},
        {"capacity": {"x" * 1_000_000: "1Gi"}},
        {"phase": "x" * 1_000_000},
    ],
)
def test_no_field_of_a_volume_makes_what_is_cached_large(change: Json) -> None:
    """The API server accepts any text in a reference to a claim: a thousand such volumes would take a gigabyte."""
    assert len(msgspec.json.encode(seen(**change))) < 1_000


@pytest.mark.parametrize("claim", [None, {}, {"name": "data"}, {"namespace": "shop"}])
def test_a_volume_without_a_claim_has_no_key(claim: Json | None) -> None:
    assert list(volumes.claim_of(seen(claimRef=claim))) == []

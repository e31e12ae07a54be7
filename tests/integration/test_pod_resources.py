"""Resources of a whole pod beside the defaults that a LimitRange gives to its containers, on a real API server."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tenantry.api.errors import ApiError
from tenantry.world.quantity import parse
from testkit import versions
from testkit.api import PODS, Api
from testkit.operators import Operator

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
DEFAULTS: Json = {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}}
QUOTA: Json = {"hard": {"requests.cpu": "10", "requests.memory": "10Gi", "pods": "20"}}


def _pod(name: str, whole: Json, *containers: Json, init: tuple[Json, ...] = ()) -> Json:
    named = [{"name": f"c{number}", "image": "busybox", **each} for number, each in enumerate(containers)]
    first = [{"name": f"i{number}", "image": "busybox", **each} for number, each in enumerate(init)]
    more = {"initContainers": first} if init else {}
    return {"metadata": {"name": name}, "spec": {"resources": whole, "containers": named, **more}}


def _of(pod: Json, among: str = "containers") -> list[list[Fraction]]:
    """Return the request and limit of cpu, then of memory, of each container."""
    found = [each["resources"] for each in pod["spec"][among]]
    return [[parse(each[side][key]) for key in ("cpu", "memory") for side in ("requests", "limits")] for each in found]


def _as(*values: str) -> list[Fraction]:
    return [parse(each) for each in values]


@versions.changes_without_the_operator
async def test_defaults_of_containers_fit_into_the_pod(api: Api, operator: Operator, name: str) -> None:
    """B03: what the author wrote stays; what the LimitRange added is lowered, whether the operator runs or not."""
    await api.make_tenant(name, quota=QUOTA, containerDefaults=DEFAULTS)
    await api.create(PODS, _pod("first", {}, {}), name)
    await operator.stop()
    both = {"limits": {"cpu": "100m", "memory": "64Mi"}, "requests": {"cpu": "50m", "memory": "32Mi"}}
    two = await api.create(PODS, _pod("two", both, {}, {}), name)
    assert _of(two) == [_as("25m", "100m", "16Mi", "64Mi")] * 2
    only = await api.create(PODS, _pod("limits", {"limits": both["limits"]}, {}, {}, init=({},)), name)
    assert _of(only) == [_as("50m", "100m", "32Mi", "64Mi")] * 2
    own = {"resources": {"requests": {"cpu": "40m", "memory": "24Mi"}, "limits": {"cpu": "50m", "memory": "30Mi"}}}
    mixed = await api.create(PODS, _pod("mixed", both, own, {}), name)
    assert _of(mixed) == [_as("40m", "50m", "24Mi", "30Mi"), _as("10m", "100m", "8Mi", "64Mi")]
    sidecar = await api.create(PODS, _pod("sidecar", both, {}, init=({"restartPolicy": "Always"}, {})), name)
    assert _of(sidecar)[0][0] == _of(sidecar, "initContainers")[0][0] == parse("25m")


async def test_what_the_author_wrote_is_not_changed(api: Api, name: str) -> None:
    """B03: Kubernetes refuses it with its own words, and a pod with enough keeps its defaults."""
    await api.make_tenant(name, quota=QUOTA, containerDefaults=DEFAULTS)
    wrong = {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    little = {"limits": {"cpu": "100m", "memory": "64Mi"}}
    roomy = await api.create(PODS, _pod("roomy", {"limits": {"cpu": "4", "memory": "4Gi"}}, {}), name)
    plain = await api.create(PODS, _pod("plain", {}, {}), name)
    assert _of(roomy) == _of(plain)
    with pytest.raises(ApiError, match="must be less than or equal to pod limits"):
        await api.create(PODS, _pod("wrong", little, wrong), name)

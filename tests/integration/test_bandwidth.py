"""Bandwidth as a resource on a real API server: counted by native quotas, given out by the scheduler."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.node import Node
from testkit.api import PODS, Api, until
from testkit.operators import Operator

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
QUOTA: Json = {"hard": {"requests.tenantry.dev/ingress-mbps": "100", "pods": "10"}}


def _pod(name: str, **annotations: str) -> Json:
    marks = {f"kubernetes.io/{key}-bandwidth": value for key, value in annotations.items()}
    container = {"name": "main", "image": "example.com/app:1"}
    return {"metadata": {"name": name, "annotations": marks}, "spec": {"containers": [container]}}


async def test_what_a_pod_asks_for_is_counted_and_more_than_the_quota_is_refused(api: Api, name: str) -> None:
    """E09: annotations become extended resources, parts of a megabit rounded up; the tenant's quota is native."""
    await api.make_tenant(name, quota=QUOTA)

    async def in_force() -> bool:
        return bool((await api.get(ResourceQuota.resource, "tenantry-quota", name)).get("status", {}).get("hard"))

    await until(in_force, "the quota is in force")
    made = await api.create(PODS, _pod("one", ingress="59500k", egress="5M"), name)
    resources = made["spec"]["containers"][0]["resources"]
    for side in ("requests", "limits"):
        assert resources[side]["tenantry.dev/ingress-mbps"] == "60"
        assert resources[side]["tenantry.dev/egress-mbps"] == "5"
    with pytest.raises(Forbidden, match=r"exceeded quota: tenantry-quota.*ingress-mbps"):
        await api.create(PODS, _pod("two", ingress="41M"), name)
    await api.create(PODS, _pod("three", ingress="40M"), name)


async def test_a_pod_that_asks_for_nothing_gets_nothing(api: Api, name: str) -> None:
    """E09: only the annotations ask."""
    await api.make_tenant(name)
    assert "tenantry.dev" not in str((await api.create(PODS, _pod("none"), name))["spec"])


async def test_a_value_that_no_runtime_accepts_is_refused_at_once(api: Api, operator: Operator, name: str) -> None:
    """E09: with the annotation, the value and what would pass, instead of an error of CEL."""
    await api.make_tenant(name)
    await operator.stop()
    for value in ("fast", "", "1.5", "999", "0", "-5M", "1.1P", "10E", "1e30"):
        told = re.escape(
            "metadata.annotations 'kubernetes.io/egress-bandwidth' must be a quantity of bits per second from 1k to 1P,"
            f" as in 10M: it is '{value}'"
        )
        with pytest.raises(Forbidden, match=told):
            await api.create(PODS, _pod("odd", egress=value), name)


async def test_a_fraction_is_counted(api: Api, name: str) -> None:
    """E09: a quantity need not be an integer."""
    await api.make_tenant(name)
    for pod, (value, megabits) in enumerate((("1500.5", "1"), ("1.5M", "2"), ("1P", "1G"))):
        made = await api.create(PODS, _pod(f"p{pod}", egress=value), name)
        assert made["spec"]["containers"][0]["resources"]["limits"]["tenantry.dev/egress-mbps"] == megabits


async def test_nodes_advertise_what_they_have(api: Api, name: str) -> None:
    """E09: from a label, else a default; for the scheduler."""
    labels = {"tenantry.dev/ingress-mbps": "2500"}
    await api.create(Node.resource, {"metadata": {"name": name, "labels": labels}})

    async def advertised(mbps: str) -> bool:
        status = (await api.get(Node.resource, name)).get("status", {})
        both = [status.get(part, {}) for part in ("capacity", "allocatable")]
        told = [(each.get("tenantry.dev/ingress-mbps"), each.get("tenantry.dev/egress-mbps")) for each in both]
        return told == [(mbps, "10k"), (mbps, "10k")]

    await until(lambda: advertised("2500"), "the label and the default are advertised")
    await api.patch(Node.resource, name, {"metadata": {"labels": {"tenantry.dev/ingress-mbps": "800"}}})
    await until(lambda: advertised("800"), "the new label is advertised")
    await api.delete(Node.resource, name)

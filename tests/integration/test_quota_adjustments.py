"""Adjustments of quotas that have ended leave the spec."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH
from testkit.api import Api, until
from testkit.clock import in_seconds
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]


async def test_ended_adjustments_of_the_command_leave_the_spec(api: Api, trees: Trees, name: str) -> None:
    """E10: what another client sets too stays, because a GitOps controller would add it again, forever."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10, "pods": 50}})
    await trees.make(name, "lab")
    await until(lambda: api.find(TenantResourceQuota.resource, name), "there is something to adjust")
    kept = _adjustment("kept", seconds_ago=7200)
    await _adjust(api, name, [kept], manager="argocd-controller")
    others = [_adjustment("late", seconds_ago=60), _adjustment("gone", seconds_ago=4000)]
    await _adjust(api, name, [kept, *others], manager="tenantry")

    async def left() -> bool:
        found = await api.client.get(TenantResourceQuota, name)
        return [each.name for each in found.spec.adjustments] == ["kept", "late"]

    await until(left, "the adjustment of the command that ended an hour ago is removed")


def _adjustment(name: str, *, seconds_ago: int) -> Json:
    return {"name": name, "resources": {"cpu": "1"}, "expiresAt": in_seconds(-seconds_ago)}


async def _adjust(api: Api, tenant: str, adjustments: list[Json], *, manager: str) -> None:
    await api.client.request(
        "PATCH",
        wire.path(TenantResourceQuota.resource, "", tenant),
        query={"fieldManager": manager},
        body=msgspec.json.encode({"spec": {"adjustments": adjustments}}),
        content_type=MERGE_PATCH,
    )

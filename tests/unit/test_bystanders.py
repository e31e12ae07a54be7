"""Controllers of control planes wake others: in a shard, something has to stand for each of those (H02)."""

from __future__ import annotations

import ast
from pathlib import Path

import tenantry.controllers.virtualcontrolplane as package
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers.sharding import bystanders


def test_each_kind_that_a_control_plane_wakes_has_a_bystander() -> None:
    assert {each.kind for each in bystanders()} == {Tenant, Subnamespace, DedicatedCluster}
    woken = {
        node.args[0].id
        for file in Path(package.__path__[0]).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "wake"
        for first in node.args[:1]
        if isinstance(first, ast.Name)
    }
    # Controllers of the control plane itself, and this one, are there in each shard.
    own = {"VirtualControlPlane", "InsideController", "MetricsService", "NodeSizes"}
    assert woken - own <= {each.kind.__name__ for each in bystanders()}

"""Controllers of control planes wake others: in a shard, something has to stand for each of those (H02)."""

from __future__ import annotations

import re
from pathlib import Path

import tenantry.controllers.virtualcontrolplane as package
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers.dedicatedcluster import wakes
from tenantry.controllers.sharding import bystanders

WAKES = re.compile(r"[.]wake\((\w+), ")
OWN = {"VirtualControlPlane", "InsideController", "ContentController", "MetricsService", "NodeSizes"}
"""Controllers of control planes themselves, which are there in each shard."""


def test_each_kind_that_a_control_plane_wakes_has_a_bystander() -> None:
    assert {each.kind for each in bystanders()} == {Tenant, Subnamespace, *wakes.OWNERS.values()}
    files = [*Path(package.__path__[0]).glob("*.py"), Path(wakes.__file__)]
    woken = {kind for file in files for kind in WAKES.findall(file.read_text())}
    assert "kind" in woken  # of `wakes.OWNERS`
    assert woken - OWN - {"kind"} <= {each.kind.__name__ for each in bystanders()}

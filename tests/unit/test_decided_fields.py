"""H04: what a DedicatedCluster decides in its VirtualControlPlane, as the policy has it and as owners read it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tenantry.api.virtualcontrolplane import VirtualControlPlaneSpec
from tenantry.install.dedicatedclusters import DECIDED

_GUIDE = Path(__file__).parents[2] / "docs" / "clusters.md"


def test_the_documentation_lists_what_the_policy_keeps() -> None:
    (listed,) = re.findall(r"a policy refuses changes to (.*?) there\.", _GUIDE.read_text(), re.DOTALL)
    assert tuple(re.findall(r"`(\w+)`", listed)) == DECIDED


def test_the_policy_keeps_fields_that_there_are() -> None:
    known = {each.encode_name for each in msgspec.structs.fields(VirtualControlPlaneSpec)}
    assert set(DECIDED) <= known

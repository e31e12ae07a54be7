"""The marks are the same wherever they are written down."""

from __future__ import annotations

import re
from pathlib import Path

from tenantry.api import marks
from tenantry.api.virtualcontrolplane import PREFIX

PLUGIN = Path(__file__).parents[2] / "go" / "coredns" / "tenantry" / "watch.go"


def test_the_dns_plugin_goes_by_the_labels_of_the_operator() -> None:
    """H06: whose a namespace is, it knows by them alone."""
    declared = r'^\t(?:label|annotation)(\w+)\s*= "(\S+)"$'
    found = dict(re.findall(declared, PLUGIN.read_text(encoding="utf-8"), re.MULTILINE))
    assert found == {
        "Tenant": marks.TENANT,
        "TenantUID": marks.TENANT_UID,
        "Zone": marks.ZONE,
        "Shared": marks.SHARED,
        "Owner": f"{PREFIX}/owner",
        "Namespace": f"{PREFIX}/namespace",
        "Name": f"{PREFIX}/name",
    }

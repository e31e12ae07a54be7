"""What policies have as parameters."""

from __future__ import annotations

from tenantry.api.marks import GROUP
from tenantry.install import manifests


def test_no_policy_waits_for_a_custom_kind() -> None:
    """E15, H06: an API server knows kinds of ours as parameters only half a minute after its start, its own at once."""
    policies = [each for each in manifests.everything() if str(each["kind"]).endswith("AdmissionPolicy")]
    given = {
        each["metadata"]["name"]: each["spec"]["paramKind"]["apiVersion"]
        for each in policies
        if "paramKind" in each["spec"]
    }
    assert given["tenantry-hosts"] == "v1"
    assert not [name for name, version in given.items() if version.startswith(f"{GROUP}/")]

"""Checks of the audit whose protection is not removed on a real API server, and the unit tests that remove it."""

from __future__ import annotations

from tenantry.audit.catalog import CHECKS

_PROBES = "test_audit_findings.py::test_each_probe_fails_without_its_protection"

ELSEWHERE = {
    # The feature gate of the API server would have to be on.
    "TNT-STO-007": "test_audit_catalog.py::test_a_claim_with_data_of_another_namespace_fails_its_check",
    # They need nodes that run containers.
    **{check.id: _PROBES for check in CHECKS if check.probe is not None},
}
"""Id to test, in tests/unit."""

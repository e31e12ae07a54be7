"""Checks of the audit whose protection is not removed on a real API server, and the unit tests that remove it."""

from __future__ import annotations

from tenantry.audit.catalog import CHECKS

_PROBES = "test_audit_findings.py::test_each_probe_fails_without_its_protection"

ELSEWHERE = {
    # The feature gate of the API server would have to be on.
    "TNT-STO-007": "test_audit_catalog.py::test_a_claim_with_data_of_another_namespace_fails_its_check",
    # A control plane would have to run a version of Kubernetes without such policies.
    "TNT-OWN-012": "test_cluster_guards.py::test_the_audit_reports_guards_that_are_not_in_force",
    # They need nodes that run containers.
    **{check.id: _PROBES for check in CHECKS if check.probe is not None},
}
"""Id to test, in tests/unit."""

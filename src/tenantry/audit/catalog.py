"""All checks, in the order of the report. Pure."""

from __future__ import annotations

from tenantry.audit.check import AuditCheck
from tenantry.audit.checks import api, network, nodes, own, pods, probes, quota, storage

CHECKS: tuple[AuditCheck, ...] = (
    *api.CHECKS,
    *pods.CHECKS,
    *probes.PODS,
    *nodes.CHECKS,
    *network.CHECKS,
    *probes.NETWORK,
    *storage.CHECKS,
    *probes.STORAGE,
    *quota.CHECKS,
    *probes.QUOTA,
    *own.CHECKS,
)

"""All checks, in the order in which they are told. Pure."""

from __future__ import annotations

from tenantry.audit.check import Check
from tenantry.audit.checks import api, network, nodes, own, pods, quota, storage

CHECKS: tuple[Check, ...] = (
    *api.CHECKS,
    *pods.CHECKS,
    *nodes.CHECKS,
    *network.CHECKS,
    *storage.CHECKS,
    *quota.CHECKS,
    *own.CHECKS,
)

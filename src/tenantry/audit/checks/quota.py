"""Checks of quotas: a tenant has a share, and cannot increase it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.kubernetes import LimitRange, ResourceQuota
from tenantry.api.model import Json
from tenantry.api.peercluster import MOST_CONTAINERS
from tenantry.audit import kinds
from tenantry.audit.attempts import create, delete, get, may, patch, pod
from tenantry.audit.check import Attempt, AttemptResponse, AuditCheck, Severity, WithoutTenantry
from tenantry.audit.checks.pods import both, honest, tried
from tenantry.audit.checks.table import check
from tenantry.audit.context import AuditContext
from tenantry.policy.request import part, parts

COUNTED = ("pods", "services", "secrets", "configmaps", "persistentvolumeclaims")
"""The kinds that kubectl-mtb wants to be limited in number and that fill the API server's storage."""

CONTAINERS = 60
"""How many containers together exceed any quota of compute; with many more, `objects.maxSizes` refuses the pod."""

FIX = "Give the Tenant a quota of {}, as in `tenantry tenant create --quota`, or change spec.quota.hard."


def _uncounted(answer: AttemptResponse) -> str:
    keys = {key for quota in parts(answer.body, "items") for key in part(quota, "spec", "hard")}
    missing = [kind for kind in COUNTED if kind not in keys and f"count/{kind}" not in keys]
    return f"no ResourceQuota limits the number of {', '.join(missing)}" if missing else ""


def _counts(context: AuditContext) -> list[Attempt]:
    path = f"/api/v1/namespaces/{context.namespace}/resourcequotas"
    return [get(path, "read its own ResourceQuotas", judge=_uncounted)]


def _managed(context: AuditContext, plural: str) -> str:
    """Return the name of the first object of a kind that Tenantry created in the namespace."""
    found = [each.path.rpartition("/")[2] for each in context.made or () if f"/{plural}/" in each.path]
    return found[0] if found else context.name


def _quota_writes(context: AuditContext) -> list[Attempt]:
    name = _managed(context, "resourcequotas")
    return [
        patch(ResourceQuota.resource, name, {"spec": {"hard": {"pods": "1000000"}}}, context.namespace),
        patch(ResourceQuota.resource, name, {"status": {"hard": {}}}, context.namespace, subresource="status"),
        delete(ResourceQuota.resource, name, context.namespace),
        may("deletecollection", "resourcequotas", namespace=context.namespace),
    ]


def _limit_writes(context: AuditContext) -> list[Attempt]:
    name = _managed(context, "limitranges")
    return [
        patch(LimitRange.resource, name, {"spec": {"limits": []}}, context.namespace),
        delete(LimitRange.resource, name, context.namespace),
    ]


def _unlimited(answer: AttemptResponse) -> str:
    (container, *_) = parts(answer.body, "spec", "containers")
    limits = part(container, "resources", "limits")
    missing = [resource for resource in ("cpu", "memory") if resource not in limits]
    return f"a container without limits gets no limit of {', '.join(missing)}" if missing else ""


def _without_limits(context: AuditContext) -> list[Attempt]:
    bare = pod(context, container={"resources": None})
    return [create(kinds.PODS, bare, context.namespace, what="without limits", judge=_unlimited)]


def _compute(id_: str, title: str, resource: str, amount: str, severity: Severity) -> AuditCheck:
    amounts = {resource: amount}

    def attempts(context: AuditContext) -> list[Attempt]:
        # Rules bound what one container has; many of them reach the quota.
        one = part(pod(context, container={"resources": {"requests": amounts, "limits": amounts}}), "spec")[
            "containers"
        ][0]
        # Another cluster may have fewer in a pod, which is refused before a quota is checked.
        most = min(CONTAINERS, MOST_CONTAINERS) if context.is_guest else CONTAINERS
        many = {"containers": [{**one, "name": f"audit-{number}"} for number in range(most)]}
        what = f"of {most} containers with {amount} {resource} each"
        return [create(kinds.PODS, pod(context, many), context.namespace, what=what)]

    return check(
        id_,
        title,
        severity,
        f"Creates a restricted pod of {CONTAINERS} containers, each with {amount} of {resource} (dry run).",
        "The tenant leaves room for others on the nodes.",
        attempts,
        fix=FIX.format(resource),
        control=honest,
        by_quota=True,
        alone=WithoutTenantry.OPEN,
        benchmark="configure_ns_quotas",
    )


def _far(resource: str, request: str, limit: str) -> Json:
    return {"resources": {"requests": {resource: request}, "limits": {resource: limit}}}


CHECKS: Sequence[AuditCheck] = (
    _compute("QTA-001", "Use of processors is limited", "cpu", "30", Severity.HIGH),
    _compute("QTA-002", "Use of memory is limited", "memory", "120Gi", Severity.HIGH),
    _compute("QTA-003", "Use of nodes' disks is limited", "ephemeral-storage", "10Ti", Severity.MEDIUM),
    check(
        "QTA-004",
        "The number of objects is limited",
        Severity.MEDIUM,
        "Reads its quotas, and checks whether they count pods, Services, Secrets, ConfigMaps and claims.",
        "The tenant does not fill the API server's storage.",
        _counts,
        fix=FIX.format("pods, count/services, count/secrets, count/configmaps and persistentvolumeclaims"),
        alone=WithoutTenantry.OPEN,
        benchmark="configure_ns_object_quota",
    ),
    check(
        "QTA-005",
        "Cannot change its own quota",
        Severity.CRITICAL,
        "Raises and deletes a ResourceQuota, and writes the used amounts in its status (dry runs).",
        "The share is the one that the administrators gave.",
        _quota_writes,
        benchmark="block_ns_quota",
    ),
    check(
        "QTA-006",
        "Cannot change its own limits",
        Severity.MEDIUM,
        "Empties and deletes a LimitRange (dry runs).",
        "Containers have the limits that the administrators gave.",
        _limit_writes,
    ),
    check(
        "QTA-007",
        "Containers get limits by default",
        Severity.MEDIUM,
        "Creates a restricted pod without limits, and checks which limits it gets (dry run).",
        "No container uses a whole node.",
        _without_limits,
        fix="Give the Tenant a quota of limits.cpu and limits.memory, or set spec.containerDefaults.limits.",
        control=honest,
        alone=WithoutTenantry.OPEN,
    ),
    check(
        "QTA-010",
        "Limits stay near requests",
        Severity.MEDIUM,
        "Creates restricted pods with a small request and a large limit, of processors and of memory (dry runs).",
        "A quota of requests also bounds what pods use.",
        both(
            tried("with a request of 1m and a limit of 30 cpu", container=_far("cpu", "1m", "30"), init=False),
            tried(
                "with a request of 1Mi and a limit of 64Gi memory", container=_far("memory", "1Mi", "64Gi"), init=False
            ),
        ),
        fix="Set spec.rules.containers.limitRatios of the Tenant, or give it a quota of limits.cpu and limits.memory.",
        control=honest,
        alone=WithoutTenantry.OPEN,
    ),
)

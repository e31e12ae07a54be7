"""Checks of storage: volumes come from classes that a tenant may use, and are deleted with the tenant. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api.model import Json
from tenantry.api.wording import shortened
from tenantry.audit import kinds
from tenantry.audit.attempts import create, delete, list_, patch
from tenantry.audit.check import (
    Attempt,
    AttemptResponse,
    AuditCheck,
    NotApplicable,
    Observation,
    Severity,
    WithoutTenantry,
)
from tenantry.audit.checks.api import named
from tenantry.audit.checks.table import check
from tenantry.audit.context import AuditContext
from tenantry.policy.request import part

DELETE = "Delete"
CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}


def claim(context: AuditContext, what: str = "", *, judge: Any = None, **spec: object) -> Attempt:  # noqa: ANN401
    """Return the creation of a claim."""
    return create(kinds.CLAIMS, {**named(context), "spec": CLAIM | spec}, context.namespace, what=what, judge=judge)


def _volumes(context: AuditContext) -> list[Attempt]:
    spec = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/"},
        "claimRef": {"namespace": context.namespace, "name": context.name},
    }
    return [
        create(kinds.VOLUMES, {**named(context), "spec": spec}),
        patch(kinds.VOLUMES, context.name, {"spec": {"claimRef": None}}),
        delete(kinds.VOLUMES, context.name),
        create(kinds.ATTACHMENTS, named(context)),
        create(kinds.CSI_DRIVERS, named(context)),
    ]


def _existing(context: AuditContext) -> list[Attempt] | Observation | NotApplicable:
    # A claim of an unknown class, or of one without provisioner, is admitted: the binding decides.
    if context.bindings is None:
        return NotApplicable("the administrator may not read PersistentVolumes and impersonate the volume binder")
    open_ = [name for name, refusal in context.bindings.items() if not refusal]
    if open_:
        wrong = f"PersistentVolume {shortened(open_)} is bound to a claim of its class, also without a provisioner"
        return Observation("bind existing volumes to new claims, as Kubernetes' volume binder (dry runs)", wrong)
    # A rule may refuse claims without a class for that alone; volumes that others left may have a class.
    by_label: Json = {"selector": {"matchLabels": {"audit": "x"}}}
    return [
        claim(context, "on a volume by name", volumeName=context.name),
        claim(context, "on a volume by name, without a class", volumeName=context.name, storageClassName=""),
        claim(context, "on any volume, without a class", storageClassName=""),
        claim(context, "on volumes by label", **by_label),
        claim(context, "on volumes by label, without a class", **by_label, storageClassName=""),
    ]


def _retained(context: AuditContext) -> list[Attempt] | NotApplicable:
    if context.storage_classes is None:
        return NotApplicable("the administrator may not read StorageClasses")
    kept = sorted(name for name, policy in context.storage_classes.items() if policy != DELETE)
    if not kept:
        return NotApplicable("every StorageClass of the cluster has reclaimPolicy Delete")
    return [claim(context, f"of the class {name!r}, which retains volumes", storageClassName=name) for name in kept]


def _left_behind(context: AuditContext) -> Observation | NotApplicable:
    if context.volumes is None:
        return NotApplicable("the administrator may not read PersistentVolumes")
    own = [each for each in context.volumes if each.claim.partition("/")[0] == context.namespace]
    if not own:
        return NotApplicable("no claim of the namespace has a volume")
    kept = [each.name for each in own if each.reclaim_policy != DELETE]
    wrong = f"PersistentVolume {shortened(kept)} would outlive the tenant, with its data" if kept else ""
    return Observation(f"inspect the {len(own)} volumes of its claims", wrong)


def _other_source(context: AuditContext) -> list[Attempt]:
    other = context.neighbour

    def judge(answer: AttemptResponse) -> str:
        reference = part(answer.body, "spec", "dataSourceRef")
        return f"the claim gets its data from the namespace {other!r}" if reference.get("namespace") else ""

    source = {"kind": "PersistentVolumeClaim", "name": "data", "namespace": other}
    return [claim(context, f"with data of {other!r}", judge=judge, dataSourceRef=source)]


def _honest(context: AuditContext) -> Attempt:
    return claim(context, "of the default class")


CHECKS: Sequence[AuditCheck] = (
    check(
        "STO-001",
        "Cannot change PersistentVolumes",
        Severity.CRITICAL,
        "Creates a PersistentVolume of a node's files for its own claim, releases one and deletes one (dry runs).",
        "The tenant gets no file system of a node, and no volume of others by its claimRef.",
        _volumes,
    ),
    check(
        "STO-002",
        "Cannot read PersistentVolumes",
        Severity.MEDIUM,
        "Lists PersistentVolumes.",
        "The tenant does not learn names and locations of others' volumes.",
        lambda _: [list_(kinds.VOLUMES)],
    ),
    check(
        "STO-003",
        "Claims cannot choose an existing volume",
        Severity.HIGH,
        "Creates claims that name a PersistentVolume, select some by label, or take any without a class. As Kubernetes'"
        " volume binder, it binds volumes of others to a new claim (dry runs).",
        "The tenant does not claim a volume that others have left, or are about to bind.",
        _existing,
        fix="Set spec.rules.storageClasses.existingVolumes of the Tenant to Refuse.",
        control=_honest,
        alone=WithoutTenantry.OPEN,
    ),
    check(
        "STO-004",
        "Claims cannot use any StorageClass",
        Severity.MEDIUM,
        "Creates a claim of a class that no rule allows (dry run).",
        "The tenant uses the classes that are meant for it.",
        lambda context: [claim(context, "of a class that no rule allows", storageClassName=context.name)],
        fix="Set spec.rules.storageClasses.allowed of the Tenant.",
        control=_honest,
        alone=WithoutTenantry.OPEN,
    ),
    check(
        "STO-005",
        "Volumes cannot outlive their claim",
        Severity.HIGH,
        "Creates a claim of each StorageClass whose reclaimPolicy is not Delete (dry runs).",
        "The next tenant gets no volume with data of this one.",
        _retained,
        fix="Set spec.rules.storageClasses.reclaimPolicies of the Tenant to [Delete].",
        control=_honest,
        alone=WithoutTenantry.OPEN,
        benchmark="require_persistent_volume_reclaim_policy_of_delete",
    ),
    check(
        "STO-006",
        "Volumes in use are deleted with the tenant",
        Severity.MEDIUM,
        "Inspects the reclaimPolicy of the volumes that its claims are bound to.",
        "No data remains when the tenant is deleted.",
        _left_behind,
        fix="Set spec.persistentVolumeReclaimPolicy of the volume to Delete.",
        alone=WithoutTenantry.DEPENDS,
        benchmark="require_persistent_volume_reclaim_policy_of_delete",
    ),
    check(
        "STO-007",
        "Claims cannot copy data of other namespaces",
        Severity.HIGH,
        "Creates a claim whose data source is a claim of others (dry run).",
        "No volume is cloned into another namespace.",
        _other_source,
        fix="Disable the feature gate CrossNamespaceVolumeDataSource of the API server.",
        control=_honest,
        alone=WithoutTenantry.DEPENDS,
    ),
    check(
        "STO-008",
        "Use of storage is limited",
        Severity.MEDIUM,
        "Creates a claim of 1 PiB (dry run).",
        "The tenant does not fill the storage of all tenants.",
        lambda context: [claim(context, "of 1 PiB", resources={"requests": {"storage": "1Pi"}})],
        fix="Give the Tenant a quota of requests.storage.",
        control=_honest,
        by_quota=True,
        alone=WithoutTenantry.OPEN,
        benchmark="configure_ns_quotas",
    ),
)

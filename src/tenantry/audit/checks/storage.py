"""Checks of storage: volumes come from classes that a tenant may use, and end with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api.wording import shortened
from tenantry.audit import kinds
from tenantry.audit.attempts import create, delete, list_, patch, table
from tenantry.audit.check import Alone, Answer, Area, Attempt, Check, Nothing, Seen, Severity
from tenantry.audit.checks.api import RBAC_FIX, named
from tenantry.audit.place import Place

Json = dict[str, Any]

DELETE = "Delete"


def claim(place: Place, what: str = "", *, judge: Any = None, **spec: object) -> Attempt:  # noqa: ANN401
    """Return the creation of a claim."""
    wanted: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, **spec}
    return create(kinds.CLAIMS, {**named(place), "spec": wanted}, place.namespace, what=what, judge=judge)


def _volumes(place: Place) -> list[Attempt]:
    volume = {
        **named(place),
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/"},
            "claimRef": {"namespace": place.namespace, "name": place.name},
        },
    }
    return [
        create(kinds.VOLUMES, volume),
        patch(kinds.VOLUMES, place.name, {"spec": {"claimRef": None}}),
        delete(kinds.VOLUMES, place.name),
        create(kinds.ATTACHMENTS, named(place)),
        create(kinds.CSI_DRIVERS, named(place)),
    ]


def _existing(place: Place) -> list[Attempt]:
    # Of no class alone they may be refused because of that; volumes that others left are of one.
    by_label: Json = {"selector": {"matchLabels": {"audit": "x"}}}
    return [
        claim(place, "on a volume by name", volumeName=place.name),
        claim(place, "on a volume by name, of no class", volumeName=place.name, storageClassName=""),
        claim(place, "on any volume, of no class", storageClassName=""),
        claim(place, "on volumes by label", **by_label),
        claim(place, "on volumes by label, of no class", **by_label, storageClassName=""),
    ]


def _retained(place: Place) -> list[Attempt] | Nothing:
    if place.storage_classes is None:
        return Nothing("whoever asked may not read StorageClasses")
    kept = sorted(name for name, policy in place.storage_classes.items() if policy != DELETE)
    if not kept:
        return Nothing("every StorageClass of the cluster has reclaimPolicy Delete")
    return [claim(place, f"of the class {name!r}, which retains volumes", storageClassName=name) for name in kept]


def _left_behind(place: Place) -> Seen | Nothing:
    if place.volumes is None:
        return Nothing("whoever asked may not read PersistentVolumes")
    own = [each for each in place.volumes if each.claim.partition("/")[0] == place.namespace]
    if not own:
        return Nothing("no claim of the namespace has a volume")
    kept = sorted(each.name for each in own if each.reclaim_policy != DELETE)
    wrong = f"PersistentVolume {shortened(kept)} would outlive the tenant, with its data" if kept else ""
    return Seen(f"look at the {len(own)} volumes of its claims", wrong)


def _other_source(place: Place) -> list[Attempt]:
    other = place.others[0].name if place.others else "kube-system"

    def judge(answer: Answer) -> str:
        reference = table(answer.body, "spec", "dataSourceRef")
        return f"the claim takes its data from the namespace {other!r}" if reference.get("namespace") else ""

    source = {"kind": "PersistentVolumeClaim", "name": "data", "namespace": other}
    return [claim(place, f"with data of {other!r}", judge=judge, dataSourceRef=source)]


def _quota_of_storage(place: Place) -> list[Attempt]:
    return [claim(place, "of a pebibyte", resources={"requests": {"storage": "1Pi"}})]


def _honest(place: Place) -> Attempt:
    return claim(place, "of the default class")


CHECKS: Sequence[Check] = (
    Check(
        id="TNT-STO-001",
        title="Volumes of the cluster",
        area=Area.STORAGE,
        severity=Severity.CRITICAL,
        tries="Creates a PersistentVolume of a node's files for a claim of its own, frees and deletes one (dry runs).",
        proves="The tenant gets no file system of a node, nor the volume of another by its claimRef.",
        fix=RBAC_FIX,
        attempts=_volumes,
    ),
    Check(
        id="TNT-STO-002",
        title="Volumes are read",
        area=Area.STORAGE,
        severity=Severity.MEDIUM,
        tries="Lists PersistentVolumes.",
        proves="Names and places of others' volumes are not told.",
        fix=RBAC_FIX,
        attempts=lambda _: [list_(kinds.VOLUMES)],
    ),
    Check(
        id="TNT-STO-003",
        title="A claim on a volume by name",
        area=Area.STORAGE,
        severity=Severity.HIGH,
        tries="Creates claims that name a PersistentVolume, select some by label, or take any, of no class and of the"
        " default one (dry runs).",
        proves="Nobody claims a volume that others have left, or are about to bind.",
        fix="Set spec.rules.storageClasses.existingVolumes of the Tenant to Refuse.",
        attempts=_existing,
        control=_honest,
        alone=Alone.OPEN,
    ),
    Check(
        id="TNT-STO-004",
        title="Any StorageClass",
        area=Area.STORAGE,
        severity=Severity.MEDIUM,
        tries="Creates a claim of a class that nobody allowed (dry run).",
        proves="The tenant uses the classes that are meant for it.",
        fix="Set spec.rules.storageClasses.allowed of the Tenant.",
        attempts=lambda place: [claim(place, "of a class nobody allowed", storageClassName=place.name)],
        control=_honest,
        alone=Alone.OPEN,
    ),
    Check(
        id="TNT-STO-005",
        title="Volumes that survive their claim",
        area=Area.STORAGE,
        severity=Severity.HIGH,
        tries="Creates a claim of each StorageClass whose reclaimPolicy is not Delete (dry runs).",
        proves="No volume, with its data, is left for the next tenant.",
        fix="Set spec.rules.storageClasses.reclaimPolicies of the Tenant to [Delete].",
        attempts=_retained,
        control=_honest,
        alone=Alone.OPEN,
        benchmark="require_persistent_volume_reclaim_policy_of_delete",
    ),
    Check(
        id="TNT-STO-006",
        title="Volumes that are in use end with the tenant",
        area=Area.STORAGE,
        severity=Severity.MEDIUM,
        tries="Looks at the reclaimPolicy of the volumes that its claims are bound to.",
        proves="No data is left when the tenant goes.",
        fix="Set spec.persistentVolumeReclaimPolicy of the volume to Delete.",
        attempts=_left_behind,
        alone=Alone.DEPENDS,
        benchmark="require_persistent_volume_reclaim_policy_of_delete",
    ),
    Check(
        id="TNT-STO-007",
        title="Data of other namespaces",
        area=Area.STORAGE,
        severity=Severity.HIGH,
        tries="Creates a claim whose data comes from a claim of others (dry run).",
        proves="No volume is cloned over a namespace's border.",
        fix="Switch the feature CrossNamespaceVolumeDataSource of the API server off.",
        attempts=_other_source,
        control=_honest,
        alone=Alone.DEPENDS,
    ),
    Check(
        id="TNT-STO-008",
        title="Storage without end",
        area=Area.STORAGE,
        severity=Severity.MEDIUM,
        tries="Creates a claim of a pebibyte (dry run).",
        proves="The tenant does not fill the storage of all.",
        fix="Give the Tenant a quota of requests.storage.",
        attempts=_quota_of_storage,
        control=_honest,
        by_quota=True,
        alone=Alone.OPEN,
        benchmark="configure_ns_quotas",
    ),
)

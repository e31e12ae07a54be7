"""Classes as the upper side shows them: what comes up, and what stays below."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.mirror import classes
from tenantry.mirror.classes import INGRESS, PRIORITY, RUNTIME, SNAPSHOT, STORAGE, LowerClass, MirroredClass, UpperClass
from testkit.mirroring import PROFILE, copied

Json = dict[str, Any]

MARKED = {"example.dev/lower": "true"}
SECRET = {"team": "storage", "kubectl.kubernetes.io/last-applied-configuration": '{"parameters": {}}'}
META = {"name": "fast", "uid": "u-fast", "resourceVersion": "7", "labels": SECRET, "finalizers": ["example.com/keep"]}

LOWER: dict[str, Json] = {
    "StorageClass": {
        "provisioner": "disks.example.com",
        "parameters": {"secretName": "admin", "endpoint": "https://192.0.2.7"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
        "mountOptions": ["addr=192.0.2.7"],
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "rack", "values": ["7"]}]}],
    },
    "IngressClass": {
        "spec": {
            "controller": "example.com/ingress",
            "parameters": {"kind": "Settings", "name": "s", "scope": "Cluster"},
        }
    },
    "PriorityClass": {"value": 7, "preemptionPolicy": "Never", "globalDefault": False, "description": "of the shop"},
    "RuntimeClass": {
        "handler": "kata-qemu",
        "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"nodeSelector": {"rack": "7"}},
    },
    "VolumeSnapshotClass": {
        "driver": "disks.example.com",
        "deletionPolicy": "Delete",
        "parameters": {"csi.storage.k8s.io/snapshotter-secret-name": "admin"},
    },
}
UPPER: dict[str, Json] = {
    "StorageClass": {
        "provisioner": "example.dev/mirrored",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    },
    "IngressClass": {"spec": {"controller": "example.dev/mirrored"}},
    "PriorityClass": {"value": 7, "preemptionPolicy": "Never"},
    "RuntimeClass": {"handler": "mirrored"},
    "VolumeSnapshotClass": {"driver": "example.dev/mirrored", "deletionPolicy": "Delete"},
}
DEFAULT: dict[str, Json] = {
    "StorageClass": {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}},
    "IngressClass": {"metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}},
    "PriorityClass": {"globalDefault": True},
    "VolumeSnapshotClass": {"metadata": {"annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"}}},
}
KINDS = pytest.mark.parametrize("kind", [*classes.CLASSES, SNAPSHOT], ids=lambda kind: kind.resource.kind)
WITH_DEFAULT = pytest.mark.parametrize(
    "kind", [STORAGE, INGRESS, PRIORITY, SNAPSHOT], ids=lambda kind: kind.resource.kind
)


def below(kind: MirroredClass, more: Json | None = None) -> LowerClass:
    """Return a lower class with every field, as it is cached."""
    extra = more or {}
    meta = {**META, "annotations": SECRET | extra.get("metadata", {}).get("annotations", {})}
    return kind.lower(msgspec.Raw(msgspec.json.encode({**LOWER[kind.resource.kind], **extra, "metadata": meta})))


def above(kind: MirroredClass, value: Json) -> UpperClass:
    """Return an upper class as it is cached."""
    return kind.upper(msgspec.Raw(msgspec.json.encode(value)), "example.dev/lower")


def stored(value: Json) -> Json:
    """Return an upper class as its API server stores it."""
    server = {"uid": "u-1", "resourceVersion": "9", "managedFields": [{"manager": "tenantry"}], "generation": 1}
    return {**copied(value), "apiVersion": "v1", "kind": "X", "metadata": {**copied(value["metadata"]), **server}}


@KINDS
def test_nothing_but_listed_fields_comes_up(kind: MirroredClass) -> None:
    """H01: neither parameters, endpoints and nodes of the lower side, nor the names of its programs."""
    shown = kind.shown(below(kind), PROFILE, is_default=False)
    assert shown == {**UPPER[kind.resource.kind], "metadata": {"name": "fast", "labels": MARKED}}


@WITH_DEFAULT
def test_the_default_stays_the_default(kind: MirroredClass) -> None:
    """Kubernetes marks the default of each kind in its own way."""
    mark = DEFAULT[kind.resource.kind]
    lower = below(kind, mark)
    assert lower.is_default
    assert not below(kind).is_default
    shown = kind.shown(lower, PROFILE, is_default=True)
    assert above(kind, stored(shown)).is_default
    metadata = {"name": "fast", "labels": MARKED, **mark.get("metadata", {})}
    assert shown == {**UPPER[kind.resource.kind], **mark, "metadata": metadata}


def test_the_old_mark_of_the_default_class_counts() -> None:
    """Kubernetes reads both annotations."""
    old = {"metadata": {"annotations": {"storageclass.beta.kubernetes.io/is-default-class": "true"}}}
    assert below(STORAGE, old).is_default


@KINDS
@pytest.mark.parametrize(
    "edit",
    [
        {"metadata": {"annotations": {"note": "mine"}}},
        {"metadata": {"labels": {**MARKED, "team": "mine"}}},
        {"metadata": {"labels": {}}},
        {"metadata": {"finalizers": ["example.com/keep"]}},
        {"metadata": {"ownerReferences": [{"uid": "u-2"}]}},
        {"parameters": {"a": "b"}},
        {"spec": {"controller": "example.dev/mirrored", "parameters": {"kind": "Settings"}}},
        {"globalDefault": True},
        {"value": 8},
        {"handler": "other"},
        {"overhead": {"podFixed": {"cpu": "1"}}},
    ],
    ids=str,
)
def test_every_edit_of_users_is_seen(kind: MirroredClass, edit: Json) -> None:
    """What users add is found as well as what they change."""
    shown = kind.shown(below(kind), PROFILE, is_default=False)
    live = stored(shown)
    changed = {**live, **edit, "metadata": {**live["metadata"], **edit.get("metadata", {})}}
    assert above(kind, live).digest == classes.digest(shown)
    assert above(kind, changed).digest != classes.digest(shown)


def test_fields_that_an_api_server_stores_empty_are_no_edits() -> None:
    """An API server may store `false`, or leave it out."""
    shown = PRIORITY.shown(below(PRIORITY), PROFILE, is_default=False)
    live = stored(shown) | {"globalDefault": False, "description": ""}
    assert above(PRIORITY, live).digest == classes.digest(shown)
    nothing = {"value": 0, "metadata": {"name": "a"}}
    assert classes.digest(nothing) != classes.digest({"value": 1, "metadata": {"name": "a"}})


def test_classes_that_every_api_server_has_are_not_shown_again() -> None:
    """The API server of the upper side makes them itself."""
    assert PRIORITY.is_built_in("system-node-critical")
    assert PRIORITY.is_built_in("system-cluster-critical")
    assert not PRIORITY.is_built_in("high")
    assert not RUNTIME.is_built_in("system-runtime")

"""The marks by which Helm knows what belongs to a release: pure.

    label       app.kubernetes.io/managed-by: Helm     on every object of a release, whatever its chart says
    annotation  meta.helm.sh/release-name              Helm neither upgrades nor deletes an object
                meta.helm.sh/release-namespace         without these three
                helm.sh/resource-policy: keep          an uninstallation leaves the object as it is

The operator leaves these marks alone, and writes them on objects of a release that it restores.

Source: Helm, "Labels and Annotations", "Chart Development Tips and Tricks"; pkg/action/validate.go, `checkOwnership`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from typing_extensions import override

from tenantry.api.marks import MANAGED_BY
from tenantry.api.model import Json

PART_OF = "app.kubernetes.io/part-of"
"""The label of installed objects that the operator repairs. Its value is MANAGER, also where Helm writes MANAGED_BY."""

HELM = "Helm"
RELEASE_NAME = "meta.helm.sh/release-name"
RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"

KEEP = {"helm.sh/resource-policy": "keep"}
"""The annotation of what stays when its release is uninstalled, or when its chart does not have it any more."""


class HelmRelease(msgspec.Struct, frozen=True):
    """A release.

    Args:
        name: Of the release.
        namespace: Where Helm keeps its history.
    """

    name: str
    namespace: str

    @override
    def __str__(self) -> str:
        """Return it in words."""
        return f"release {self.name!r} of Helm in namespace {self.namespace!r}"


def is_helms(mark: str, value: str) -> bool:
    """Return whether Helm wrote the value of a label or annotation instead of the shipped one."""
    return mark == MANAGED_BY and value == HELM


def release_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> HelmRelease | None:
    """Return the release of an object, by its marks; None for none."""
    if labels.get(MANAGED_BY) != HELM or RELEASE_NAME not in annotations:
        return None
    return HelmRelease(annotations[RELEASE_NAME], annotations.get(RELEASE_NAMESPACE, ""))


def marked(value: Json, release: HelmRelease) -> Json:
    """Return an object with the marks of a release."""
    meta: Json = value["metadata"]
    labels = {**meta.get("labels", {}), MANAGED_BY: HELM}
    annotations = {
        **meta.get("annotations", {}),
        RELEASE_NAME: release.name,
        RELEASE_NAMESPACE: release.namespace,
    }
    return {**value, "metadata": {**meta, "labels": labels, "annotations": annotations}}

"""The files by which clusterctl of Cluster API installs the kinds of the provider: a local repository. Pure.

    FOLDER/clusterctl.yaml                                                    names the others
    FOLDER/infrastructure-tenantry/vX.Y.Z/infrastructure-components.yaml      kinds, and rights of the operator
    FOLDER/control-plane-tenantry/vX.Y.Z/control-plane-components.yaml
                                        /metadata.yaml                        the contract of each version

The operator itself is installed by `tenantry install`.

Source: The Cluster API Book, "clusterctl provider contract".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.install import clusterapi
from tenantry.install.rights import OPERATOR

NAME = "tenantry"
"""The name of the provider."""

NAMESPACE = "tenantry-cluster-api"
"""Where clusterctl keeps its record of the provider. It replaces labels of the namespace, so that it has its own."""

CONFIGURATION = "clusterctl.yaml"

MARK = "clusterctl.cluster.x-k8s.io"
"""The label that clusterctl puts on everything that it installs."""

_SUBJECT: Json = {
    "kind": "User",
    "name": f"system:serviceaccount:{SYSTEM_NAMESPACE}:{OPERATOR}",
    "apiGroup": RBAC_GROUP,
}
"""The ServiceAccount of the operator, without a namespace: clusterctl replaces those of subjects."""

_CONTRACT = "v1beta2"
_TYPES = {clusterapi.INFRASTRUCTURE: "InfrastructureProvider", clusterapi.CONTROL_PLANE: "ControlPlaneProvider"}


def repository(folder: str, version: str) -> Mapping[str, Sequence[Json]]:
    """Return the documents of each file, by its path below the folder.

    Args:
        folder: The absolute path of the folder, which clusterctl demands.
        version: That of Tenantry, as in 0.1.0.
    """
    major, minor = (int(each) for each in version.split(".")[:2])
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    metadata: Json = {
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Metadata",
        "releaseSeries": [{"major": major, "minor": minor, "contract": _CONTRACT}],
    }
    found: dict[str, Sequence[Json]] = {}
    providers: list[Json] = []
    for part, kind in _TYPES.items():
        place = f"{part}-{NAME}/v{version}"
        components = f"{place}/{part}-components.yaml"
        found[components] = [namespace, *clusterapi.part(part, _SUBJECT)]
        found[f"{place}/metadata.yaml"] = [metadata]
        providers.append({"name": NAME, "type": kind, "url": f"{folder}/{components}"})
    return {CONFIGURATION: [{"providers": providers}], **found}

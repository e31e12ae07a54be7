"""The kinds ClusterProperty and ClusterProfile, for clusters that do not have them. Pure.

They belong to SIG Multicluster. These definitions are Tenantry's own, after the published fields and bounds of the
versions that it writes, and never stricter: other programs write such objects, too. An administrator, or another
program, replaces them by the definitions of sigs.k8s.io/about-api and sigs.k8s.io/cluster-inventory-api, which serve
more versions. So they are created where they are missing, and never changed or deleted.
"""

from __future__ import annotations

from tenantry.api.clusterinventory import PROFILES_NAMESPACE, ClusterProfile, ClusterProperty
from tenantry.api.model import READ, Json, Resource
from tenantry.install.rights import LABELS, allow, cluster_role, given, given_in

INVENTORY = "tenantry-inventory"
"""The roles of the operator for both kinds."""

_APPROVAL = "api-approved.kubernetes.io"
"""The API server requires this annotation of definitions in groups of k8s.io (KEP-1111)."""

_TEXT: Json = {"type": "string"}


def definitions() -> list[Json]:
    """Return the CRDs."""
    return [_property_definition(), _profile_definition()]


def rights(subject: Json) -> list[Json]:
    """Return the operator's rights.

    Args:
        subject: The operator, as RBAC names it.
    """
    profile, inventory = ClusterProfile.resource, ClusterProperty.resource
    # No right to change a ClusterProperty: a value stays as a person or another program has chosen it.
    everywhere = [
        allow([inventory.group], [inventory.plural], [*READ, "create"]),
        allow([profile.group], [profile.plural], READ),
    ]
    # Kubernetes deletes them with their PeerCluster.
    here = [
        allow([profile.group], [profile.plural], ["create", "patch"]),
        allow([profile.group], [f"{profile.plural}/status"], ["patch"]),
    ]
    return [
        cluster_role(INVENTORY, rules=everywhere),
        given(INVENTORY, subject),
        *given_in(PROFILES_NAMESPACE, INVENTORY, subject, *here),
    ]


def _property_definition() -> Json:
    spec = _object({"value": {**_TEXT, "minLength": 1, "description": "The value."}}, "value")
    columns = [_column("Value", ".spec.value"), _column("Age", ".metadata.creationTimestamp", "date")]
    about = "A property of this cluster. Its name says which (KEP-2149)."
    schema = _object({"spec": spec, "status": {"type": "object"}}, "spec", about=about)
    found = _definition(ClusterProperty.resource, schema, columns)
    found["metadata"]["annotations"] = {_APPROVAL: "unapproved, written by Tenantry after KEP-2149"}
    return found


def _profile_definition() -> Json:
    manager = _object({"name": {**_TEXT, "description": "Its name."}}, "name")
    manager["description"] = "The program that keeps this object."
    manager["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "clusterManager must not change"}]
    spec = _object(
        {"displayName": {**_TEXT, "description": "The name for people."}, "clusterManager": manager}, "clusterManager"
    )
    access = _object({"name": _TEXT, "cluster": _server()}, "name", "cluster")
    properties: Json = {
        "conditions": _list(_condition()),
        "version": _object({"kubernetes": {**_TEXT, "description": "The version of Kubernetes."}}),
        "properties": _list(_property()),
        "accessProviders": {**_list(access), "description": "Ways to the cluster, without credentials."},
        # Older than accessProviders; other programs may write it.
        "credentialProviders": _list(_anything()),
    }
    columns = [
        _column("Manager", ".spec.clusterManager.name"),
        _column("Healthy", '.status.conditions[?(@.type=="ControlPlaneHealthy")].status'),
        _column("Version", ".status.version.kubernetes"),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    about = "A cluster, as a cluster manager shows it to other programs (KEP-4322)."
    schema = _object({"spec": spec, "status": _object(properties)}, "spec", about=about)
    return _definition(ClusterProfile.resource, schema, columns)


def _condition() -> Json:
    status: Json = {**_TEXT, "enum": ["True", "False", "Unknown"]}
    return _object(
        {
            "type": {**_TEXT, "maxLength": 316},
            "status": status,
            "reason": {**_TEXT, "minLength": 1, "maxLength": 1024},
            "message": {**_TEXT, "maxLength": 32768},
            "lastTransitionTime": {**_TEXT, "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        },
        *("type", "status", "reason", "message", "lastTransitionTime"),
    )


def _property() -> Json:
    return _object(
        {
            "name": {**_TEXT, "minLength": 1, "maxLength": 253},
            "value": {**_TEXT, "minLength": 1, "maxLength": 1024},
            "lastObservedTime": {**_TEXT, "format": "date-time"},
        },
        *("name", "value"),
    )


def _server() -> Json:
    """Return the schema of a cluster in a kubeconfig."""
    extension = _object({"name": _TEXT, "extension": _anything()}, "name", "extension")
    switch: Json = {"type": "boolean"}
    return _object(
        {
            "server": {**_TEXT, "description": "The URL of the API server."},
            "tls-server-name": _TEXT,
            "insecure-skip-tls-verify": switch,
            "certificate-authority": _TEXT,
            "certificate-authority-data": {**_TEXT, "format": "byte"},
            "proxy-url": _TEXT,
            "disable-compression": switch,
            "extensions": _list(extension),
        },
        "server",
    )


def _anything() -> Json:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(properties: Json, *required: str, about: str = "") -> Json:
    found: Json = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    return {"description": about, **found} if about else found


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _column(name: str, path: str, kind: str = "string") -> Json:
    return {"name": name, "type": kind, "jsonPath": path}


def _definition(resource: Resource, schema: Json, columns: list[Json]) -> Json:
    names = {"kind": resource.kind, "listKind": f"{resource.kind}List", "plural": resource.plural}
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name, "labels": dict(LABELS)},
        "spec": {
            "group": resource.group,
            "names": {**names, "singular": resource.kind.lower()},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }

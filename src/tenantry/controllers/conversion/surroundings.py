"""What else is inside a control plane than objects that can move to the host: pure.

Everything counts that neither Kubernetes nor Tenantry has made. The list of kinds that are known is the list of those
that move; every other kind refuses the conversion, also one that a later version of Kubernetes brings.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import OWNERS_INSIDE, PREFIX
from tenantry.controllers.conversion import objects
from tenantry.controllers.conversion.objects import DEFAULT_ACCOUNT, INSIDE, JOBS, SERVICE_ACCOUNTS
from tenantry.mirror import metrics
from tenantry.mirror.kinds import services
from tenantry.mirror.shapes import part
from tenantry.mirror.things import NODES

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)

SERVED_BY_OPERATOR = (metrics.GROUP,)
"""The groups that the operator serves inside, and not while objects move; nothing is stored there."""

_MOVED = frozenset((each.group, each.plural) for each in (*INSIDE, JOBS))
_OF_CLUSTERS = frozenset(
    {
        *(("", name) for name in (NODES.plural, "endpoints", "events", "componentstatuses")),
        *(("storage.k8s.io", name) for name in ("csinodes", "volumeattachments", "csistoragecapacities")),
        ("discovery.k8s.io", "endpointslices"),
        ("events.k8s.io", "events"),
        ("coordination.k8s.io", "leases"),
        ("coordination.k8s.io", "leasecandidates"),
        ("networking.k8s.io", "ipaddresses"),
        ("internal.apiserver.k8s.io", "storageversions"),
    }
)
"""The kinds whose objects programs of a cluster make again, or that follow others."""

OWN_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
"""The namespaces that each cluster has."""

_OWN_NAMES = {
    (RBAC_GROUP, "clusterrolebindings"): (OWNERS_INSIDE,),
    ("networking.k8s.io", "servicecidrs"): ("kubernetes",),
    ("", "configmaps"): (
        "kube-root-ca.crt",
        "extension-apiserver-authentication",
        "kube-apiserver-legacy-service-account-token-tracking",
        "tenantry-quota",
    ),
    ("", SERVICE_ACCOUNTS.plural): (DEFAULT_ACCOUNT,),
}
_SYSTEM_CLASS = "system-"
_OWN_LABELS = {
    "kubernetes.io/bootstrapping": None,
    "kube-aggregator.kubernetes.io/automanaged": None,
    marks.MANAGED_BY: marks.MANAGER,
}
_UPKEPT = "apf.kubernetes.io/autoupdate-spec"


class FoundObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object inside, without its content.

    Args:
        resource: Its kind.
        namespace: "" for a cluster-scoped one.
        name: Its name.
        labels: Its labels.
        annotations: Its annotations.
    """

    resource: Resource
    namespace: str = ""
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}

    @property
    def told(self) -> str:
        """Return its name, with the namespace if it has one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def found_object(resource: Resource, value: Json) -> FoundObject:
    """Return an object of the API as this module knows it."""
    meta = part(value, "metadata")
    return FoundObject(
        resource=resource,
        namespace=str(meta.get("namespace", "")),
        name=str(meta.get("name", "")),
        labels=part(meta, "labels"),
        annotations=part(meta, "annotations"),
    )


def is_looked_at(resource: Resource) -> bool:
    """Return whether objects of a kind may have to be listed."""
    return (resource.group, resource.plural) not in _OF_CLUSTERS


def obstacle(found: FoundObject, namespace: str) -> str:
    """Return why an object cannot move because of its kind or place, and what to do; "" if it can.

    Args:
        found: The object.
        namespace: The namespace whose objects move; it has the same name on both sides.
    """
    told = ""
    if not is_looked_at(found.resource) or _is_own(found):
        return told
    if found.resource == objects.NAMESPACES:
        pass  # they become Subnamespaces; see `elsewhere`
    elif not found.namespace:
        told = "is cluster-scoped, which only administrators of the host create there: delete it"
    elif found.namespace in OWN_NAMESPACES and found.namespace != namespace:
        told = f"is in a namespace that each cluster has: move it to {namespace!r} or another one, or delete it"
    elif (found.resource.group, found.resource.plural) not in _MOVED:
        told = "is not supported in a conversion: delete it, and create it again on the host"
    return told


def _is_own(found: FoundObject) -> bool:
    """Return whether Kubernetes or Tenantry has made an object.

    Users inside can mark theirs in the same way. Such an object is not listed, and never reaches the host.
    """
    key = found.resource.group, found.resource.plural
    if found.name in _OWN_NAMES.get(key, ()) or found.labels.get(f"{PREFIX}/lower") is not None:
        return True
    if any(mark in found.labels and value in (None, found.labels[mark]) for mark, value in _OWN_LABELS.items()):
        return True
    if found.resource.plural == "priorityclasses" and found.name.startswith(_SYSTEM_CLASS):
        return True
    if not found.namespace and found.annotations.get(_UPKEPT) == "true":
        return True
    is_of_system = found.namespace == "kube-system" and key == ("", SERVICE_ACCOUNTS.plural)
    is_api_server = found.resource == services.RESOURCE and services.is_api_server(found.namespace, found.name)
    return is_of_system or is_api_server

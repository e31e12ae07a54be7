"""The Secret with the kubeconfig of a control plane, and the right of its owners to read it: pure.

of a Tenant or Subnamespace ─► Secret in `tenantry-kubeconfigs`
                               Role: get on this one Secret ─► RoleBinding: the owners, as in their own namespace
any other ─► Secret beside the VirtualControlPlane, for all who read Secrets there

`kubeconfigplace` decides which.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

from tenantry.api.clusterapi import KUBECONFIG_VALUE
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, PREFIX, VirtualControlPlane, kubeconfig_secret_name
from tenantry.controllers.virtualcontrolplane import desired
from tenantry.controllers.virtualcontrolplane.kubeconfigplace import is_outside
from tenantry.engine.observed import Observed
from tenantry.mirror.shapes import part

ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")

_OF = f"{PREFIX}/of-uid"
"""The annotation of an object in `tenantry-kubeconfigs`: the uid of its VirtualControlPlane."""


def secret(found: VirtualControlPlane, namespace: Observed, text: str) -> tuple[Resource, Json]:
    """Return the Secret with the kubeconfig of the users.

    Args:
        found: The VirtualControlPlane.
        namespace: Its namespace.
        text: The kubeconfig.
    """
    meta: Json = {
        "name": kubeconfig_secret_name(found.metadata.name),
        "namespace": found.metadata.namespace,
        "labels": desired.labels(found),
        "ownerReferences": [desired.owner_of(found)],
    }
    if is_outside(found, namespace):
        meta = _meta(found, namespace)
    # Programs read the kubeconfig of a cluster by the key of Cluster API.
    keys = (KUBECONFIG_KEY, KUBECONFIG_VALUE) if desired.has_own_nodes(found) else (KUBECONFIG_KEY,)
    return desired.SECRETS, {
        "metadata": meta,
        "type": "Opaque",
        # Not stringData, which no stored object has: server-side apply compares fields.
        "data": dict.fromkeys(keys, base64.b64encode(text.encode()).decode()),
    }


def rights(
    found: VirtualControlPlane, namespace: Observed, subjects: Iterable[Json]
) -> tuple[tuple[Resource, Json], ...]:
    """Return the Role and the RoleBinding by which owners read the Secret.

    They may get it by its name only: a list or a watch would outlast their rights.

    Args:
        found: The VirtualControlPlane; its kubeconfig is outside of its namespace.
        namespace: Its namespace.
        subjects: The owners; none while they have no access.
    """
    name = namespace.name
    rule: Json = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [name]}
    reference: Json = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name}
    binding: Json = {"metadata": _meta(found, namespace), "roleRef": reference, "subjects": list(subjects)}
    return (ROLES, {"metadata": _meta(found, namespace), "rules": [rule]}), (desired.ROLE_BINDINGS, binding)


def is_of(seen: Json, uid: str) -> bool:
    """Return whether an object in `tenantry-kubeconfigs` is of this control plane, and of no other of its name.

    Args:
        seen: The object.
        uid: The uid of the VirtualControlPlane.
    """
    return part(seen["metadata"], "annotations").get(_OF) == uid


def _meta(found: VirtualControlPlane, namespace: Observed) -> Json:
    # The garbage collector deletes them with the namespace, also while the operator is stopped.
    owner: Json = {"apiVersion": "v1", "kind": "Namespace", "name": namespace.name, "uid": namespace.uid}
    return {
        "name": namespace.name,
        "namespace": KUBECONFIGS_NAMESPACE,
        "labels": desired.labels(found),
        "annotations": {_OF: found.metadata.uid},
        "ownerReferences": [owner],
    }

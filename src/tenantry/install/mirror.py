"""The namespaces with the identities of the mirrors and with kubeconfigs, and the operator's rights there: pure.

The mirrors of a tenant's namespace may write the marks of mirrored objects there. Policies know them by their user name
alone. So no user of a tenant may act under that name: neither by a pod, nor by a token, nor by impersonation. The
ClusterRole `admin` of Kubernetes grants impersonation of each ServiceAccount of a namespace that it is bound in.

    namespace "acme" ─► ServiceAccount "acme" of namespace "tenantry-mirrors" ─► RoleBinding in "acme"

The kubeconfigs of Tenants and Subnamespaces are in `tenantry-kubeconfigs`, where no user of a tenant may watch. The
operator gives owners the right to get one Secret there; its own rights on Secrets and Roles are those of inheritance.

Source: Kubernetes, "User impersonation", "Managing Service Accounts" (TokenRequest).
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import MIRROR, MIRRORS_NAMESPACE
from tenantry.install.rights import LABELS, allow, given_in

BY_MIRROR = f"request.userInfo.username == 'system:serviceaccount:{MIRRORS_NAMESPACE}:' + request.namespace"
"""CEL: the request comes from the mirror of its own namespace."""


def everything(subject: Json) -> list[Json]:
    """Return the namespaces, and the right to request tokens of the ServiceAccounts of mirrors.

    Args:
        subject: The operator, as RBAC names it.
    """
    # Nowhere else: the right to request tokens of any ServiceAccount would be a right to be any workload.
    tokens = allow([""], ["serviceaccounts/token"], ["create"])
    identities = given_in(MIRRORS_NAMESPACE, MIRROR, subject, tokens)
    return [_namespace(MIRRORS_NAMESPACE), *identities, _namespace(KUBECONFIGS_NAMESPACE)]


def _namespace(name: str) -> Json:
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}

"""The order in which manifests are applied, and what has to be true before the next wave. Pure.

    kinds and namespace ─► every kind is served ─► everything else but policies
    policies            ─► the canary           ─► the API server refuses the canary's probe

The two halves are apart because `tenantry up` does other work between them. Policies come last: while the kind of their
parameters is not served, they stand still for seconds. Parameters of an older version are copied before the policies,
and deleted after them; see `upgrade`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api.model import Json, Resource
from tenantry.api.policyparameters import PolicyParameters
from tenantry.install import canary

_POLICIES = "admissionregistration.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
FLOW_SCHEMAS = Resource(_FLOW_CONTROL, "v1", "flowschemas", "FlowSchema", namespaced=False)
_RESOURCES = {
    (resource.api_version, resource.kind): resource
    for resource in (
        CRDS,
        NAMESPACES,
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource("", "v1", "services", "Service"),
        # The operator writes it; an installation of the other form deletes it.
        Resource("", "v1", "secrets", "Secret"),
        PolicyParameters.resource,
        Resource("apps", "v1", "deployments", "Deployment"),
        Resource("apps", "v1", "statefulsets", "StatefulSet"),
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(_RBAC, "v1", "roles", "Role"),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        FLOW_SCHEMAS,
        Resource(_POLICIES, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False),
        Resource(_FLOW_CONTROL, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False),
        *(
            Resource(_POLICIES, "v1", f"{kind.lower()}{plural}", f"{kind}{singular}", namespaced=False)
            for kind in ("ValidatingAdmissionPolic", "MutatingAdmissionPolic")
            for plural, singular in (("ies", "y"), ("ybindings", "yBinding"))
        ),
    )
}
"""The kinds that Tenantry installs. Discovery would cost a round trip for each API group."""


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that are applied together.

    Args:
        objects: The objects.
        served: CustomResourceDefinitions that must be served before the next wave.
        refused: The message with which the API server must refuse the canary's probe before the next wave; "" for none.
    """

    objects: tuple[Json, ...]
    served: tuple[str, ...] = ()
    refused: str = ""


def resource_of(value: Json) -> Resource:
    """Return the resource of a manifest.

    Raises:
        KeyError: Tenantry installs no such kind.
    """
    return _RESOURCES[value["apiVersion"], value["kind"]]


def policy_resource(kind: str, suffix: str = "") -> Resource:
    """Return the resource of policies, or of their bindings.

    Args:
        kind: Validating or Mutating.
        suffix: "" or Binding.
    """
    return _RESOURCES[f"{_POLICIES}/v1", f"{kind}AdmissionPolicy{suffix}"]


def founding(objects: Sequence[Json]) -> list[Wave]:
    """Return the waves of everything but policies."""
    rest = [value for value in objects if not _is_policy(value)]
    first = [value for value in rest if value["kind"] in {CRDS.kind, NAMESPACES.kind}]
    served = tuple(value["metadata"]["name"] for value in first if value["kind"] == CRDS.kind)
    later = tuple(value for value in rest if value not in first)
    return [Wave(objects=tuple(first), served=served), Wave(objects=later)]


def guarding(objects: Sequence[Json]) -> list[Wave]:
    """Return the waves of the policies."""
    policies = [value for value in objects if _is_policy(value)]
    last = tuple(value for value in policies if canary.is_canary(value))
    guards = tuple(value for value in policies if not canary.is_canary(value))
    return [Wave(objects=guards), Wave(objects=last, refused=canary.told_by(objects))]


def _is_policy(value: Json) -> bool:
    return str(value["apiVersion"]).startswith(f"{_POLICIES}/")

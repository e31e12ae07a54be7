"""What is installed where the API server has no mutating policies: the operator serves their mutations. Pure.

    Kubernetes 1.36 and newer   MutatingAdmissionPolicies and their bindings
    1.34 and 1.35               the rights, the port and the Service of a webhook of the operator

The operator writes the MutatingWebhookConfiguration itself, because it knows the certificate, and a path that only the
API server knows. Its failurePolicy is Ignore: validating policies refuse what was not changed.

Source: Kubernetes, "Mutating Admission Policy" (v1 since 1.36), "Dynamic Admission Control".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.marks import MADE_BY, SYSTEM_NAMESPACE
from tenantry.api.model import KEEP, Json
from tenantry.controllers.webhook.mutations import (
    CONFIGURATION,
    KEYS_OBJECT,
    ROLE,
    SERVICE_PORT,
    ServedMutation,
    mutations,
)
from tenantry.install import (
    approval,
    bandwidth,
    claims,
    contribution,
    images,
    makers,
    network,
    offloading,
    parts,
    podresources,
    sandbox,
    slices,
)
from tenantry.install.condensed import condensed
from tenantry.install.policy import binding, narrowed, says, validating
from tenantry.install.rights import allow, cluster_role, given

PORT = 9443
SERVICE = "tenantry-operator-webhook"


_MUTATING = "MutatingAdmissionPolicy"


def _reserved(annotation: str, resource: str) -> str:
    """Return CEL: whether a pod with an annotation of bandwidth has the resource that the scheduler counts."""
    has = f"object.spec.containers[0].?resources.limits[?'{resource}'].hasValue()"
    return f"(!('{annotation}' in object.metadata.annotations) || {has})"


_REQUIRED = {
    makers.MAKERS: (
        f"object.?metadata.annotations[?'{MADE_BY}'].orValue('') == request.userInfo.username",
        f"metadata.annotations['{MADE_BY}'] must be the user who creates the object",
    ),
    bandwidth.NAME: (
        " && ".join(_reserved(*each) for each in bandwidth.ANNOTATIONS.items()),
        "spec.containers[0].resources.limits must have the bandwidth of the pod",
    ),
}
"""Mutations that are limits or records, and that no other policy stands behind: CEL, and the message of a refusal."""


_LIST_LIBRARY = (
    # Policies sort only so that their messages always begin with the same key.
    (b".sort()", b""),
    (b"u.slice(1, size(u))", b"u.transformList(i, v, i > 0, v)"),
)
"""Calls of CEL's list library (new expressions may use it since 1.35), and what replaces them."""


class MutationForm(enum.StrEnum):
    """How the mutations of policies are carried out."""

    POLICIES = "Policies"
    WEBHOOK = "Webhook"


def is_mutating(value: Json) -> bool:
    """Return whether an object is a mutating policy or its binding."""
    return str(value["kind"]).startswith("MutatingAdmissionPolicy")


def without_policies(objects: Sequence[Json], subject: Json) -> list[Json]:
    """Return what is installed where the operator serves a webhook instead of mutating policies.

    Args:
        objects: What is installed elsewhere.
        subject: The operator, as RBAC names it.
    """
    kept = (each for each in objects if not is_mutating(each))
    return [_without_list_library(each) for each in (*kept, *rights(subject), *checks(subject))]


def _without_list_library(value: Json) -> Json:
    """Return an object for the CEL of 1.34: it takes what an API server of 1.33 reads, too."""
    text = msgspec.json.encode(value)
    for function, without in _LIST_LIBRARY:
        text = text.replace(function, without)
    return msgspec.json.decode(text)


def checks(subject: Json) -> list[Json]:
    """Return the policies that refuse what a mutation has not changed, for those that no other policy stands behind.

    A mutating policy fails closed, and needs none of them.

    Args:
        subject: The operator, as RBAC names it.
    """
    made: list[Json] = []
    known = policies(subject)
    for name, (holds, message) in _REQUIRED.items():
        (policy,) = [each for each in known if each["kind"] == _MUTATING and each["metadata"]["name"] == name]
        (bound,) = [each for each in known if each["spec"].get("policyName") == name]
        spec: Json = policy["spec"]
        told = f"{message}: the webhook of the operator has not changed the object; wait until the operator runs"
        conditions = {each["name"]: each["expression"] for each in spec["matchConditions"]}
        rules = spec["matchConstraints"]["resourceRules"]
        checked = validating(f"{name}-applied", rules, [says(holds, told)], conditions=conditions)
        made += [checked, binding(f"{name}-applied", matchResources=bound["spec"]["matchResources"])]
    return made


def rights(subject: Json) -> list[Json]:
    """Return the rights on the one MutatingWebhookConfiguration; the rights on Secrets are those of inheritance."""
    configurations = allow(
        ["admissionregistration.k8s.io"],
        ["mutatingwebhookconfigurations"],
        # OwnerReferencesPermissionEnforcement lets only clients that may delete an object change its owners.
        [*KEEP, "update"],
    )
    return [cluster_role(ROLE, rules=[{**configurations, "resourceNames": [CONFIGURATION]}]), given(ROLE, subject)]


def leftovers() -> list[Json]:
    """Return the names of what only clusters without mutating policies have, in the order of its deletion elsewhere.

    The right to write the configuration goes first: an operator that still runs would restore what is deleted before.
    The role goes next, because the operator writes nothing without it, not even the Secret.
    """
    group, rbac = "admissionregistration.k8s.io/v1", f"{RBAC_GROUP}/v1"
    kinds = ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")
    found = [
        *((rbac, kind, "", ROLE) for kind in ("ClusterRoleBinding", "ClusterRole")),
        (group, "MutatingWebhookConfiguration", "", CONFIGURATION),
        *((group, kind, "", f"{name}-applied") for kind in kinds for name in _REQUIRED),
        ("v1", "Service", SYSTEM_NAMESPACE, SERVICE),
        ("v1", "Secret", SYSTEM_NAMESPACE, KEYS_OBJECT),
    ]
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, **({"namespace": space} if space else {})}}
        for version, kind, space, name in found
    ]


def service(meta: Json, selector: dict[str, str]) -> Json:
    """Return the Service by which the API server reaches the webhook.

    Args:
        meta: Labels of the operator's objects.
        selector: Of its pods.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**meta, "name": SERVICE, "namespace": SYSTEM_NAMESPACE},
        "spec": {
            "selector": selector,
            "ports": [{"name": "webhook", "port": SERVICE_PORT, "targetPort": "webhook", "protocol": "TCP"}],
        },
    }


def arguments() -> list[str]:
    """Return the arguments of the operator that make it serve the webhook in a Pod."""
    return ["--webhook-address", f"0.0.0.0:{PORT}", "--webhook-service", SERVICE]


def policies(subject: Json) -> list[Json]:
    """Return the mutating policies and their bindings, as they are installed elsewhere.

    Args:
        subject: The operator, as RBAC names it.
    """
    made = [
        *makers.everything(subject),
        *network.everything(subject),
        *bandwidth.bandwidth(),
        *podresources.everything(),
        *offloading.everything(),
        *slices.everything(subject),
        *contribution.everything(subject),
        *parts.everything(subject),
        *sandbox.everything(),
        *images.everything(),
        *claims.everything(),
        *approval.everything(subject),
    ]
    return condensed(narrowed([each for each in made if is_mutating(each)]))


def served(subject: Json) -> tuple[ServedMutation, ...]:
    """Return what the webhook serves: the policies themselves, compiled."""
    return mutations(policies(subject))

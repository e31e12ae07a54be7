"""The mutations that the webhook serves, and the answer to one AdmissionReview: pure.

    binding of a MutatingAdmissionPolicy ─► one webhook with the same rules, selectors and conditions
    AdmissionReview ─► reviewed(): its policy, evaluated by `policy/mutation.py` ─► AdmissionReview with a patch

The API server evaluates selectors and conditions, so it asks only about objects that a policy may change.

Source: Kubernetes, "Dynamic Admission Control" (request, response, matchConditions, reinvocation).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tenantry.api.errors import InputError
from tenantry.api.marks import MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.api.names import DNS_LABEL
from tenantry.controllers.installation.comparison import restricted
from tenantry.engine.plan import is_same_json
from tenantry.policy import mutation
from tenantry.policy.mutation import MutatingPolicy, MutationFacts

CONFIGURATION = "tenantry-mutations"
"""The name of the MutatingWebhookConfiguration."""

KEYS_OBJECT = "tenantry-webhook"
"""The name of the Secret with the keys, here because `keys` imports cryptography, which commands load only on use."""

ROLE = "tenantry-operator-webhook"
"""The ClusterRole with the operator's rights on it. It is installed, and owns what the operator writes."""

SERVICE_PORT = 443

SECONDS = 3
"""How long the API server waits for a response before it goes on without."""

NamespaceName = Annotated[str, Meta(pattern=f"^$|{DNS_LABEL}")]
"""Of a review, whose namespace becomes a part of a path."""

_REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
_encoder = msgspec.json.Encoder()


class WebhookPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the webhook is served.

    Args:
        address: `host:port` to listen on.
        service: The name of the Service in Tenantry's namespace by which the API server reaches it; "" if the API
            server reaches the address itself.
    """

    address: str
    service: str = ""

    @property
    def name(self) -> str:
        """Return the DNS name or IP address that its certificate is for."""
        if self.service:
            return f"{self.service}.{SYSTEM_NAMESPACE}.svc"
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def client(self) -> Json:
        """Return the clientConfig of webhooks, without the path."""
        if not self.service:
            return {"url": f"https://{self.address}"}
        return {"service": {"name": self.service, "namespace": SYSTEM_NAMESPACE, "port": SERVICE_PORT}}


class ServedMutation(msgspec.Struct, frozen=True, kw_only=True):
    """One binding of a mutating policy.

    Args:
        name: Of the binding, and of the path of its webhook.
        policy: The policy.
        reads_namespace: Whether an expression reads the namespace of the object.
        parameter: The name of the LimitRange that is its parameter; "" for none.
        parameter_namespace: Of that; "" for the namespace of the object.
        match: The fields of the webhook that decide which objects it is about.
    """

    name: str
    policy: MutatingPolicy
    reads_namespace: bool
    parameter: str
    parameter_namespace: str
    match: Json


class AskedMutation(msgspec.Struct, frozen=True):
    """The field `request` of an AdmissionReview.

    Args:
        uid: By which the API server knows the response.
        fields: All of its fields.
    """

    uid: str
    fields: Json

    @property
    def namespace(self) -> str:
        """Return the namespace of the object; "" for none."""
        return self.fields.get("namespace") or ""


async def no_mutations(_: object) -> Sequence[ServedMutation]:
    """Return the mutations of an operator that serves none."""
    return ()


def mutations(objects: Sequence[Json]) -> tuple[ServedMutation, ...]:
    """Return the mutations of policies, in the order of their bindings.

    Args:
        objects: Manifests with MutatingAdmissionPolicies and their bindings; others are ignored.

    Raises:
        UnsupportedExpression: A policy has an expression that is not evaluated here.
    """
    policies: dict[str, Json] = {
        each["metadata"]["name"]: each for each in objects if each["kind"] == "MutatingAdmissionPolicy"
    }
    compiled = {name: mutation.policy(each) for name, each in policies.items()}
    found: list[ServedMutation] = []
    for each in objects:
        if each["kind"] == "MutatingAdmissionPolicyBinding":
            name: str = each["spec"]["policyName"]
            reference: Json = each["spec"].get("paramRef", {})
            found.append(
                ServedMutation(
                    name=each["metadata"]["name"],
                    policy=compiled[name],
                    reads_namespace=b"namespaceObject" in _encoder.encode(policies[name]),
                    parameter=reference.get("name", ""),
                    parameter_namespace=reference.get("namespace", ""),
                    match=_match(policies[name]["spec"], each["spec"].get("matchResources", {})),
                )
            )
    return tuple(found)


def _match(policy: Json, binding: Json) -> Json:
    constraints: Json = policy["matchConstraints"]
    selectors = {key: binding[key] for key in ("namespaceSelector", "objectSelector") if key in binding}
    return {
        "rules": constraints["resourceRules"],
        "matchPolicy": constraints["matchPolicy"],
        **selectors,
        **({"matchConditions": policy["matchConditions"]} if "matchConditions" in policy else {}),
        "reinvocationPolicy": policy["reinvocationPolicy"],
    }


_NARROWING: Json = {"namespaceSelector": {}, "objectSelector": {}, "matchConditions": []}
"""The fields that exempt objects from a webhook, as they are where nothing is exempt."""


def is_as_written(live: Json | None, wanted: Json) -> bool:
    """Return whether the webhooks of a configuration are those of `configuration`, apart from defaults.

    Args:
        live: The configuration in the cluster; None for none.
        wanted: That of `configuration`.
    """
    found: list[Json] = (live or {}).get("webhooks") or []
    # A field that exempts objects has no defaults inside: whatever another client added to it counts.
    narrowed = [{key: each.get(key, empty) for key, empty in _NARROWING.items()} for each in found]
    expected = [{key: each[key] for key in _NARROWING} for each in wanted["webhooks"]]
    return is_same_json(narrowed, expected) and is_same_json(restricted(found, wanted["webhooks"]), wanted["webhooks"])


def configuration(served: Sequence[ServedMutation], place: WebhookPlace, path: str, authorities: bytes) -> Json:
    """Return the MutatingWebhookConfiguration.

    Args:
        served: The mutations.
        place: Where the webhook is.
        path: Begins the paths of all webhooks, with a slash.
        authorities: The certificates that the API server trusts there, PEM.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION, "labels": {MANAGED_BY: MANAGER}},
        "webhooks": [
            {
                "name": f"{each.name}.mutations.tenantry.dev",
                "clientConfig": {
                    **_client(place.client, f"{path}/{each.name}"),
                    "caBundle": base64.b64encode(authorities).decode(),
                },
                **_NARROWING,
                **each.match,
                # Policies refuse what was not changed: nothing depends on this process.
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "timeoutSeconds": SECONDS,
                "admissionReviewVersions": ["v1"],
            }
            for each in served
        ],
    }


def _client(client: Json, path: str) -> Json:
    if "url" in client:
        return {"url": f"{client['url']}{path}"}
    return {"service": {**client["service"], "path": path}}


def asked(body: bytes) -> AskedMutation:
    """Return what an AdmissionReview asks.

    Raises:
        InputError: The body is none.
    """
    try:
        review = msgspec.json.decode(body, type=dict[str, Any])
        fields = msgspec.convert(review.get("request"), dict[str, Any])
        msgspec.convert(fields.get("namespace", ""), NamespaceName)
        return AskedMutation(msgspec.convert(fields.get("uid"), str), fields)
    except msgspec.MsgspecError as error:
        raise InputError(f"the body is no AdmissionReview with a request and its uid: {error}") from error


def reviewed(served: ServedMutation, question: AskedMutation, namespace: Json | None, params: Json | None) -> bytes:
    """Return the AdmissionReview with the patch of a mutation, which always allows the request.

    Args:
        served: The mutation.
        question: What the API server asks.
        namespace: The namespace of the object; None if no expression reads it.
        params: The parameters; None for a policy without.

    Raises:
        EvaluationError: An expression has no value for this request.
        InputError: The request has no object.
    """
    fields = question.fields
    if not isinstance(fields.get("object"), dict):
        raise InputError("request.object must be an object")
    facts = MutationFacts(
        object=fields["object"],
        old_object=fields.get("oldObject"),
        request=fields,
        namespace=namespace,
        params=params,
    )
    operations = mutation.patched(served.policy, facts)
    response: Json = {"uid": question.uid, "allowed": True}
    if operations:
        patch = base64.b64encode(_encoder.encode(operations)).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return _encoder.encode({**_REVIEW, "response": response})

"""Webhooks and APIServices that an administrator of an API server configures, and what the API server says of them."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from testkit.api import Api, until

Json = dict[str, Any]

WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
SERVICES = Resource("", "v1", "services", "Service")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)


def configured(name: str, client: Json, *, seconds: int = 30) -> Json:
    """Return the configuration of a webhook for ConfigMaps with a label of its name."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    return {
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.example.com",
                "clientConfig": client,
                "rules": [rule],
                "objectSelector": {"matchLabels": {"hook": name}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": seconds,
            }
        ],
    }


async def told(inside: Api, name: str) -> str:
    """Return the message with which a webhook, once it is known, stops a ConfigMap."""
    found: list[str] = []

    async def refused() -> bool:
        body = msgspec.json.encode({"metadata": {"generateName": "m-", "labels": {"hook": name}}})
        try:
            await inside.client.request("POST", "/api/v1/namespaces/default/configmaps", body=body, attempts=1)
        except ApiError as error:
            found.append(str(error))
        return bool(found)

    await until(refused, f"the API server knows the webhook {name}")
    return found[0]

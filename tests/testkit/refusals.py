"""The API server's objection to a request, found by a dry run."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.kube import wire
from tenantry.kube.client import JSON, MERGE_PATCH
from testkit.api import UNCOUNTED, Api, until

Json = dict[str, Any]

_UNKNOWN = "no params found for policy binding"


async def refusal(person: Api, resource: Resource, value: Json, namespace: str, *, patch: str = "") -> str:
    """Return why a user may not create or change an object; "" if it is allowed.

    Args:
        person: The user's client.
        resource: The kind.
        value: The object, or the merge patch.
        namespace: Where.
        patch: The name of the object to change; "" to create one.
    """
    try:
        await tried(person, resource, value, namespace, patch=patch)
    except ApiError as error:
        return str(error)
    return ""


async def tried(person: Api, resource: Resource, value: Json, namespace: str, *, patch: str = "") -> Json:
    """Return the object as it would be stored, once the API server knows the namespace's rules and counts.

    Policies see a new parameter object a moment after it was written, and refuse all requests until then. So do
    ResourceQuotas with a key that Kubernetes has not counted yet.

    Raises:
        ApiError: The API server refuses it.
    """

    async def known() -> tuple[Json, ApiError | None] | None:
        try:
            return await _tried(person, resource, value, namespace, patch=patch), None
        except ApiError as error:
            return None if _UNKNOWN in str(error) or UNCOUNTED in str(error) else ({}, error)

    stored, error = await until(known, f"the API server knows the rules and counts of {namespace}")
    if error is not None:
        raise error
    return stored


async def _tried(person: Api, resource: Resource, value: Json, namespace: str, *, patch: str) -> Json:
    whole = value if patch else {"apiVersion": resource.api_version, "kind": resource.kind, **value}
    answer = await person.client.request(
        "PATCH" if patch else "POST",
        wire.path(resource, namespace, patch),
        query={"dryRun": "All"},
        body=msgspec.json.encode(whole),
        content_type=MERGE_PATCH if patch else JSON,
    )
    return msgspec.json.decode(answer)

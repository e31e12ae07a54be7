"""What the API server has against a request, without making it."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.kube import wire
from tenantry.kube.client import JSON, MERGE_PATCH
from tenantry.testing.api import Api

Json = dict[str, Any]


async def refusal(person: Api, resource: Resource, value: Json, namespace: str, *, patch: str = "") -> str:
    """Return why a person may not make an object, or change one; "" where they may.

    Args:
        person: Who tries.
        resource: The kind.
        value: The object, or what is merged into it.
        namespace: Where.
        patch: The name of the one to change; "" to make one.
    """
    try:
        await tried(person, resource, value, namespace, patch=patch)
    except ApiError as error:
        return str(error)
    return ""


async def tried(person: Api, resource: Resource, value: Json, namespace: str, *, patch: str = "") -> Json:
    """Return what would be stored.

    Raises:
        ApiError: Nothing would.
    """
    whole = value if patch else {"apiVersion": resource.api_version, "kind": resource.kind, **value}
    answer = await person.client.request(
        "PATCH" if patch else "POST",
        wire.path(resource, namespace, patch),
        query={"dryRun": "All"},
        body=msgspec.json.encode(whole),
        content_type=MERGE_PATCH if patch else JSON,
    )
    return msgspec.json.decode(answer)

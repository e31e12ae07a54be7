"""What the API server has against a request, without making it."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.model import Resource
from tenantry.kube import wire
from tenantry.kube.client import JSON, MERGE_PATCH
from testkit.api import Api, until

Json = dict[str, Any]

_UNKNOWN = "no params found for policy binding"
_UNCOUNTED = "status unknown for quota"


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
    """Return what would be stored, once the API server knows the rules of the namespace.

    Its policies learn of rules a moment after they were written, as of every object, and refuse all until then.

    Raises:
        ApiError: Nothing would.
    """

    async def known() -> tuple[Json, ApiError | None] | None:
        try:
            return await _tried(person, resource, value, namespace, patch=patch), None
        except ApiError as error:
            return None if _UNKNOWN in str(error) else ({}, error)

    stored, error = await until(known, f"the API server knows the rules of {namespace}")
    if error is not None:
        raise error
    return stored


async def counted(person: Api, resource: Resource, value: Json, namespace: str) -> Json:
    """Make an object, once the API server knows what the namespace's ResourceQuotas have counted so far.

    Kubernetes counts a moment after one was made or has limited more; until then it refuses what that limits.

    Raises:
        ApiError: It is refused for another reason.
    """

    async def made() -> Json | None:
        try:
            return await person.create(resource, value, namespace)
        except Forbidden as error:
            if _UNCOUNTED not in str(error):
                raise
            return None

    return await until(made, f"the quotas of {namespace} are counted")


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

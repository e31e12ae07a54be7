"""The user whom an explanation is about: every question is asked with this user's rights, never with more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Unauthorized, Unreachable
from tenantry.api.model import Json, Resource
from tenantry.kube import wire
from tenantry.policy.explain import hostwarning
from tenantry.policy.explain.refusal import Cause, of_refusal, told_by
from tenantry.views.discovery import Discovery

if TYPE_CHECKING:
    from tenantry.kube.client import ApiAnswer, Client

SELF_REVIEW = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
ACCESS_REVIEW = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
RULES_REVIEW = Resource(
    "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False
)
MANAGER = "tenantry-explain"


class DryRun(msgspec.Struct, frozen=True):
    """The result of a dry run: the object as the API server would store it, or what refuses it."""

    stored: Json | None
    refusal: Cause | None = None
    existed: bool = False
    host: tuple[Cause, ...] = ()
    """Inside a virtual control plane: what its host refuses, whatever is stored inside."""


class ActingUser:
    """The user whom the question is about.

    Args:
        client: Sends requests as this user.
        caller: Sends requests as the person who runs the command; the same client when no other user is named.
        user: The user's name.
        groups: The user's groups.
    """

    def __init__(self, client: Client, caller: Client, user: str, groups: tuple[str, ...]) -> None:
        self.client = client
        self.caller = caller
        self.user = user
        self.groups = groups
        self.kinds = Discovery(client)

    async def may(self, verb: str, resource: Resource, namespace: str, subresource: str = "") -> bool:
        """Return whether the user has a right. Every authenticated user may ask this."""
        attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
        attributes |= {"subresource": subresource} if subresource else {}
        answer = await post(self.client, ACCESS_REVIEW, {"spec": {"resourceAttributes": attributes}})
        return bool(answer["status"]["allowed"])

    async def dry_run(self, resource: Resource, namespace: str, value: Json, about: str) -> DryRun:
        """Create an object without storing it; one that exists already is tried under a generated name.

        Raises:
            Unreachable: There was no answer.
            Unauthorized: The credentials are wrong.
        """
        query = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": MANAGER}
        try:
            answer = await asked(self.client, resource, value, namespace, query=query)
            found = [hostwarning.read(each, about) for each in answer.warnings]
            host = tuple(cause for each in found if each is not None for cause in told_by(each))
            return DryRun(msgspec.json.decode(answer.body), host=host)
        except AlreadyExists:
            # The taken name hides all other causes of a refusal.
            metadata = {key: each for key, each in value.get("metadata", {}).items() if key != "name"}
            again = {**value, "metadata": {**metadata, "generateName": f"{MANAGER}-"}}
            return msgspec.structs.replace(await self.dry_run(resource, namespace, again, about), existed=True)
        except (Unreachable, Unauthorized):
            raise
        except ApiError as error:
            return DryRun(None, of_refusal(error.status, str(error), about))


@asynccontextmanager
async def acting_as(caller: Client, user: str, groups: Sequence[str]) -> AsyncGenerator[ActingUser]:
    """Yield the requester of a question: the named user, or the caller if user is "".

    Raises:
        Forbidden: The caller may not impersonate the user.
    """
    if not user:
        yield await _identified(caller, caller)
        return
    # Impersonation is part of a connection, so the user gets a client of its own.
    connection = msgspec.structs.replace(caller.connection, impersonate=user, impersonate_groups=tuple(groups))
    async with type(caller)(connection) as client:
        yield await _identified(client, caller)


async def _identified(client: Client, caller: Client) -> ActingUser:
    info = (await post(client, SELF_REVIEW, {}))["status"]["userInfo"]
    return ActingUser(client, caller, info["username"], tuple(info.get("groups") or ()))


async def readable(client: Client, resource: Resource, namespace: str = "default") -> set[str]:
    """Return the names of the objects of a kind that the user may read because a role names them.

    Args:
        client: The user's.
        resource: The kind.
        namespace: Of the objects; a review of any namespace also reports cluster-wide rights.
    """
    review = await post(client, RULES_REVIEW, {"spec": {"namespace": namespace}})
    return {
        name
        for rule in review["status"]["resourceRules"]
        if "get" in rule["verbs"] and resource.group in rule.get("apiGroups", ())
        if resource.plural in rule.get("resources", ())
        for name in rule.get("resourceNames", ())
    }


async def get(client: Client, path: str) -> Json:
    """Return the object at a path, of whatever kind."""
    return msgspec.json.decode(await client.request("GET", path))


async def post(
    client: Client, resource: Resource, value: Json, namespace: str = "", *, query: dict[str, str] | None = None
) -> Json:
    """POST an object and return what the API server has stored."""
    return msgspec.json.decode((await asked(client, resource, value, namespace, query=query)).body)


async def asked(
    client: Client, resource: Resource, value: Json, namespace: str = "", *, query: dict[str, str] | None = None
) -> ApiAnswer:
    """POST an object and return the answer, with its warnings."""
    body = wire.encode_json({"apiVersion": resource.api_version, "kind": resource.kind, **value})
    return await client.ask("POST", wire.path(resource, namespace), query=query, body=body)

"""What `tenantry explain denied` asks an API server: always as the one whom the question is about.

Who set a rule is looked up by whoever runs the command, too: it is they who are told.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tenantry.api import marks
from tenantry.api.errors import AlreadyExists, ApiError, Forbidden, InputError, NotFound, Unauthorized, Unreachable
from tenantry.api.kubernetes import LimitRange, Namespace
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import NAME, TenancyRules, TenancyRulesSpec
from tenantry.api.tenant import Tenant
from tenantry.kube import wire
from tenantry.policy.explain.refusal import Author, Cause, author_of, of_refusal, source_of

if TYPE_CHECKING:
    from tenantry.kube.client import Client

Json = dict[str, Any]

SELF = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
MAY_I = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
WRITTEN_IN = {kind.resource.kind: kind.resource for kind in (TenancyDefaults, Tenant, Subnamespace)}
"""The kinds that rules stand in."""

MANAGER = "tenantry-explain"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is around an object.

    Args:
        namespace: Its name; "" for a cluster-scoped object.
        labels: The namespace's.
        suspended: The tenant whose namespace it is, where that is suspended; "" where not, or nobody may read it.
        rules: Those in force there.
        limit_ranges: Of the namespace.
        reclaim_policies: StorageClass to what becomes of its volumes, as far as they may be read.
        notes: What could not be read.
    """

    namespace: str = ""
    labels: dict[str, str] = {}
    suspended: str = ""
    rules: TenancyRulesSpec = TenancyRulesSpec()
    limit_ranges: Sequence[Json] = ()
    reclaim_policies: dict[str, str] = {}
    notes: tuple[str, ...] = ()


class Tried(msgspec.Struct, frozen=True):
    """What became of an attempt: the object as it would be stored, or what is in its way."""

    stored: Json | None
    refusal: Cause | None = None
    existed: bool = False


class Asker:
    """Whom the question is about.

    Args:
        client: As them.
        own: As whoever runs the command; the same where nobody else was named.
        user: Their name.
        groups: Their groups.
    """

    def __init__(self, client: Client, own: Client, user: str, groups: tuple[str, ...]) -> None:
        self.client = client
        self.own = own
        self.user = user
        self.groups = groups
        self._kinds: dict[str, dict[str, Resource]] = {}
        self._authors: dict[str, Json | None] = {}
        self._around: dict[str, Surroundings] = {}

    async def resource(self, api_version: str, kind: str) -> Resource:
        """Return where objects of a kind are.

        Raises:
            InputError: The cluster has no such kind.
        """
        if api_version not in self._kinds:
            self._kinds[api_version] = await self._read_kinds(api_version)
        found = self._kinds[api_version].get(kind)
        if found is None:
            raise InputError(f"this cluster has no kind {kind!r} in {api_version!r}")
        return found

    async def _read_kinds(self, api_version: str) -> dict[str, Resource]:
        group, _, version = api_version.rpartition("/")
        try:
            found = await _json(self.client, f"/apis/{api_version}" if group else f"/api/{version}")
        except NotFound:
            return {}
        listed: list[Json] = found["resources"]
        return {
            each["kind"]: Resource(group, version, each["name"], each["kind"], namespaced=each["namespaced"])
            for each in listed
            if "/" not in each["name"]
        }

    async def may(self, verb: str, resource: Resource, namespace: str) -> bool:
        """Tell whether they have a right, by a question that everybody may ask."""
        attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
        answer = await _post(self.client, MAY_I, {"spec": {"resourceAttributes": attributes}})
        return bool(answer["status"]["allowed"])

    async def try_(self, resource: Resource, namespace: str, value: Json, about: str) -> Tried:
        """Try to make an object, without keeping it.

        Raises:
            Unreachable: There was no answer.
            Unauthorized: The credentials are wrong.
        """
        try:
            return Tried(await _dry_run(self.client, resource, namespace, value))
        except AlreadyExists:
            metadata = {k: v for k, v in value.get("metadata", {}).items() if k != "name"}
            again = {**value, "metadata": {**metadata, "generateName": "tenantry-explain-"}}
            tried = await self.try_(resource, namespace, again, about)
            return Tried(tried.stored, tried.refusal, existed=True)
        except (Unreachable, Unauthorized):
            raise
        except ApiError as error:
            return Tried(None, of_refusal(error.status, str(error), about))

    # -- around an object -------------------------------------------------------------------------

    async def around(self, namespace: str) -> Surroundings:
        """Return what is around the objects of a namespace, as far as they may read it."""
        if namespace not in self._around:
            self._around[namespace] = await self._read_around(namespace)
        return self._around[namespace]

    async def _read_around(self, name: str) -> Surroundings:
        notes: list[str] = []
        labels: dict[str, str] | None = None
        try:
            labels = (await self.client.get(Namespace, name)).metadata.labels
        except Forbidden:
            notes.append(f"{self.user!r} may not read the namespace {name!r}: its quota is left out")
        suspended = await self._suspended(name, labels)
        if suspended is None:
            notes.append(f"whether the tenant of {name!r} is suspended, which takes everybody's rights, is left out")
        rules = TenancyRulesSpec()
        try:
            rules = await self._rules(name, labels)
        except Forbidden:
            notes.append(f"{self.user!r} may not read the rules of {name!r}: what they say is left out")
        return Surroundings(
            namespace=name,
            labels=labels or {},
            suspended=suspended or "",
            rules=rules,
            limit_ranges=await self._listed(LimitRange.resource, name),
            reclaim_policies={
                each["metadata"]["name"]: each.get("reclaimPolicy", "Delete")
                for each in await self._listed(STORAGE_CLASSES, "")
            },
            notes=tuple(notes),
        )

    async def _suspended(self, namespace: str, labels: dict[str, str] | None) -> str | None:
        """Return the tenant of a namespace where it is suspended, "" where not; None where nobody here may read that.

        Who is kept out by a suspension may not read that it is one: whoever runs the command is asked, too.
        """
        if labels is None and self.own is not self.client:
            try:
                labels = (await self.own.get(Namespace, namespace)).metadata.labels
            except NotFound:
                return ""
            except Forbidden:
                return None
        if labels is None:
            return None
        return labels.get(marks.TENANT, "") if labels.get(marks.SUSPENDED) else ""

    async def _rules(self, namespace: str, labels: dict[str, str] | None) -> TenancyRulesSpec:
        try:
            return (await self.client.get(TenancyRules, NAME, namespace)).spec
        except NotFound:
            # It has none of its own: those of all tenants hold, if it is a tenant's.
            if labels is not None and marks.TENANT_UID not in labels:
                return TenancyRulesSpec()
            return (await self.client.get(TenancyRules, NAME, marks.SYSTEM_NAMESPACE)).spec

    async def _listed(self, resource: Resource, namespace: str) -> list[Json]:
        try:
            items: list[Json] = (await _json(self.client, wire.path(resource, namespace)))["items"]
        except ApiError:
            return []
        return items

    async def author(self, source: str, rule: str) -> Author | None:
        """Return who wrote a rule last; None where that may not be read."""
        if source not in self._authors:
            self._authors[source] = await self._written_in(source)
        found = self._authors[source]
        return author_of(found, rule) if found is not None else None

    async def _written_in(self, source: str) -> Json | None:
        named = source_of(source)
        resource = WRITTEN_IN.get(named.kind) if named is not None else None
        if named is None or resource is None:
            return None
        for client in dict.fromkeys((self.client, self.own)):
            try:
                return await _json(client, wire.path(resource, named.namespace, named.name))
            except (Forbidden, NotFound):
                continue
        return None


@asynccontextmanager
async def asking(own: Client, user: str, groups: Sequence[str]) -> AsyncGenerator[Asker]:
    """Give whom a question is about: a user, or whoever runs the command where none is named.

    Raises:
        Forbidden: Whoever runs the command may not impersonate the user.
    """
    if not user:
        yield await _known(own, own)
        return
    connection = msgspec.structs.replace(own.connection, impersonate=user, impersonate_groups=tuple(groups))
    async with type(own)(connection) as client:
        yield await _known(client, own)


async def _known(client: Client, own: Client) -> Asker:
    info = (await _post(client, SELF, {}))["status"]["userInfo"]
    return Asker(client, own, info["username"], tuple(info.get("groups") or ()))


async def _json(client: Client, path: str) -> Json:
    return msgspec.json.decode(await client.request("GET", path))


async def _post(client: Client, resource: Resource, value: Json) -> Json:
    body = wire.encode_json({"apiVersion": resource.api_version, "kind": resource.kind, **value})
    return msgspec.json.decode(await client.request("POST", wire.path(resource), body=body))


async def _dry_run(client: Client, resource: Resource, namespace: str, value: Json) -> Json:
    query = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": MANAGER}
    answer = await client.request("POST", wire.path(resource, namespace), query=query, body=wire.encode_json(value))
    return msgspec.json.decode(answer)

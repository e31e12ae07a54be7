"""The objects of files as the API server would store them: each is applied in a dry run.

    live object with kubectl's record of the last apply ─► the three-way merge of `kubectl apply` and Argo CD
    live object that a server-side apply wrote          ─► a server-side apply of the same manager, as of Flux
    any other live object                               ─► the fields of the file over those of the object
    none                                                ─► a creation

So defaults, rules of the schema and admission policies decide as they will later. An object in a namespace that does
not exist yet is taken as the file has it.

Source: kubectl, "Declarative Management of Kubernetes Objects", section "How apply calculates differences and merges
changes"; Kubernetes, "Server-Side Apply".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenantry.api.errors import ApiError, NotFound
from tenantry.api.marks import CLI_FIELD_MANAGER, FIELD_MANAGER
from tenantry.api.model import Json, KubernetesObject
from tenantry.engine.plan import StepAction
from tenantry.engine.preview import Preview, shown
from tenantry.engine.tasks import all_of
from tenantry.kube import wire
from tenantry.kube.client import APPLY_PATCH, MERGE_PATCH
from tenantry.views.manifests import WantedObject

if TYPE_CHECKING:
    from tenantry.kube.client import Client

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_AT_ONCE = 16


class AppliedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a file, before and after it is applied.

    Args:
        value: As it would be, with the fields that the operator knows.
        live: As it is; None if it does not exist.
        change: What the apply changes; None for nothing.
        refusal: Why the API server would refuse it; "" if it would not.
    """

    value: KubernetesObject
    live: Json | None
    change: Preview | None
    refusal: str = ""


async def apply_all(client: Client, wanted: Sequence[WantedObject]) -> list[AppliedObject]:
    """Return what an apply of each object would do, in their order; nothing is written.

    Raises:
        NotFound: The API server does not have Tenantry's kinds, or an object has gone meanwhile.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(each: WantedObject) -> AppliedObject:
        async with slots:
            return await _applied(client, each)

    return await all_of(one(each) for each in wanted)


async def _applied(client: Client, wanted: WantedObject) -> AppliedObject:
    value, resource, meta = wanted.value, wanted.value.resource, wanted.value.metadata
    path = wire.path(resource, meta.namespace, meta.name)
    try:
        live: Json | None = msgspec.json.decode(await client.request("GET", path), type=Json)
    except NotFound:
        live = None
    document = {key: inner for key, inner in wanted.document.items() if key != "status"}
    try:
        after = await _tried(client, wanted, document, live)
    except NotFound:
        # No refusal of this object: a missing namespace is none either, see `_tried`.
        raise
    except ApiError as error:
        refusal = f"{wanted.where}: {resource.kind} {value.key!r}: {error}"
        return AppliedObject(value=value, live=live, change=None, refusal=refusal)
    kept = msgspec.convert(after, type(value)) if after is not document else value
    return AppliedObject(value=kept, live=live, change=_change(wanted, live, after))


async def _tried(client: Client, wanted: WantedObject, document: Json, live: Json | None) -> Json:
    """Return the object as the API server would store it."""
    resource, meta = wanted.value.resource, wanted.value.metadata
    query = {"dryRun": "All", "fieldManager": CLI_FIELD_MANAGER}
    if live is None:
        try:
            answer = await client.request(
                "POST", wire.path(resource, meta.namespace), query=query, body=wire.encode_json(document)
            )
        except NotFound:
            if not meta.namespace:
                raise
            return document
        return msgspec.json.decode(answer, type=Json)
    path = wire.path(resource, meta.namespace, meta.name)
    recorded = live["metadata"].get("annotations", {}).get(LAST_APPLIED, "")
    manager = _applier(live)
    if not recorded and manager:
        query = {**query, "fieldManager": manager, "force": "true"}
        answer = await client.request(
            "PATCH", path, query=query, body=wire.encode_json(document), content_type=APPLY_PATCH
        )
        return msgspec.json.decode(answer, type=Json)
    patch = three_way(_recorded(recorded), document, live)
    answer = await client.request("PATCH", path, query=query, body=wire.encode_json(patch), content_type=MERGE_PATCH)
    return msgspec.json.decode(answer, type=Json)


def _recorded(text: str) -> Json:
    """Return kubectl's record of the last apply; {} if there is none, or it is not readable."""
    try:
        found: object = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return cast("Json", found) if isinstance(found, dict) else {}


def _applier(live: Mapping[str, object]) -> str:
    """Return the manager that applied an object last, other than the operator; "" for none."""
    meta = cast("Json", live["metadata"])
    fields: list[Json] = meta.get("managedFields") or []
    found = [
        (each.get("time", ""), each.get("manager", ""))
        for each in fields
        if each.get("operation") == "Apply" and not each.get("subresource") and each.get("manager") != FIELD_MANAGER
    ]
    return max(found)[1] if found else ""


def three_way(before: Mapping[str, object], wanted: Mapping[str, object], live: Mapping[str, object]) -> Json:
    """Return the JSON merge patch that `kubectl apply` sends for a custom kind.

    Fields that the last apply had and the file has no longer are removed. All other fields of the live object stay.

    Args:
        before: What was applied last.
        wanted: What the file has.
        live: The object as it is.
    """
    patch: Json = {key: None for key in before if key not in wanted and key in live}
    for key, value in wanted.items():
        there = live.get(key)
        if isinstance(value, dict):
            earlier = before.get(key)
            inner = three_way(
                cast("Json", earlier) if isinstance(earlier, dict) else {},
                cast("Json", value),
                cast("Json", there) if isinstance(there, dict) else {},
            )
            if inner or not isinstance(there, dict):
                patch[key] = inner
        elif key not in live or there != value:
            patch[key] = value
    return patch


def _change(wanted: WantedObject, live: Json | None, after: Json) -> Preview | None:
    resource, meta = wanted.value.resource, wanted.value.metadata
    was = _comparable(shown(resource, live)) if live is not None else None
    will = _comparable(shown(resource, after))
    if was == will:
        return None
    return Preview(
        action=StepAction.CREATE if was is None else StepAction.UPDATE,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        before=was,
        after=will,
    )


def _comparable(found: Json) -> Json:
    """Return an object without kubectl's own record."""
    metadata: Json = dict(found["metadata"])
    given: dict[str, str] = metadata.get("annotations") or {}
    annotations = {key: text for key, text in given.items() if key != LAST_APPLIED}
    metadata.pop("annotations", None)
    return {**found, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}

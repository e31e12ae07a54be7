"""Secrets with keys, which are issued once, whichever replica of the operator needs them first.

Secret ─► files that hold ─► issued, renewed, replaced ─► Secret, at the resourceVersion that was read
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects
from tenantry.kube import wire
from tenantry.kube.client import Client

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


async def find(client: Client, name: str) -> Json | None:
    """Return a Secret of the namespace of control planes; None if there is none."""
    try:
        return _json.decode(await client.request("GET", wire.path(objects.SECRETS, PROCESS_NAMESPACE, name)))
    except NotFound:
        return None


async def keep(
    client: Client,
    found: Json | None,
    secret: Callable[[Mapping[str, bytes]], Json],
    issue: Callable[[Mapping[str, bytes]], dict[str, bytes]],
) -> dict[str, bytes]:
    """Issue what is missing or due in a Secret, write it there, and return its files: only then may anything use them.

    Args:
        client: The operator's.
        found: The Secret as it is; None if there is none.
        secret: Returns the Secret with given files.
        issue: Returns the files as they should be, from those that hold. It runs in a thread.

    Raises:
        AlreadyExists: Another replica has written others meanwhile, and those hold.
        Conflict: As well.
    """
    known = objects.files_of(found) if found is not None else {}
    files = await asyncio.to_thread(issue, known)
    if files == known:
        return files
    wanted = secret(files)
    if found is None:
        # Not applied: that would replace those of another replica.
        body = wire.encode_json(wanted)
        await client.request("POST", wire.path(objects.SECRETS, PROCESS_NAMESPACE), body=body)
        return files
    gone = dict.fromkeys(known.keys() - files.keys())
    patch = {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "data": {**wanted["data"], **gone},
    }
    await client.merge_patch(objects.SECRETS, PROCESS_NAMESPACE, wanted["metadata"]["name"], patch)
    return files

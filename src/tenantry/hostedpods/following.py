"""Follows Pods in the namespace of control planes until they are as wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import cast

import msgspec

from tenantry.api.errors import ApiError, Gone, LocalError, Unreachable
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects, seenpods
from tenantry.hostedpods.seenpods import SeenPod
from tenantry.kube import watch, wire
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, WatchEvent

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 1.0, 30.0

log = logging.getLogger(__name__)
_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


async def ready(
    client: Client, selector: str, name: str, seconds: float, is_wanted: Callable[[SeenPod], bool] = lambda _: True
) -> list[SeenPod]:
    """Return the wanted Pods of a selector that are ready, once there is one and no other Pod is ready any more.

    It does not wait for all of them: the node of one may be away.

    Args:
        client: Of the cluster.
        selector: Of labels.
        name: What the message calls the Pod.
        seconds: The time for that.
        is_wanted: Returns whether a Pod is wanted.

    Raises:
        LocalError: None is ready in time, and why.
    """
    last: list[SeenPod] = []
    try:
        async with asyncio.timeout(seconds), aclosing(pods(client, selector)) as changes:
            async for found in changes:
                seen = [seenpods.seen(each) for each in found.values()]
                last = [each for each in seen if is_wanted(each)]
                serving = [each for each in last if each.is_ready and each.address]
                if serving and not any(each.is_ready for each in seen if not is_wanted(each)):
                    return serving
    except TimeoutError:
        pass
    problems = [each.problem for each in last if each.problem]
    why = (problems[0] if problems else "`kubectl logs` shows why") if last else "it does not exist yet"
    raise LocalError(f"Pod {name!r} in {PROCESS_NAMESPACE!r} is not ready after {seconds:.0f} s: {why}")


async def gone(client: Client, selector: str, name: str, seconds: float) -> None:
    """Return once no Pod of a selector is left; arguments as for `ready`.

    Raises:
        LocalError: One still ends.
    """
    try:
        async with asyncio.timeout(seconds), aclosing(pods(client, selector)) as changes:
            async for found in changes:
                if not found:
                    return
    except TimeoutError as error:
        raise LocalError(
            f"Pod {name!r} in {PROCESS_NAMESPACE!r} has not ended after {seconds:.0f} s: if its node is gone,"
            " delete the Node"
        ) from error


async def pods(client: Client, selector: str) -> AsyncGenerator[dict[str, Json]]:
    """Yield the Pods of a selector by name, now and after each change, for ever.

    The caller uses `aclosing`: a generator that is not closed keeps its connection.
    """
    query = {"labelSelector": selector}
    while True:
        listed = _json.decode(await client.request("GET", wire.path(objects.PODS, PROCESS_NAMESPACE), query=query))
        found = {each["metadata"]["name"]: each for each in listed["items"]}
        yield found
        changes = watch.watch(
            client,
            objects.PODS,
            resource_version=listed["metadata"]["resourceVersion"],
            selectors=query,
            namespace=PROCESS_NAMESPACE,
        )
        # It is listed again.
        with suppress(Gone, Unreachable):
            async with aclosing(cast("AsyncGenerator[list[WatchEvent]]", changes)):
                async for events in changes:
                    for event in events:
                        _take(found, event)
                    yield found


async def lists(client: Client, selector: str) -> AsyncGenerator[dict[str, Json]]:
    """Yield the Pods of a selector as `pods` does, also after errors of the API server; closed like it."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            async with aclosing(pods(client, selector)) as changes:
                async for found in changes:
                    pause = _FIRST_PAUSE_SECONDS
                    yield found
        except ApiError as error:
            log.warning("Pods cannot be followed", extra={"selector": selector, "error": str(error)})
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_SECONDS)


def _take(found: dict[str, Json], event: WatchEvent) -> None:
    pod: Json = _json.decode(event.object)
    name = pod["metadata"].get("name", "")
    if event.type is EventType.DELETED:
        found.pop(name, None)
    elif event.type is not EventType.BOOKMARK:
        found[name] = pod

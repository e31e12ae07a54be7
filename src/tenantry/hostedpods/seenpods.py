"""What Pods of hosted control planes report: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from tenantry.api.model import Json
from tenantry.hostedpods import objects


class SeenPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod of a control plane, as far as its start depends on it.

    Args:
        digest: See `objects.HASH`.
        address: Its IP address; "" for none yet.
        is_ready: Whether its API server is ready, and it does not end.
        ends: Whether it is being deleted.
        problem: Why it does not start; "" if nothing is known.
    """

    digest: str
    address: str
    is_ready: bool
    ends: bool
    problem: str = ""


def seen(found: Json) -> SeenPod:
    """Return what a Pod is."""
    about: Json = found.get("metadata", {})
    status: Json = found.get("status", {})
    conditions: dict[str, Json] = {each["type"]: each for each in status.get("conditions") or ()}
    ends = "deletionTimestamp" in about
    return SeenPod(
        digest=objects.digest_of(found),
        address=str(status.get("podIP", "")),
        is_ready=conditions.get("Ready", {}).get("status") == "True" and not ends,
        ends=ends,
        problem=_problem(found),
    )


def have_moved(pods: Iterable[SeenPod], known: Collection[str]) -> bool:
    """Return whether a Pod is gone that was found before, or another one is ready.

    Args:
        pods: The Pods of a control plane.
        known: The addresses of those that were found.
    """
    there = [each for each in pods if not each.ends]
    is_lost = not {*known} <= {each.address for each in there}
    return not known or is_lost or any(each.is_ready and each.address not in known for each in there)


def _problem(found: Json) -> str:
    status: Json = found.get("status", {})
    # In the order in which kubelet starts them: until the first ones run, the others only wait.
    states: list[Json] = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for each in states:
        waiting: Json | None = each.get("state", {}).get("waiting")
        if waiting is not None and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            ended: Json = each.get("lastState", {}).get("terminated") or {}
            told = waiting.get("message") or ended.get("message") or ""
            return f"container {each.get('name')}: {waiting['reason']}: {told}".rstrip(": ")
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return f"{each.get('reason')}: {each.get('message')}"
    return ""

"""The lower side of a mirror."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from tenantry.api.model import Json
from tenantry.engine.cluster import Cluster
from tenantry.engine.scope import WatchScope
from tenantry.engine.writer import Writer
from tenantry.mirror.nodenames import LowerNode
from tenantry.mirror.podroom import PodRoom


def _never() -> bool:
    return False


class LowerSide(msgspec.Struct, frozen=True, kw_only=True):
    """The lower side of a mirror.

    Args:
        cluster: Its caches have the marked objects of all mirrors.
        writer: Writes with rights in the namespace of the profile only.
        node: Returns a Node of the lower side by its name; None if there is none.
        nodes: The nodes of the lower side by their names, as last seen.
        reason: The reason of the condition and of the event of a refused pod.
        unfit_reason: The reason of a bound pod that fails because it cannot travel.
        lost_reason: The reason of a bound pod that fails because its lower pod is gone.
        lost_message: Its message.
        token_reason: The reason of the event about a bound pod that runs without the token of its ServiceAccount; ""
            for no event.
        is_silent: Returns whether the lower side has not answered for so long that bound pods are shown as not ready.
        silent_reason: The reason of their condition.
        silent_message: Its message.
        scope: The namespaces in which the marked objects are watched; None for all.
        room: The quota of the lower side, if it follows pods; None if it does not.
    """

    cluster: Cluster
    writer: Writer
    node: Callable[[str], Awaitable[Json | None]]
    nodes: Mapping[str, LowerNode]
    reason: str
    unfit_reason: str = "NotMirrored"
    lost_reason: str = "Lost"
    lost_message: str = "the pod was deleted where it ran: its controller, if it has one, replaces it"
    token_reason: str = ""
    is_silent: Callable[[], bool] = _never
    silent_reason: str = "Silent"
    silent_message: str = "nothing is known of the pod where it runs; it may still run"
    scope: WatchScope | None = None
    room: PodRoom | None = None

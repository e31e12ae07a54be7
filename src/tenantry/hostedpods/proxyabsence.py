"""Whether the endpoint proxy before control planes in Pods is away, so that no client reaches any of them.

Pods of the proxy ─► ProxyAbsence ─► message, a while after the last one was ready; "" again at once
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import seenpods
from tenantry.hostedpods.seenpods import SeenPod
from tenantry.install import planeproxy


class ProxyAbsence:
    """Why no client can connect, according to the Pods of the proxy.

    Args:
        seconds: How long none may be ready before it is reported: one that was evicted is replaced in that time.
        changed: Called when the message has changed.
    """

    def __init__(self, seconds: float, changed: Callable[[], None]) -> None:
        self._seconds = seconds
        self._changed = changed
        self._pods: list[SeenPod] = []
        self._timer: asyncio.TimerHandle | None = None
        self.message = ""
        """Why no client can connect, and what to do; "" if nothing is known."""

    def take(self, pods: Iterable[Json]) -> None:
        """Take over the Pods of the proxy that there are now."""
        self._pods = [seenpods.seen(each) for each in pods]
        if any(each.is_ready for each in self._pods):
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._set("")
        elif self._timer is None and not self.message:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._report)

    def _report(self) -> None:
        # It stays until a Pod is ready: kubelet changes its reasons with each try.
        self._timer = None
        self._set(_message(self._pods))

    def _set(self, message: str) -> None:
        if message != self.message:
            self.message = message
            self._changed()


def _message(pods: Sequence[SeenPod]) -> str:
    name, where = planeproxy.NAME, PROCESS_NAMESPACE
    labels = ",".join(f"{key}={value}" for key, value in planeproxy.SELECTOR.items())
    if not pods:
        return (
            f"Deployment {name!r} in {where!r} has no Pod: `kubectl describe deployment -n {where} {name}` shows why,"
            " and `tenantry install --virtual-control-planes` creates it if it is gone"
        )
    problem = next((f" ({each.problem})" for each in pods if each.problem), "")
    return (
        f"no Pod of Deployment {name!r} in {where!r} is ready{problem}:"
        f" `kubectl describe pods -n {where} -l {labels}` shows why"
    )

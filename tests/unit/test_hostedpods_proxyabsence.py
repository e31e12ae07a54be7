"""Control planes in Pods have no clients while no Pod of the endpoint proxy is ready (H01)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenantry.api import reasons
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import status
from tenantry.engine.conditions import find
from tenantry.hostedpods import proxies
from tenantry.hostedpods.proxies import EndpointProxies
from tenantry.hostedpods.proxyabsence import ProxyAbsence
from tenantry.hostedpods.proxysession import ToldPlane


def pod(*, is_ready: bool, waiting: str = "") -> Json:
    """Return a Pod of the proxy, whose container may wait for a reason."""
    state: Json = {"waiting": {"reason": waiting, "message": "no such image"}} if waiting else {"running": {}}
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {
        "metadata": {},
        "status": {"conditions": conditions, "containerStatuses": [{"name": "proxy", "state": state}]},
    }


class SeenAbsence:
    """An absence that is reported after some seconds, and the messages that it has had."""

    def __init__(self, seconds: float) -> None:
        self.messages: list[str] = []
        self.changed = asyncio.Event()
        self.absence = ProxyAbsence(seconds, self._note)

    def _note(self) -> None:
        self.messages.append(self.absence.message)
        self.changed.set()


async def test_a_proxy_that_is_replaced_in_time_is_not_reported() -> None:
    """H01: a condition does not change while one node replaces another."""
    seen = SeenAbsence(3600.0)
    for pods in ([pod(is_ready=True)], [], [pod(is_ready=False)], [pod(is_ready=True)]):
        seen.absence.take(pods)
    assert seen.messages == []
    assert seen.absence._timer is None  # pyright: ignore[reportPrivateUsage] - nothing is reported later


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], "Deployment 'hosted-proxy' in 'tenantry-vcp' has no Pod: "),
        ([pod(is_ready=False)], "no Pod of Deployment 'hosted-proxy' in 'tenantry-vcp' is ready: `kubectl describe"),
        ([pod(is_ready=False, waiting="ErrImagePull")], " is ready (container proxy: ErrImagePull: no such image): "),
    ],
)
async def test_a_proxy_that_is_away_is_reported_until_it_is_back(pods: list[Json], words: str) -> None:
    """H01: with what to do, and without each new reason of kubelet."""
    seen = SeenAbsence(0.0)
    seen.absence.take(pods)
    await seen.changed.wait()
    seen.absence.take([pod(is_ready=False, waiting="ImagePullBackOff")])
    seen.absence.take([pod(is_ready=True)])
    first, last = seen.messages
    assert words in first
    assert "`kubectl describe " in first
    assert not last


async def test_control_planes_are_looked_at_when_the_proxy_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H01: nothing else happens to one whose API server runs."""
    monkeypatch.setattr(proxies, "SECONDS", 0.0)
    known = EndpointProxies(None, tmp_path)  # pyright: ignore[reportArgumentType] - it lists no Pods here
    known.note(ToldPlane(uid="a", name="a", port=20000, phase="Ready", certificate="c", key="k"))
    moved: asyncio.Queue[str] = asyncio.Queue()
    known.moved.add(moved.put_nowait)
    known._absence.take([])  # pyright: ignore[reportPrivateUsage] - in place of a list of Pods
    assert await moved.get() == "a"
    assert "hosted-proxy" in known.absence


def test_a_control_plane_without_clients_is_not_ready() -> None:
    """H01: the operator goes on by itself when the proxy is back."""
    found = VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme"))
    problem = status.unreachable("no Pod is ready")
    written = status.compute(found, problem, endpoint="", now="2026-01-01T00:00:00Z")
    ready, passing = (find(written.conditions, each) for each in (reasons.READY, reasons.RECONCILING))
    assert ready is not None
    assert passing is not None
    assert (ready.status, ready.reason) == ("False", reasons.UNREACHABLE)
    assert ready.message == passing.message == "its clients cannot connect: no Pod is ready"
    assert status.unreachable("") is None

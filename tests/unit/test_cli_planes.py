"""What the commands about control planes refuse, and what a refusal leaves behind (E15, H01, H02)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tenantry.api import reasons
from tenantry.api.errors import InputError, TenantryError
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import session
from tenantry.cli.vcp import vcp
from tenantry.kube.client import ATTEMPTS
from tenantry.kube.transport import JSON
from testkit.model import World
from testkit.treeworld import world_of
from testkit.upgradeworld import Workshop
from testkit.worldclient import WorldClient

UNREAD = ("--kubeconfig", "nowhere", "-n", "acme")
"""A file that is not read, because a World answers the requests."""

PLANES = VirtualControlPlane.resource


class OperatedClient(WorldClient):
    """A client of a cluster with an operator, which acts on each change before the client goes on.

    Args:
        world: It answers the requests.
        operate: What the operator does after a change.
    """

    def __init__(self, world: World, operate: Callable[[], object]) -> None:
        super().__init__(world, lambda: "none")
        self._operate = operate

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
    ) -> bytes:
        """Answer a request; see `Client.request`."""
        answer = await super().request(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts
        )
        if method != "GET":
            # In a thread, because the operator of a test has an event loop of its own.
            await asyncio.to_thread(self._operate)
        return answer


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command of `tenantry vcp` with a client in place of a connection."""

    def call(client: WorldClient, *words: str) -> Result:
        def work(_target: object, todo: Callable[[WorldClient], Any], **_options: object) -> object:
            return asyncio.run(todo(client))

        monkeypatch.setattr(session, "run", work)
        return CliRunner().invoke(vcp, [*words, *UNREAD])

    return call


def never_started() -> World:
    """Return a tenant's namespace with a control plane that has no room in the quota."""
    world = world_of()
    meta = ObjectMeta(name="web", namespace="acme", generation=1)
    world.create(VirtualControlPlane(metadata=meta))
    ready = Condition(
        type=reasons.READY,
        status=ConditionStatus.FALSE,
        reason=reasons.QUOTA_INSUFFICIENT,
        message="requests.cpu: 50m requested, 10m available",
        observed_generation=1,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    status = {"phase": "Starting", "conditions": [ready]}
    world.patch(PLANES, "acme/web", {"status": msgspec.to_builtins(status)})
    return world


@pytest.mark.parametrize(
    "words",
    [
        ("snapshot", "web"),
        ("restore", "web", "--from", "some.snapshot", "--yes"),
        ("rotate", "web", "--yes"),
        ("upgrade", "web"),
        ("sleep", "web"),
        ("wake", "web"),
    ],
)
def test_a_control_plane_that_never_started_is_refused_with_the_reason(
    run: Callable[..., Result], words: tuple[str, ...]
) -> None:
    """H01: it handles no requests, so that a command would only wait for its deadline."""
    world = never_started()
    before = world.get(PLANES, "acme/web")
    done = run(WorldClient(world, lambda: "none"), *words, "--timeout", "0s")
    assert isinstance(done.exception, InputError)
    assert "has not started yet: QuotaInsufficient: requests.cpu: 50m requested" in str(done.exception)
    assert "`tenantry vcp wait web -n acme` waits" in str(done.exception)
    assert world.get(PLANES, "acme/web") == before


def running(version: str) -> Workshop:
    """Return a control plane that has been usable with a version."""
    workshop = Workshop(version)
    workshop.settle()
    workshop.world.patch(PLANES, "acme/web", {"status": {"kubeconfigSecret": "web-kubeconfig"}})
    return workshop


def test_a_refused_restore_of_an_earlier_version_leaves_the_version(run: Callable[..., Result]) -> None:
    """H02: with the earlier version in the spec, each later restore would be one to that version."""
    workshop = running("1.36")
    client = OperatedClient(workshop.world, workshop.settle)
    name = asyncio.run(workshop.forge.take("uid")).name
    refused = run(client, "restore", "web", "--from", name, "--version", "1.35", "--yes")
    assert isinstance(refused.exception, TenantryError)
    assert "the snapshot is of Kubernetes 1.36.3" in str(refused.exception)
    assert workshop.get().spec.version == "1.36"
    assert "spec.version" not in workshop.told()[1]
    again = run(client, "restore", "web", "--from", name, "--yes", "--timeout", "0s")
    assert workshop.get().status.last_restore.snapshot == name, again.output


def test_a_restore_corrects_an_earlier_version_that_another_one_has_left(run: Callable[..., Result]) -> None:
    """H02: a restore whose command was ended may leave an earlier version, which would be part of the next."""
    workshop = running("1.36")
    name = asyncio.run(workshop.forge.take("uid")).name
    workshop.change("1.35", restore="absent.snapshot")
    workshop.settle()
    run(OperatedClient(workshop.world, workshop.settle), "restore", "web", "--from", name, "--yes", "--timeout", "0s")
    assert workshop.get().status.last_restore.snapshot == name
    assert workshop.get().spec.version == "1.36"


@pytest.mark.parametrize(
    ("version", "said"), [("1.36", "a restore only goes back"), ("1.2", "is not a version of Kubernetes")]
)
def test_a_restore_refuses_a_version_that_is_not_earlier(run: Callable[..., Result], version: str, said: str) -> None:
    """H02: the refused restore would be followed by an upgrade."""
    workshop = running("1.35")
    name = asyncio.run(workshop.forge.take("uid")).name
    client = OperatedClient(workshop.world, workshop.settle)
    done = run(client, "restore", "web", "--from", name, "--version", version, "--yes")
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
    assert workshop.get().spec.version == "1.35"
    assert workshop.get().spec.snapshots.restore == ""

"""H04, X03: what `tenantry node contribute --to` does where the operator offers no token, or it cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from tenantry.api import reasons
from tenantry.api.contributednode import ContributedNode, ContributedNodeStatus
from tenantry.api.dedicatedcluster import DedicatedCluster, DedicatedClusterStatus
from tenantry.api.errors import InputError, NotFound, RetryableError
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.cli.local import outsidenode
from tenantry.cli.local.outsidenode import OfferedMachine
from tenantry.cli.target import Target

ADDRESSES, RANGES = ["192.0.2.7"], ["10.200.1.0/24"]
META = ObjectMeta(name="prod", namespace="acme", uid="p-1", generation=1)


class _Cluster:
    """A cluster whose operator reports one thing of each machine.

    Args:
        told: What it reports; the name is that of the entry.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, told: ContributedNodeStatus) -> None:
        self.entries: tuple[ContributedNode, ...] = ()
        self.added: list[str] = []
        self._told = told
        monkeypatch.setattr(outsidenode.session, "run", self._run)
        monkeypatch.setattr(outsidenode, "_change", self._change)
        monkeypatch.setattr(outsidenode, "_until", self._until)

    def _run(self, _: Target, work: Callable[[object], Coroutine[object, object, OfferedMachine]]) -> OfferedMachine:
        return asyncio.run(work(self))

    async def get(self, kind: type, name: str, namespace: str) -> object:
        """Return the cluster, or its control plane."""
        assert (name, namespace) == ("prod", "acme")
        if kind is VirtualControlPlane:
            return VirtualControlPlane(metadata=META, status=VirtualControlPlaneStatus(version="1.35.4"))
        return self._found()

    def _found(self) -> DedicatedCluster:
        told = tuple(
            ContributedNodeStatus(
                name=each.name, token=self._told.token, reason=self._told.reason, message=self._told.message
            )
            for each in self.entries
        )
        return DedicatedCluster(metadata=META, status=DedicatedClusterStatus(observed_generation=1, contributed=told))

    async def _change(
        self,
        _client: object,
        _namespace: str,
        _name: str,
        change: Callable[[tuple[ContributedNode, ...]], tuple[ContributedNode, ...]],
        *,
        forced: bool,
    ) -> None:
        del forced
        self.entries = change(self.entries)
        self.added += [each.name for each in self.entries]

    async def _until(
        self, _client: object, _namespace: str, _name: str, holds: Callable[[DedicatedCluster], bool]
    ) -> DedicatedCluster:
        if not holds(self._found()):
            raise TimeoutError
        return self._found()

    def contribute(self) -> None:
        """Contribute a machine."""
        outsidenode.contribute(Target(), "acme/prod", ADDRESSES, RANGES, forced=False)


def _told(*, token: str = "", reason: str = "", message: str = "") -> ContributedNodeStatus:
    return ContributedNodeStatus(name="outside-abc123", token=token, reason=reason, message=message)


@pytest.mark.parametrize("target", [Target(), Target(local_name="default")])
@pytest.mark.parametrize(("addresses", "ranges"), [(ADDRESSES, []), ([], RANGES)])
def test_an_address_without_a_range_is_refused_and_not_ignored(
    target: Target, addresses: list[str], ranges: list[str]
) -> None:
    with pytest.raises(InputError, match="--address and --pod-cidr, both"):
        outsidenode.contribute(target, "acme/prod", addresses, ranges, forced=False)


@pytest.mark.parametrize("reason", [reasons.INVALID_SPEC, reasons.NO_NODE_ENDPOINT])
def test_a_refused_machine_leaves_no_entry(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """The reason decides: messages may change."""
    there = _Cluster(monkeypatch, _told(reason=reason, message="any words"))
    with pytest.raises(InputError, match="any words"):
        there.contribute()
    assert there.added
    assert not there.entries


def test_a_message_alone_refuses_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    there = _Cluster(
        monkeypatch, _told(reason=reasons.NODE_JOINING, message="spec.contributed has no endpoint for nodes")
    )
    with pytest.raises(RetryableError, match="has made no token") as raised:
        there.contribute()
    (kept,) = there.entries
    assert f"tenantry node take-back {kept.name} --from acme/prod" in str(raised.value)


def test_an_entry_whose_token_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is random: without it, a user would not know what to take back."""
    there = _Cluster(monkeypatch, _told(token="abcdef"))

    async def lost(*_: object) -> tuple[str, str]:
        raise NotFound("the Secret is gone", status=404)

    monkeypatch.setattr(outsidenode, "_token", lost)
    with pytest.raises(RetryableError, match="the Secret is gone") as raised:
        there.contribute()
    (kept,) = there.entries
    assert f"tenantry node take-back {kept.name} --from acme/prod" in str(raised.value)


def test_an_entry_without_a_kubeconfig_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    there = _Cluster(monkeypatch, _told(token="abcdef"))

    async def unusable(*_: object) -> tuple[str, str]:
        raise InputError("the control plane is not usable yet")

    monkeypatch.setattr(outsidenode, "_token", unusable)
    with pytest.raises(InputError, match="not usable yet"):
        there.contribute()
    assert there.added
    assert not there.entries

"""Where hosted control planes run: on this machine, or in pods. The controllers know only this protocol."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from tenantry.hosting.authorities import AuthorityFiles
from tenantry.hosting.noderuntime import NodeEndpoint, NodeRuntime
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import SnapshotStore
from tenantry.hosting.versions import HostedVersion
from tenantry.kube.kubeconfig import Connection

RESPONSE_BYTES = 16 * 2**20
"""The longest response that Tenantry reads of a hosted control plane: its users may route a kind to a program of their
own, whose response has no end. An object has at most 2 MiB, and a longer list comes in smaller pages."""


class ServerEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where pods reach an API server.

    Args:
        address: An IP address.
        port: The port there.
        is_of_operator: The operator, on the same machine, has this address, too.
    """

    address: str
    port: int
    is_of_operator: bool = False


class ReachedPlane(msgspec.Struct, frozen=True, kw_only=True):
    """Where a hosted control plane is reached, which may sleep.

    Args:
        kubeconfig: The kubeconfig of the identity `plane.OWNER`.
        from_pods: Where pods reach its API server; None if no pod can.
    """

    kubeconfig: str
    from_pods: ServerEndpoint | None = None


class RunningPlane(ReachedPlane, frozen=True, kw_only=True):
    """A hosted control plane that is ready for requests.

    Args:
        connection: How Tenantry reaches it, as a member of system:masters; it reads `RESPONSE_BYTES` at most.
        server: The URL of its API server for users.
        unlimited: Why the limits of its process are not enforced; "" if they are, or if it has none.
        version: The patch release of Kubernetes that its API server reports, as in "1.36.3".
        renewal: When it has to be started again, which renews its certificates; None for never.
    """

    connection: Connection
    server: str
    unlimited: str = ""
    version: str = ""
    renewal: dt.datetime | None = None


class Placement(Protocol):
    """Runs hosted control planes in one place."""

    def versions(self) -> tuple[HostedVersion, ...]:
        """Return the versions of Kubernetes that control planes can have here, the oldest first."""
        ...

    async def provide(self, version: str) -> None:
        """Check that a control plane of a version can be started here.

        Args:
            version: The minor version, as in "1.36".

        Raises:
            TenantryError: It cannot: what to do.
        """
        ...

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """Start a control plane unless it runs, and return it once it is ready.

        Its certificates are renewed. Its process is started anew if an authority or a key of it is replaced.

        Raises:
            TenantryError: It cannot be started, or is not ready in time: why, and what to do.
        """
        ...

    async def stop(self, uid: str) -> None:
        """End a control plane, and keep its data, its keys and its port; one that does not run needs nothing.

        Only `start` starts it again, whatever else starts anew meanwhile.

        Raises:
            TenantryError: It may still run.
        """
        ...

    async def follow(self, has: Callable[[str], bool], moved: Callable[[str], None]) -> None:
        """Serve some control planes for the place until cancelled; then, others may do it.

        Args:
            has: Returns whether a control plane, by its uid, is one of them.
            moved: Called with the uid of one that has to be looked at again: see `has_moved`, `endpoint` and
                `unreachable`.
        """
        ...

    def endpoint(self, uid: str) -> ServerEndpoint | None:
        """Return where pods reach a control plane now, also one that is stopped; None if that does not change."""
        ...

    async def open(self, uid: str, *, is_open: bool) -> None:
        """Let clients reach a control plane, or refuse them and end their connections, also after each start.

        Tenantry itself reaches it in any case.

        Args:
            uid: The uid of the control plane, which may not have been started yet.
            is_open: Whether clients reach it.

        Raises:
            TenantryError: Connections may still be open, or clients may still be refused.
        """
        ...

    async def kubeconfig(self, uid: str) -> str:
        """Return the kubeconfig of the users of a control plane, which may be stopped; "" for one that never ran here.

        Raises:
            TenantryError: It cannot be read.
        """
        ...

    def connected(self, uid: str) -> AbstractAsyncContextManager[None]:
        """Lead the sockets of a control plane that runs to those of this process, while the context is open."""
        ...

    async def has_moved(self, uid: str) -> bool:
        """Return whether a control plane is not where `start` has found it: it has to be started again.

        Raises:
            TenantryError: This cannot be known now.
        """
        ...

    def unreachable(self, uid: str) -> str:
        """Return why clients cannot connect to a control plane that runs, and what to do; "" if nothing is known.

        Args:
            uid: The uid of the control plane; `follow` reports a change by `moved`.
        """
        ...

    async def knocked(self, uid: str) -> None:
        """Return once a client connects to a control plane whose process does not run; meanwhile the client is held."""
        ...

    def activity(self, uid: str) -> tuple[Path, ...]:
        """Return the paths of the sockets on which the processes of a control plane report their activity."""
        ...

    async def remove(self, uid: str) -> None:
        """End a control plane and delete its data and its keys; one that is gone needs nothing.

        Raises:
            TenantryError: Something of it is left.
        """
        ...

    @property
    def snapshots(self) -> SnapshotStore:
        """Return what takes and keeps the snapshots of the control planes here."""
        ...

    @property
    def snapshot_kinds(self) -> frozenset[SnapshotPlaceKind]:
        """Return the kinds of destinations that snapshots of the control planes here can have."""
        ...

    def snapshots_at(self, place: SnapshotPlace) -> SnapshotStore:
        """Return what takes the snapshots of the control planes here, and keeps them at a destination.

        Raises:
            InputError: Its kind is not one of `snapshot_kinds`.
        """
        ...

    @property
    def authorities(self) -> AuthorityFiles:
        """Return what reads the authorities of the control planes here, and puts copies back."""
        ...

    async def encryption(self, uid: str) -> bytes:
        """Return `encryption.FILE` of a control plane as it was started last; b"" for one without.

        Raises:
            TenantryError: It cannot be read.
        """
        ...

    def node_runtime(self) -> NodeRuntime | None:
        """Return what the real nodes here can run; None if there are none."""
        ...

    def node_endpoint(self, uid: str) -> NodeEndpoint | None:
        """Return where real nodes reach a control plane that runs; None if none can.

        Raises:
            TenantryError: This cannot be known now.
        """
        ...

    def gate(self, uid: str) -> Path:
        """Return the path of the socket of a control plane's gate."""
        ...

    def admission(self, uid: str) -> Path:
        """Return the path of the socket of a control plane's admission step."""
        ...

    def forwarded(self, uid: str) -> Path:
        """Return the path of the socket of the API group that is answered for a control plane."""
        ...

    async def front_proxy_tls(self, uid: str) -> ssl.SSLContext:
        """Return the context in which the gate plays an aggregated API of a control plane.

        Only its API server has a certificate that the context admits: the one by which it forwards requests.

        Args:
            uid: The uid of the control plane, which runs.
        """
        ...

    async def kubelet_tls(self, uid: str, addresses: Sequence[str], context: ssl.SSLContext | None) -> ssl.SSLContext:
        """Return the context in which the gate answers at the addresses of nodes, in place of their kubelets.

        Args:
            uid: The uid of the control plane.
            addresses: Of all its nodes.
            context: The context so far, which gets the new certificate; None for a new one.
        """
        ...

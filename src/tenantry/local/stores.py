"""Attaches hosted control planes on this machine to their datastores.

HostedStore ─► etcd: the process (etcds.py), a user, a role and a certificate for one prefix, a link to its socket
            ─► SQL:  a link to the socket of the server, or a forwarder (forwards.py); a file with the password

`store.json` in the folder of the control plane says what it is attached to; it is written first and removed last.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.hosting import stores
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import HostedStore, StoreKind
from tenantry.local import build, etcdadmin, etcds, forwards, pki
from tenantry.local.etcds import EtcdProcess
from tenantry.local.files import explain, make_private_folder, write_private
from tenantry.local.forwards import ForwardProcess
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import read_spec

_RECORD = "store.json"
_SECONDS = 60.0
_REMOVE_SECONDS = 660.0
_ETCD = (StoreKind.SHARED_ETCD, StoreKind.OWN_ETCD)


class AttachedStore(msgspec.Struct, frozen=True, kw_only=True):
    """What a control plane is attached to.

    Args:
        kind: The kind of its datastore.
        program: The path of the program that administers it.
    """

    kind: StoreKind
    program: str


class _Named(msgspec.Struct, frozen=True):
    name: str


class LocalStores:
    """Attaches control planes to datastores, and detaches them.

    Args:
        paths: The cluster's.
        reload: Has the supervisor read the folder of the cluster again.
        ready: Waits until a component is ready.
    """

    def __init__(
        self, paths: ClusterPaths, reload: Callable[[], Awaitable[object]], ready: Callable[[str], Awaitable[object]]
    ) -> None:
        self._paths = paths
        self._reload = reload
        self._ready = ready
        # Several control planes start at once, and make one etcd with one authority.
        self._lock = asyncio.Lock()

    async def attach(self, plane: HostedPlane, folder: Path, program: Path) -> None:
        """Bring the datastore of a control plane to where its process can use it.

        Args:
            plane: The control plane.
            folder: Its folder.
            program: The path of the program of hosted control planes.

        Raises:
            LocalError: The datastore is not to be reached, and why.
            InputError: The control plane has another kind of datastore already, or its settings are wrong.
        """
        kind = plane.store.kind
        await asyncio.to_thread(_record, folder, AttachedStore(kind=kind, program=str(program)))
        if kind in _ETCD:
            await self._attach_etcd(plane, folder, program)
        elif kind is StoreKind.SQL:
            is_elsewhere = await asyncio.to_thread(_attach_sql, plane, folder)
            await self._reload()
            if is_elsewhere:
                await self._ready(f"{forwards.PREFIX}{plane.name}")
            else:
                await asyncio.to_thread(_link_sql, plane.store, folder)

    async def detach(self, uid: str, folder: Path) -> None:
        """Delete what a control plane has in its datastore, and its rights there; a second time does nothing.

        What is in an SQL server stays, and is refused to other control planes.

        Args:
            uid: The uid of the control plane, whose process has ended.
            folder: Its folder.

        Raises:
            LocalError: The datastore is not to be reached, and why.
        """
        record = await asyncio.to_thread(_recorded, folder)
        for name in (forwards.PROCESS, forwards.STOPPED):
            (folder / name).unlink(missing_ok=True)
        if record is None or record.kind not in _ETCD:
            await self._reload()
            return
        is_shared = record.kind is StoreKind.SHARED_ETCD
        at = etcds.folder(self._paths, uid, is_shared=is_shared)
        if not is_shared:
            for name in (etcds.PROCESS, etcds.STOPPED):
                (at / name).unlink(missing_ok=True)
            await self._reload()
            return
        if not (at / etcds.PROCESS).exists():
            return  # it was never attached
        await self._ready(f"{etcds.PREFIX}{etcds.SHARED}")
        arguments = ("remove", stores.user(uid), stores.prefix(uid))
        await etcdadmin.administer(Path(record.program), at, *arguments, seconds=_REMOVE_SECONDS)
        for kind in ("crt", "key"):
            (at / "pki" / f"{stores.user(uid)}.{kind}").unlink(missing_ok=True)

    async def rest(self, uid: str, folder: Path) -> None:
        """End what runs only for a control plane that does not run: its own etcd, its forwarder.

        `attach` starts it again.

        Args:
            uid: The uid of the control plane, whose process has ended.
            folder: Its folder.

        Raises:
            LocalError: It may still run.
        """
        beside = await asyncio.to_thread(self._beside, uid, folder)
        if beside is None:
            return
        running, stopped, _ = beside
        with suppress(FileNotFoundError):
            running.rename(stopped)
        # Also for one that rests: an earlier reload may have failed.
        await self._reload()

    @asynccontextmanager
    async def opened(self, uid: str, folder: Path) -> AsyncGenerator[None]:
        """Have the datastore of a control plane answer, whose process may not run.

        Args:
            uid: The uid of the control plane.
            folder: Its folder.

        Raises:
            LocalError: It does not answer.
        """
        beside = await asyncio.to_thread(self._beside, uid, folder)
        if beside is None or not beside[1].exists():
            yield
            return
        running, stopped, prefix = beside
        stopped.rename(running)
        try:
            await self._reload()
            await self._ready(prefix + msgspec.json.decode(running.read_bytes(), type=_Named).name)
            yield
        finally:
            await self.rest(uid, folder)

    def _beside(self, uid: str, folder: Path) -> tuple[Path, Path, str] | None:
        """Return what runs only for one control plane: the files of it running and stopped, the prefix of its name."""
        record = _recorded(folder)
        if record is not None and record.kind is StoreKind.OWN_ETCD:
            at = etcds.folder(self._paths, uid, is_shared=False)
            return at / etcds.PROCESS, at / etcds.STOPPED, etcds.PREFIX
        if record is not None and record.kind is StoreKind.SQL:
            return folder / forwards.PROCESS, folder / forwards.STOPPED, forwards.PREFIX
        return None

    async def _attach_etcd(self, plane: HostedPlane, folder: Path, program: Path) -> None:
        is_shared = plane.store.kind is StoreKind.SHARED_ETCD
        at = etcds.folder(self._paths, plane.uid, is_shared=is_shared)
        name = etcds.SHARED if is_shared else plane.name
        async with self._lock:
            await asyncio.to_thread(self._write, plane.uid, folder, at, name, program)
            await self._reload()
        await self._ready(f"{etcds.PREFIX}{name}")
        await etcdadmin.administer(
            program, at, "admit", stores.user(plane.uid), stores.prefix(plane.uid), seconds=_SECONDS
        )
        target = "../../stores/shared" if is_shared else "etcd"
        await asyncio.to_thread(_link, folder / stores.ETCD_SOCKET, f"{target}/{stores.ETCD_SOCKET}")

    def _write(self, uid: str, folder: Path, at: Path, name: str, program: Path) -> None:
        """Write certificates and the file that makes the etcd a component."""
        spec = read_spec(self._paths)
        if spec is None:
            raise LocalError(f'"{self._paths.spec}" is gone')
        make_private_folder(at)
        own = at / "pki"
        wanted = {**stores.etcd_leaves(), stores.user(uid): stores.client_leaf(uid)}
        pki.ensure(own, wanted, dt.datetime.now(dt.UTC))
        make_private_folder(folder / "pki")
        for copy, source in stores.client_files(uid).items():
            write_private(folder / "pki" / copy, (own / source).read_bytes())
        write_private(at / etcdadmin.ACCESS, msgspec.json.encode(stores.access("pki", "etcd-ca", "root")))
        process = EtcdProcess(
            name=name,
            program=str(Path(spec.binaries) / "controlplane"),
            administrator=str(program),
            throwaway=spec.throwaway,
            quota_bytes=_quota(at),
        )
        (at / etcds.STOPPED).unlink(missing_ok=True)
        write_private(at / etcds.PROCESS, msgspec.json.encode(process))


def _quota(at: Path) -> int:
    """Return the quota that an administrator has given an etcd; 0 for the default."""
    for name in (etcds.PROCESS, etcds.STOPPED):
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((at / name).read_bytes(), type=EtcdProcess).quota_bytes
    return 0


def _record(folder: Path, wanted: AttachedStore) -> None:
    make_private_folder(folder)
    before = _recorded(folder)
    if before is None and (folder / "state.db").exists():
        # It was started by a Tenantry that had no other kind.
        before = AttachedStore(kind=StoreKind.SQLITE, program="")
    if before is not None and before.kind is not wanted.kind:
        raise InputError(f"its objects are in {before.kind}: a datastore never changes; create another control plane")
    write_private(folder / _RECORD, msgspec.json.encode(wanted))


def _recorded(folder: Path) -> AttachedStore | None:
    file = folder / _RECORD
    try:
        return msgspec.json.decode(file.read_bytes(), type=AttachedStore)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(f'"{file}" cannot be read ({error}): restore it from a backup') from error


def _attach_sql(plane: HostedPlane, folder: Path) -> bool:
    """Write what leads to a SQL server, and return whether it is elsewhere: a forwarder leads there."""
    server = plane.store.sql
    if server is None:
        raise InputError("a datastore of the kind sql must have a server")
    elsewhere = stores.remote(server.address)
    write_private(folder / stores.PASSWORD_FILE, server.password.encode())
    (folder / forwards.STOPPED).unlink(missing_ok=True)
    if elsewhere is None:
        (folder / forwards.PROCESS).unlink(missing_ok=True)
        return False
    program = build.built(build.ENDPOINT_PROXY)
    if program is None:
        raise LocalError("the endpoint proxy is not built: run `tenantry local build --with-hosted`")
    if server.ca:
        make_private_folder(folder / "pki")
        write_private(folder / "pki" / f"{stores.ETCD_AUTHORITY}.crt", server.ca.encode())
    process = ForwardProcess(
        name=plane.name,
        program=str(program.endpoint_proxy),
        socket=stores.SQL_SOCKETS[server.driver],
        address=server.address,
        allowed=tuple(each.strip() for each in server.allowed.split(",") if each.strip()),
    )
    write_private(folder / forwards.PROCESS, msgspec.json.encode(process))
    return True


def _link_sql(store: HostedStore, folder: Path) -> None:
    if store.sql is not None:
        _link(folder / stores.SQL_SOCKETS[store.sql.driver], store.sql.address)


def _link(link: Path, target: str) -> None:
    """Make a symbolic link, in one step if there is one."""
    if link.is_symlink() and str(link.readlink()) == target:
        return
    part = link.with_name(f"{link.name}.part")
    try:
        part.unlink(missing_ok=True)
        part.symlink_to(target)
        part.replace(link)
    except OSError as error:
        raise explain(error, link) from error

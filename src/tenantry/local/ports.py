"""Loopback ports of clusters: reserved for one cluster, and kept for it as long as they are free.

Clusters of different homes start at the same moment in tests, so the file of reservations belongs to the user, not
to a home.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from tenantry.api.errors import LocalError
from tenantry.local.files import write_private
from tenantry.local.locks import holding
from tenantry.local.spec import Ports

_FIRST = 20000
# Above this Linux gives ports to outgoing connections by default: a server can lose its port to one at any moment.
_END = 32768


def book_folder() -> Path:
    """Return the folder of this user's reservations.

    Raises:
        LocalError: Another user owns a folder of this name.
    """
    # A fixed place, since TMPDIR and XDG_RUNTIME_DIR differ between a login and a service of the same user.
    folder = Path(f"/tmp/tenantry-{os.getuid()}")  # noqa: S108 - the owner is checked below
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # lstat, not stat: any user may have created a link of this name in /tmp.
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode != stat.S_IFDIR | stat.S_IRWXU:
        raise LocalError(f'"{folder}" must be a folder that only you can open: remove it')
    return folder


def is_free(port: int) -> bool:
    """Return whether a server could listen on 127.0.0.1 at this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Go's listeners do: lingering connections of an earlier server do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def choose(count: int, wanted: tuple[int, ...], taken: frozenset[int], end: int = _END) -> tuple[int, ...]:
    """Choose ports, the wanted ones first if they are free.

    Args:
        count: How many.
        wanted: Ports that the cluster had, in order; each keeps its place if it is still free.
        taken: Ports that other clusters reserved.
        end: The first port that may not be used.

    Raises:
        LocalError: There are too few.
    """
    chosen: list[int] = []
    used = set(taken)
    candidates = iter(range(_FIRST, end))
    for place in range(count):
        own = wanted[place] if place < len(wanted) else 0
        port = own if own and own not in used and own < end and is_free(own) else 0
        while not port:
            candidate = next(candidates, None)
            if candidate is None:
                raise LocalError(f"fewer than {count} ports from {_FIRST} to {end - 1} are free on 127.0.0.1")
            if candidate not in used and candidate not in wanted and is_free(candidate):
                port = candidate
        chosen.append(port)
        used.add(port)
    return tuple(chosen)


def reserve(folder: Path, wanted: Ports | None) -> Ports:
    """Reserve the ports of a cluster; arguments as `reserve_some`."""
    fields = Ports.__struct_fields__
    before = tuple(int(getattr(wanted, field)) for field in fields) if wanted else ()
    return Ports(**dict(zip(fields, reserve_some(folder, len(fields), before), strict=True)))


def reserve_some(folder: Path, count: int, wanted: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Reserve ports until `release`; ports that the folder had are kept if they are still free.

    Args:
        folder: The folder that the reservation is for; it ends when the folder is gone.
        count: The number of ports.
        wanted: The ports that it had.
    """
    own = str(folder.resolve())
    book_file = book_folder() / "ports.json"
    with holding(book_folder() / "ports.lock"):
        # A folder that was deleted without `down --purge` must not keep its ports.
        book = {name: ports for name, ports in _read(book_file).items() if name != own and Path(name).is_dir()}
        taken = frozenset(port for ports in book.values() for port in ports)
        # The chosen ports are written before the lock is released: no other cluster can get them.
        chosen = choose(count, wanted, taken, min(_END, _first_ephemeral()))
        write_private(book_file, msgspec.json.encode(book | {own: chosen}))
    return chosen


def reserve_further(folder: Path, count: int) -> tuple[int, ...]:
    """Reserve more ports for a folder, which keeps those that it has; return the new ones. See `reserve_some`."""
    own = str(folder.resolve())
    book_file = book_folder() / "ports.json"
    with holding(book_folder() / "ports.lock"):
        book = {name: ports for name, ports in _read(book_file).items() if name == own or Path(name).is_dir()}
        taken = frozenset(port for ports in book.values() for port in ports)
        chosen = choose(count, (), taken, min(_END, _first_ephemeral()))
        write_private(book_file, msgspec.json.encode(book | {own: (*book.get(own, ()), *chosen)}))
    return chosen


def reserve_at(folder: Path, port: int, count: int, owner: Callable[[Path], str]) -> tuple[int, ...]:
    """Reserve one port for a folder, and more that are free; return all of them. See `reserve_some`.

    Args:
        folder: The folder, which has no ports yet.
        port: The port.
        count: How many further ones.
        owner: Returns what has a folder that has reserved a port, in words; "" if the user must not know.

    Raises:
        LocalError: The port cannot be had: why, and what to do.
    """
    end = min(_END, _first_ephemeral())
    told = f"spec.endpoint.port {port}"
    todo = "choose another port; the field does not change, so create another object"
    if not _FIRST <= port < end:
        raise LocalError(f"{told} must be from {_FIRST} to {end - 1} on this machine: {todo}")
    own = str(folder.resolve())
    book_file = book_folder() / "ports.json"
    with holding(book_folder() / "ports.lock"):
        book = {name: ports for name, ports in _read(book_file).items() if name != own and Path(name).is_dir()}
        other = next((name for name, ports in book.items() if port in ports), None)
        if other is not None or not is_free(port):
            # One text: what other tenants and the machine have is not for the owner of this control plane to know.
            known = owner(Path(other)) if other is not None else ""
            by = known or "another control plane or program of this machine"
            raise LocalError(f"{told} is in use by {by}: {todo}")
        taken = frozenset(each for ports in book.values() for each in ports) | {port}
        chosen = (port, *choose(count, (), taken, end))
        write_private(book_file, msgspec.json.encode(book | {own: chosen}))
    return chosen


def release(folder: Path) -> None:
    """Release the ports of a folder."""
    book_file = book_folder() / "ports.json"
    with holding(book_folder() / "ports.lock"):
        book = _read(book_file)
        if book.pop(str(folder.resolve()), None) is not None:
            write_private(book_file, msgspec.json.encode(book))


def _first_ephemeral() -> int:
    """Return the first port of the kernel's range for outgoing connections, if there is room below it."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _END
    return first if first > _FIRST + 1000 else _END


def _read(book_file: Path) -> dict[str, tuple[int, ...]]:
    try:
        return msgspec.json.decode(book_file.read_bytes(), type=dict[str, tuple[int, ...]])
    except (OSError, msgspec.MsgspecError):
        # Reservations only supplement the bind test: losing the file costs nothing.
        return {}

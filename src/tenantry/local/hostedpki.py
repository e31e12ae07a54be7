"""Credentials of a hosted control plane on this machine: issued, renewed and replaced in its folder `pki`.

    index.json    what was issued, and when ─► what is due (hosting/certificates.py)
    former.json   authorities and keys of tokens that are trusted until their overlap is over
    trusted.crt   ca.crt and former ones ─► kubeconfigs, pods, the supervisor
    clients.crt   ca.crt and users-ca.crt ─► the API server

kube-apiserver reads certificates anew when their files change. It reads authorities of other servers and keys of
tokens at its start only, and it ends no watch of a client whose certificate is worth nothing any more. So its process
ends before an authority is replaced, and starts with the new one.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tenantry.hosting import certificates
from tenantry.hosting import plane as hosting
from tenantry.hosting.certificates import IssuedCertificate
from tenantry.hosting.plane import HostedPlane
from tenantry.local import pki
from tenantry.local.files import make_private_folder, write_private

_FORMER = "former.json"
_AUTHORITY = "ca"
_UNREPLACED = ("kubelet",)
"""Issued with the addresses of nodes, by the gate."""

_MOST_FORMER = 8


class FormerAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """An authority of the API server, and a key of tokens, that were replaced.

    Args:
        name: Of the files NAME.crt and NAME.pub.
        until: When their overlap is over.
    """

    name: str
    until: dt.datetime


def needs_restart(folder: Path, plane: HostedPlane, now: dt.datetime) -> bool:
    """Return whether `issue` replaces what a process that runs does not read anew.

    Args:
        folder: The folder pki of the control plane.
        plane: The control plane.
        now: The time.
    """
    index = pki.read_index(folder)
    return bool(index) and (bool(_replaced(index, plane, now)) or any(each.until <= now for each in _former(folder)))


def issue(folder: Path, plane: HostedPlane, now: dt.datetime) -> tuple[str, ...]:
    """Bring all credentials to what they should be, and return the files of former keys of tokens.

    Args:
        folder: As for `needs_restart`.
        plane: The control plane, whose process does not run if `needs_restart`.
        now: The time.
    """
    make_private_folder(folder)
    index = pki.read_index(folder)
    former = _former(folder)
    if _AUTHORITY in index and _AUTHORITY in _replaced(index, plane, now):
        former = _set_aside(folder, index[_AUTHORITY], former, now)
    over = [each for each in former if each.until <= now]
    former = [each for each in former if each.until > now]
    wanted = hosting.leaves(plane)
    # The one that the certificate of the server is of may be over first.
    kept = hosting.IN_OVERLAP if former and not over else ()
    pki.ensure(folder, wanted, now, generations=hosting.generations(plane), kept=kept)
    authority = (folder / f"{_AUTHORITY}.crt").read_bytes()
    _write(folder / hosting.TRUSTED, b"".join([authority, *(_content(folder / f"{each.name}.crt") for each in former)]))
    _write(folder / hosting.CLIENTS, authority + (folder / f"{hosting.USERS_CA}.crt").read_bytes())
    if over:
        _record(folder, former)
        for each in over:
            for kind in ("crt", "pub"):
                (folder / f"{each.name}.{kind}").unlink(missing_ok=True)
    return former_keys(folder)


def former_keys(folder: Path) -> tuple[str, ...]:
    """Return the names of the files with former keys that verify tokens; arguments as for `needs_restart`."""
    names = (f"{each.name}.pub" for each in _former(folder))
    return tuple(name for name in names if (folder / name).exists())


def next_change(folder: Path, plane: HostedPlane) -> dt.datetime | None:
    """Return when `issue` has something to do again; arguments as for `needs_restart`."""
    names = [name for name in hosting.leaves(plane) if name not in _UNREPLACED]
    times = (certificates.next_renewal(pki.read_index(folder), names), *(each.until for each in _former(folder)))
    return min((each for each in times if each is not None), default=None)


def _replaced(index: dict[str, IssuedCertificate], plane: HostedPlane, now: dt.datetime) -> tuple[str, ...]:
    found = certificates.due(index, hosting.leaves(plane), now, generations=hosting.generations(plane))
    return found.authorities


def _set_aside(
    folder: Path, issued: IssuedCertificate, former: list[FormerAuthority], now: dt.datetime
) -> list[FormerAuthority]:
    """Keep the authority that is about to be replaced, and the key of tokens, for their overlap."""
    start = certificates.renewal(issued)
    name = f"former-{start:%Y%m%d%H%M%S%f}"
    if any(each.name == name for each in former):
        return former  # a crash came before it was replaced
    write_private(folder / f"{name}.crt", (folder / f"{_AUTHORITY}.crt").read_bytes())
    write_private(folder / f"{name}.pub", (folder / f"{pki.SERVICE_ACCOUNT}.pub").read_bytes())
    # Users decide how often: without a bound, the files of authorities would become larger than a Secret may be.
    over = [replace(each, until=now) for each in former[: 1 - _MOST_FORMER]]
    kept = former[1 - _MOST_FORMER :]
    added = [*over, *kept, FormerAuthority(name=name, until=now + hosting.OVERLAP)]
    _record(folder, added)
    return added


def _former(folder: Path) -> list[FormerAuthority]:
    try:
        return msgspec.json.decode((folder / _FORMER).read_bytes(), type=list[FormerAuthority])
    except (OSError, msgspec.MsgspecError):
        return []


def _record(folder: Path, former: list[FormerAuthority]) -> None:
    write_private(folder / _FORMER, msgspec.json.encode(former))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""  # the pods that trust it have to start again


def _write(file: Path, data: bytes) -> None:
    # The API server reads the file again when it changes.
    if not file.exists() or file.read_bytes() != data:
        write_private(file, data)

"""Credentials of a hosted control plane on this machine: issued, renewed and replaced in its folder `pki`.

    index.json    what was issued, and when ─► what is due (hosting/certificates.py)
    former.json   authorities and keys of tokens that are trusted until their overlap is over
    next.json     authorities that are trusted, and sign nothing yet
    trusted.crt   ca.crt, former ones and the next one ─► kubeconfigs, pods, the supervisor
    clients.crt   ca.crt and users-ca.crt ─► the API server; in a gradual rotation, with those before or after them
    node-clients.crt  ca.crt and the next one ─► kubelets, whose client the API server is

    Users, All   ca ─► former, trusted as the authority of servers only
    Preparing    next-ca is trusted beside ca
    Issuing      ca ─► former, trusted as that of clients, too; next-ca ─► ca, which issues every certificate again
    no phase     former ones are trusted as those of servers only

kube-apiserver reads certificates anew when their files change. It reads authorities of other servers and keys of
tokens at its start only, and it ends no watch of a client whose certificate is worth nothing any more. So its process
ends before an authority is replaced, and starts with the new one.
"""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tenantry.api.planecredentials import RotationPhase
from tenantry.hosting import certificates
from tenantry.hosting import plane as hosting
from tenantry.hosting.certificates import IssuedCertificate
from tenantry.hosting.plane import HostedPlane
from tenantry.local import pki
from tenantry.local.files import make_private_folder, write_private

NODE_CLIENTS = "node-clients.crt"
"""The file with the authorities of the clients of kubelets: of the API server, and before it has its next one."""

_FORMER = "former.json"
_NEXT = "next.json"
_PREFIX = "next-"
_AUTHORITY = "ca"
_FRONT = "front-proxy-ca"
_PREPARED = (_AUTHORITY, hosting.USERS_CA, _FRONT)
"""The authorities of which others than this machine's processes have certificates, or which they trust."""

_UNREPLACED = ("kubelet",)
"""Issued with the addresses of nodes, by the gate."""

_MOST_FORMER = 8


class FormerAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """An authority of the API server, and a key of tokens, that were replaced.

    Args:
        name: Of the files NAME.crt and NAME.pub.
        until: When their overlap is over.
        is_of_clients: Whether their clients are trusted, too: in the phase Issuing. Those of users and of the front
            proxy are in NAME.users.crt and NAME.front.crt then.
    """

    name: str
    until: dt.datetime
    is_of_clients: bool = False


def needs_restart(folder: Path, plane: HostedPlane, now: dt.datetime) -> bool:
    """Return whether `issue` replaces what a process that runs does not read anew.

    Args:
        folder: The folder pki of the control plane.
        plane: The control plane.
        now: The time.
    """
    index = pki.read_index(folder)
    if not index:
        return False
    former, phase = _former(folder), plane.credentials.phase
    is_prepared = (phase is RotationPhase.PREPARING) == bool(_upcoming(folder))
    is_completed = phase is not RotationPhase.NONE or not any(each.is_of_clients for each in former)
    is_over = any(_is_over(each, now) for each in former)
    return bool(_replaced(index, plane, now)) or not is_prepared or not is_completed or is_over


def issue(folder: Path, plane: HostedPlane, now: dt.datetime) -> tuple[str, ...]:
    """Bring all credentials to what they should be, and return the files of former keys of tokens.

    Args:
        folder: As for `needs_restart`.
        plane: The control plane, whose process does not run if `needs_restart`.
        now: The time.
    """
    make_private_folder(folder)
    index = pki.read_index(folder)
    former, phase = _former(folder), plane.credentials.phase
    if _AUTHORITY in index and _AUTHORITY in _replaced(index, plane, now):
        former = _set_aside(folder, index[_AUTHORITY], former, now, is_gradual=phase is RotationPhase.ISSUING)
    if phase is RotationPhase.PREPARING:
        _prepare(folder, plane, now)
    else:
        _promote(folder, plane)
    if phase is RotationPhase.NONE:
        former = [replace(each, is_of_clients=False) for each in former]
    over = [each for each in former if _is_over(each, now)]
    former = [each for each in former if not _is_over(each, now)]
    wanted = hosting.leaves(plane)
    # The one that the certificate of the server is of may be over first.
    kept = hosting.IN_OVERLAP if former and not over else ()
    pki.ensure(folder, wanted, now, generations=hosting.generations(plane), kept=kept)
    _bundle(folder, former)
    if former != _former(folder):
        _record(folder, former)
    for each in over:
        for kind in ("crt", "pub", "users.crt", "front.crt"):
            (folder / f"{each.name}.{kind}").unlink(missing_ok=True)
    return former_keys(folder)


def _is_over(found: FormerAuthority, now: dt.datetime) -> bool:
    return found.until <= now and not found.is_of_clients


def _bundle(folder: Path, former: list[FormerAuthority]) -> None:
    """Write the files of trusted authorities."""
    following = [name for name in _PREPARED if name in _upcoming(folder)]

    def together(*names: str) -> bytes:
        return b"".join(_content(folder / f"{name}.crt") for name in names)

    def after(*names: str) -> list[str]:
        return [f"{_PREFIX}{name}" for name in names if name in following]

    of_clients = [each.name for each in former if each.is_of_clients]
    before = together(*of_clients, *(f"{name}.users" for name in of_clients))
    servers = together(_AUTHORITY, *(each.name for each in former), *after(_AUTHORITY))
    _write(folder / hosting.TRUSTED, servers)
    clients = together(_AUTHORITY, hosting.USERS_CA, *after(_AUTHORITY, hosting.USERS_CA))
    _write(folder / hosting.CLIENTS, clients + before)
    _write(folder / hosting.FORMER_CLIENTS, before)
    # Not former ones: each process of the API server starts with its new certificate.
    _write(folder / NODE_CLIENTS, together(_AUTHORITY, *after(_AUTHORITY)))
    front = together(_FRONT, *after(_FRONT), *(f"{name}.front" for name in of_clients))
    _write(folder / hosting.FRONT_PROXY, front)


def _prepare(folder: Path, plane: HostedPlane, now: dt.datetime) -> None:
    """Make the authorities and the key of tokens of the next generation, which sign nothing yet."""
    if _upcoming(folder):
        return
    from tenantry.local import x509

    generations, made = hosting.generations(plane), dict[str, IssuedCertificate]()
    end = now + certificates.LIVES.authority
    for name in _PREPARED:
        x509.write_authority(folder, f"{_PREFIX}{name}", now, end)
        made[name] = IssuedCertificate(leaf=None, not_before=now, not_after=end, generation=generations[name] + 1)
    key = pki.SERVICE_ACCOUNT
    x509.write_key_pair(folder, f"{_PREFIX}{key}")
    made[key] = IssuedCertificate(leaf=None, not_before=now, not_after=pki.NEVER, generation=generations[key] + 1)
    write_private(folder / _NEXT, msgspec.json.encode(made))


def _promote(folder: Path, plane: HostedPlane) -> None:
    """Let what was prepared sign from now on; what was prepared for nothing is deleted."""
    prepared = _upcoming(folder)
    if not prepared:
        return
    wanted = hosting.generations(plane)
    index = pki.read_index(folder)
    if plane.credentials.phase is RotationPhase.ISSUING:
        used = {name: each for name, each in prepared.items() if each.generation == wanted[name]}
        # After a crash in between, the next call does it again.
        pki.write_index(folder, {name: each for name, each in index.items() if name not in used})
        for name in used:
            for kind in ("key", "pub" if name == pki.SERVICE_ACCOUNT else "crt"):
                write_private(folder / f"{name}.{kind}", (folder / f"{_PREFIX}{name}.{kind}").read_bytes())
        pki.write_index(folder, index | used)
    (folder / _NEXT).unlink()
    for name in prepared:
        for kind in ("key", "pub", "crt"):
            (folder / f"{_PREFIX}{name}.{kind}").unlink(missing_ok=True)


def _upcoming(folder: Path) -> dict[str, IssuedCertificate]:
    """Return what was prepared, by the names that it will have."""
    try:
        return msgspec.json.decode((folder / _NEXT).read_bytes(), type=dict[str, IssuedCertificate])
    except (OSError, msgspec.MsgspecError):
        return {}


def former_keys(folder: Path) -> tuple[str, ...]:
    """Return the names of the files with other keys that verify tokens; arguments as for `needs_restart`."""
    following = [f"{_PREFIX}{pki.SERVICE_ACCOUNT}.pub"] if pki.SERVICE_ACCOUNT in _upcoming(folder) else []
    names = (*(f"{each.name}.pub" for each in _former(folder)), *following)
    return tuple(name for name in names if (folder / name).exists())


def next_change(folder: Path, plane: HostedPlane) -> dt.datetime | None:
    """Return when `issue` has something to do again; arguments as for `needs_restart`."""
    names = [name for name in hosting.leaves(plane) if name not in _UNREPLACED]
    times = (
        certificates.next_renewal(pki.read_index(folder), names),
        *(each.until for each in _former(folder) if not each.is_of_clients),
    )
    return min((each for each in times if each is not None), default=None)


def _replaced(index: dict[str, IssuedCertificate], plane: HostedPlane, now: dt.datetime) -> tuple[str, ...]:
    found = certificates.due(index, hosting.leaves(plane), now, generations=hosting.generations(plane))
    return found.authorities


def _set_aside(
    folder: Path, issued: IssuedCertificate, former: list[FormerAuthority], now: dt.datetime, *, is_gradual: bool
) -> list[FormerAuthority]:
    """Keep the authority that is about to be replaced, and the key of tokens, for their overlap."""
    start = certificates.renewal(issued)
    name = f"former-{start:%Y%m%d%H%M%S%f}"
    if any(each.name == name for each in former):
        return former  # a crash came before it was replaced
    write_private(folder / f"{name}.crt", (folder / f"{_AUTHORITY}.crt").read_bytes())
    write_private(folder / f"{name}.pub", (folder / f"{pki.SERVICE_ACCOUNT}.pub").read_bytes())
    if is_gradual:
        for kind, authority in (("users", hosting.USERS_CA), ("front", _FRONT)):
            write_private(folder / f"{name}.{kind}.crt", (folder / f"{authority}.crt").read_bytes())
    # Users decide how often: without a bound, the files of authorities would become larger than a Secret may be.
    over = [replace(each, until=now) for each in former[: 1 - _MOST_FORMER]]
    kept = former[1 - _MOST_FORMER :]
    added = [*over, *kept, FormerAuthority(name=name, until=now + hosting.OVERLAP, is_of_clients=is_gradual)]
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


def front_proxy_tls(folder: Path) -> ssl.SSLContext:
    """Return the context of a server that only front proxies of a control plane connect to.

    Args:
        folder: The folder of its certificates.

    Raises:
        OSError: They cannot be read.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / hosting.FRONT_PROXY)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
    return context

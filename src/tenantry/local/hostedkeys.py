"""The encryption keys of the hosted control planes of this machine: files of mode 0600 beside their databases.

    CLUSTER/hosted/UID/state.db
    CLUSTER/hosted-keys/UID/encryption.json

A copy of the folder `hosted` has no key, and reveals no Secret.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.hosting import encryption
from tenantry.hosting.encryption import EncryptionKey, PlaneKeys
from tenantry.local import hostedfolders
from tenantry.local.files import explain, make_private_folder, write_private
from tenantry.local.paths import ClusterPaths

_FOLDER = "hosted-keys"
_BOTH = "restore.json"


def folder(paths: ClusterPaths, uid: str) -> Path:
    """Return the folder with the keys of a control plane; arguments and errors as for `hostedfolders.of`."""
    return paths.folder / _FOLDER / hostedfolders.of(paths, uid).name


def read(paths: ClusterPaths, uid: str) -> bytes:
    """Return the file of a control plane; b"" if there is none.

    Args:
        paths: The cluster's.
        uid: The uid of the control plane.

    Raises:
        LocalError: It cannot be read.
    """
    file = folder(paths, uid) / encryption.FILE
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise explain(error, file) from error


def is_other(paths: ClusterPaths, uid: str, keys: PlaneKeys | None) -> bool:
    """Return whether the file has other keys than these; arguments and errors as for `write`."""
    return read(paths, uid) != _content(keys)


def write(paths: ClusterPaths, uid: str, keys: PlaneKeys | None) -> None:
    """Write the file of a control plane; its process, which reads it at its start, does not run if it `is_other`.

    Args:
        paths: The cluster's.
        uid: The uid of the control plane.
        keys: Its keys; None for no file.

    Raises:
        LocalError: It cannot be written.
    """
    if not is_other(paths, uid, keys):
        return
    if keys is None:
        remove(paths, uid)
        return
    own = folder(paths, uid)
    make_private_folder(own)
    write_private(own / encryption.FILE, _content(keys))


def lay_both(paths: ClusterPaths, uid: str, other: Path) -> tuple[str, ...]:
    """Write the keys of a control plane and those of a snapshot of another one into one file, and return its path.

    Args:
        paths: The cluster's.
        uid: The uid of the control plane.
        other: The file with the keys of the snapshot; without one, the snapshot may be unencrypted.

    Returns:
        The path; nothing for a control plane without keys.

    Raises:
        LocalError: A file cannot be read or written, or is not one of keys.
    """
    own = encryption.parse(read(paths, uid))
    if own is None:
        return ()
    added: tuple[EncryptionKey, ...] = ()
    try:
        theirs = encryption.parse(other.read_bytes())
    except FileNotFoundError:
        pass
    except OSError as error:
        raise explain(error, other) from error
    else:
        if theirs is None:
            raise LocalError(f'"{other}" has no keys: copy the file that `snapshot --to` has written')
        names = {each.name for each in own.keys}
        added = tuple(each for each in theirs.keys if each.name not in names)
    file = folder(paths, uid) / _BOTH
    write_private(file, encryption.configuration(PlaneKeys(keys=(*own.keys, *added), reads_plain=True)))
    return (str(file),)


def remove_both(paths: ClusterPaths, uid: str) -> None:
    """Delete the file of `lay_both`."""
    (folder(paths, uid) / _BOTH).unlink(missing_ok=True)


def remove(paths: ClusterPaths, uid: str) -> None:
    """Delete the keys of a control plane; one without needs nothing.

    Args:
        paths: The cluster's.
        uid: The uid of the control plane.

    Raises:
        LocalError: They are left.
    """
    own = folder(paths, uid)
    try:
        shutil.rmtree(own)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, own) from error


def _content(keys: PlaneKeys | None) -> bytes:
    return encryption.configuration(keys) if keys is not None else b""

"""The folders of hosted control planes on this machine, and the audit logs in them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tenantry.api.errors import InputError
from tenantry.hosting import serveroptions
from tenantry.local import ports
from tenantry.local.files import explain
from tenantry.local.paths import ClusterPaths

_UID = re.compile(r"[0-9a-f-]{1,64}")


def of(paths: ClusterPaths, uid: str) -> Path:
    """Return the folder of a control plane.

    Args:
        paths: The cluster's.
        uid: The uid of the control plane.

    Raises:
        InputError: It is no uid.
    """
    if not _UID.fullmatch(uid):
        raise InputError(f"{uid!r} is not the uid of an object")
    return paths.folder / "hosted" / uid


def audit_files(paths: ClusterPaths, uid: str) -> tuple[Path, ...]:
    """Return the files of the audit log of a control plane, the oldest first; arguments and errors as `of`."""
    own = of(paths, uid)
    folders = (own, *sorted(own.glob("replicas/*")))
    found = [file for folder in folders for file in (folder / serveroptions.AUDIT_FOLDER).glob("*.log")]
    # The names of former ones have their time.
    return tuple(sorted(found, key=lambda each: (each.name == serveroptions.AUDIT_LOG, each.name)))


def remove(folder: Path) -> None:
    """Delete the folder of a control plane, and give its ports back.

    Raises:
        LocalError: Something of it is left.
    """
    ports.release(folder)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, folder) from error

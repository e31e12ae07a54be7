"""The files with the guards of a hosted control plane on this machine; all of its processes read those of the first."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tenantry.api.clusterguards import ClusterGuard
from tenantry.hosting import guards
from tenantry.local.files import explain, make_private_folder, write_private


def write(folder: Path, given: Sequence[ClusterGuard]) -> None:
    """Bring the files to what they should be; the process reads the policies again when they change.

    Args:
        folder: Of the control plane.
        given: Its guards.

    Raises:
        LocalError: A file cannot be written.
    """
    if not given:
        # A process without guards names none of them.
        (folder / guards.CONFIGURATION).unlink(missing_ok=True)
        try:
            shutil.rmtree(folder / guards.FOLDER)
        except FileNotFoundError:
            return
        except OSError as error:
            raise explain(error, folder / guards.FOLDER) from error
        return
    make_private_folder(folder / guards.FOLDER)
    for name, content in guards.files(given, str(folder.absolute())).items():
        file = folder / name
        if not file.exists() or file.read_bytes() != content:
            write_private(file, content)

"""`tenantry support-bundle`: one archive for those who help, without Secrets."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.support import BundleFile, Fetch

_MOST_LOG = 8 * 1024 * 1024
"""Bytes of each log of a local cluster: the last ones."""


@click.command()
@takes_target
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("tenantry-support.tar.gz"),
    show_default=True,
    help="File to write; an existing one is not overwritten.",
)
def support_bundle(target: Target, *, path: Path) -> None:
    r"""Collect versions, conditions, events, logs and metrics in one archive, to send it to those who help.

    The archive has the objects of Tenantry's kinds, Namespaces, Nodes, the quotas of tenants, events about them, and
    the logs and the metrics of the operator. Secrets and ConfigMaps are never read. It names your tenants and their
    owners: look through it before you send it. What could not be read is in problems.txt, and the exit code is 1 then.

    \b
      tenantry support-bundle
      tenantry support-bundle -f monday.tar.gz && tar tf monday.tar.gz
    """
    if path.exists():
        raise _existing(path)
    if not path.resolve().parent.is_dir():
        raise InputError(f"{str(path)!r} is in no folder that exists")
    files = session.run(target, lambda client: _collect(client, target))
    _write(path, files)
    problems = next((each.data.decode() for each in files if each.name == "problems.txt"), "")
    for line in problems.splitlines():
        output.talk(f"not collected: {line}")
    output.talk(f"{len(files)} files are in {str(path)!r}: look through them before you send them")
    if problems:
        click.get_current_context().exit(1)


async def _collect(client: Client, target: Target) -> list[BundleFile]:
    from tenantry.bench import probe
    from tenantry.cli.bench import running
    from tenantry.views import support

    async def metrics() -> bytes:
        # A cluster without a leader is a reason to collect a bundle: the command does not wait for one.
        found = await probe.operator_metrics(client, running.local_url(target), waits=False)
        return await found.page()

    fetches: list[tuple[str, Fetch]] = [("metrics.txt", metrics)]
    files = [each async for each in support.bundle(client, fetches)]
    return [*files, *_local_logs(target)]


def _local_logs(target: Target) -> list[BundleFile]:
    """Return the logs of the operator and the supervisor of a local cluster."""
    from tenantry.local import components
    from tenantry.local.cluster import LocalCluster
    from tenantry.views.support import BundleFile

    if not target.local_name:
        return []
    paths = LocalCluster(target.local_name).paths
    names = {each: paths.log(each) for each in (components.OPERATOR, "supervisor")}
    return [BundleFile(name=f"logs/{each}.log", data=_tail(file)) for each, file in names.items() if file.exists()]


def _tail(file: Path) -> bytes:
    with file.open("rb") as log:
        size = log.seek(0, io.SEEK_END)
        log.seek(max(0, size - _MOST_LOG))
        return log.read()


def _existing(path: Path) -> InputError:
    # It may be the evidence of another day.
    return InputError(f"{str(path)!r} exists: name another file with --file")


def _write(path: Path, files: list[BundleFile]) -> None:
    """Write the archive, readable for its owner only: it names tenants and their owners.

    Raises:
        InputError: The file exists by now, or cannot be written.
    """
    from tenantry.local.files import private_file

    now = int(time.time())
    try:
        with (
            private_file(path, replaces=False) as target,
            tarfile.open(fileobj=target, mode="w:gz") as archive,
        ):
            for each in files:
                info = tarfile.TarInfo(f"tenantry-support/{each.name}")
                info.size, info.mtime, info.mode = len(each.data), now, 0o600
                archive.addfile(info, io.BytesIO(each.data))
    except FileExistsError as error:
        raise _existing(path) from error
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror}; name another file with --file") from error

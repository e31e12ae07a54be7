"""Runs nft(8) in this network namespace or in another one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tenantry.api.errors import RetryableError
from tenantry.kube import program

SECONDS = 60.0
"""The time limit of one command; a table for a thousand pods takes a tenth of a second."""

BRIDGE_SETTINGS = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables")


class Nft:
    """nft and the network namespace that it acts on.

    Args:
        netns: The file of a network namespace, such as "/run/netns/NAME"; None for this process's own.
    """

    def __init__(self, netns: Path | None = None) -> None:
        self._inside = () if netns is None else ("nsenter", f"--net={netns}")

    async def load(self, commands: str) -> None:
        """Execute commands as one transaction.

        Raises:
            RetryableError: nft is missing, rejects them, or does not end in time.
        """
        await self._run(("nft", "-f", "-"), commands)

    async def has(self, table: str) -> bool:
        """Return whether a table of the family inet exists.

        Raises:
            RetryableError: As above.
        """
        return f"table inet {table}" in (await self._run(("nft", "list", "tables"))).splitlines()

    async def unfiltered(self) -> list[str]:
        """Return the settings that let packets between pods of one bridge bypass nftables.

        Raises:
            RetryableError: They cannot be read.
        """
        # The kernel shows /proc/sys/net of the network namespace of the process that opens the file.
        files = [f"/proc/sys/net/bridge/{name}" for name in BRIDGE_SETTINGS]
        if self._inside:
            values = (await self._run(("sh", "-c", 'cat "$@" 2>/dev/null || true', "sh", *files))).split()
        else:
            values = _contents(files)  # an image has no shell
        # Without br_netfilter the files are missing, and the kernel does not show bridged packets to nftables.
        if len(values) != len(files):
            return [f"net.bridge.{name}" for name in BRIDGE_SETTINGS]
        return [f"net.bridge.{name}" for name, value in zip(BRIDGE_SETTINGS, values, strict=True) if value != "1"]

    async def _run(self, command: Sequence[str], text: str = "") -> str:
        try:
            done = await program.run((*self._inside, *command), timeout_seconds=SECONDS, stdin=text.encode())
        except TimeoutError as error:
            raise RetryableError(f"{command[0]!r} did not end within {SECONDS:.0f} s") from error
        except OSError as error:
            raise RetryableError(
                f"{command[0]!r} cannot be run ({error.strerror}); install the package nftables"
            ) from error
        if done.code:
            first = done.err.decode(errors="replace").strip().split("\n")[0]
            raise RetryableError(f"{command[0]!r} failed with exit code {done.code}: {first}")
        return done.out.decode()


def _contents(files: Sequence[str]) -> list[str]:
    """Return what files of the kernel have; those that do not exist are left out."""
    found: list[str] = []
    for each in files:
        with suppress(FileNotFoundError):
            found.append(Path(each).read_text().strip())
    return found

"""CoreDNS with the plugin tenantry as a process, and clients of it at addresses of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, cast

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.rdata
import yaml

from testkit import ports
from testkit.api import SECONDS, until

Json = dict[str, Any]

USER = "system:serviceaccount:kube-system:coredns"
"""CoreDNS's user at the API server, with the rights that docs/concepts/dns.md lists."""

_LOCALHOST = "127.0.0.1"
# The least restrictive configuration: any client may ask for a transfer, and reverse names that are not
# the cluster's are asked for elsewhere. The second server expands search lists itself; the third one is "elsewhere".
_COREFILE = """
.:{main} {{
    bind 127.0.0.1
    errors
    ready 127.0.0.1:{ready}
    tenantry cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        wait {wait}
    }}
    cache 30
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }}
    transfer {{
        to *
    }}
    forward . 127.0.0.1:{elsewhere}
}}
.:{autopath} {{
    bind 127.0.0.1
    errors
    tenantry cluster.local {{
        kubeconfig {kubeconfig}
        wait 0s
    }}
    autopath @kubernetes
    cache 30
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
        pods verified
    }}
    forward . 127.0.0.1:{elsewhere}
}}
.:{elsewhere} {{
    bind 127.0.0.1
    template IN A example.com {{
        answer "{{{{ .Name }}}} 60 IN A 192.0.2.1"
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


class CoreDns:
    """A running CoreDNS.

    Args:
        binary: The program.
        kubeconfig: Of an administrator, who may act as `USER`.
        folder: For its files.
        wait: How long it waits for news of an unknown client, in the syntax of a Corefile.
    """

    def __init__(self, binary: Path, kubeconfig: Path, folder: Path, *, wait: str) -> None:
        names = ("main", "autopath", "elsewhere", "ready")
        self.ports: dict[str, int] = dict(zip(names, ports.free(len(names)), strict=True))
        self.log = folder / "log"
        self._binary = binary
        self._corefile = folder / "Corefile"
        acting = folder / "kubeconfig"
        acting.write_text(_acting(kubeconfig))
        self._corefile.write_text(_COREFILE.format(kubeconfig=acting, wait=wait, **self.ports))
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start it and wait until its caches are filled."""
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(self._binary, "-conf", self._corefile), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        await until(self._ready, "CoreDNS is ready", seconds=2 * SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        if self._process and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def _ready(self) -> bool:
        answer = b""
        if self._process is None or self._process.returncode is not None:
            raise AssertionError(f"CoreDNS has ended:\n{self.log.read_text()}")
        # It reports ready before it listens.
        for port in self.ports.values():
            try:
                answer = await _get_ready(port)
            except OSError:
                return False
        return b" 200 " in answer

    async def ask(
        self, client: str, name: str, kind: str = "A", *, server: str = "main", tcp: bool = False
    ) -> dns.message.Message:
        """Send a query from an address of the loopback network, as a pod does, and return the answer.

        Args:
            client: The address.
            name: The queried name; a dot at its end is not needed.
            kind: The type of record, such as "SRV".
            server: "main", or "autopath" for the one that expands search lists itself.
            tcp: Whether to ask by TCP.
        """
        question = dns.message.make_query(name, kind)
        question.flags |= dns.flags.RD
        speak = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
        return await speak(question, _LOCALHOST, timeout=SECONDS, port=self.ports[server], source=client)


@asynccontextmanager
async def zone_server(binary: Path, folder: Path, origin: str, records: Iterable[str]) -> AsyncGenerator[int]:
    """Serve one zone from a file; yield the port on the loopback address.

    Args:
        binary: CoreDNS.
        folder: For its files.
        origin: The name of the zone.
        records: Lines of the zone file, without the SOA.
    """
    (port,) = ports.free(1)
    start = f"{origin}. 60 IN SOA ns.{origin}. admin.{origin}. 1 60 60 60 60"
    zone, corefile = folder / "zone", folder / "Corefile"
    zone.write_text("\n".join([start, *records, ""]))
    corefile.write_text(f"{origin}:{port} {{\n    bind {_LOCALHOST}\n    errors\n    file {zone}\n}}\n")
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(binary, "-conf", corefile), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )

    async def answers() -> bool:
        if process.returncode is not None:
            raise AssertionError(f"CoreDNS has ended:\n{(folder / 'log').read_text()}")
        try:
            found = await dns.asyncquery.udp(dns.message.make_query(origin, "SOA"), _LOCALHOST, timeout=1, port=port)
        except (OSError, dns.exception.Timeout):
            return False
        return bool(values(found))

    try:
        await until(answers, "the zone is served")
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def values(answer: dns.message.Message) -> list[str]:
    """Return the sorted contents of an answer's records: addresses, names, or "priority weight port name" of SRV."""
    sections = cast("list[Iterable[dns.rdata.Rdata]]", answer.answer)
    return sorted(str(record) for records in sections for record in records)


async def _get_ready(port: int) -> bytes:
    """Return the first line of what a server answers to an HTTP request; one of DNS answers nothing."""
    reader, writer = await asyncio.open_connection(_LOCALHOST, port)
    try:
        writer.write(b"GET /ready HTTP/1.0\r\n\r\n")
        writer.write_eof()
        return await reader.readline()
    finally:
        # One of DNS may break the connection off: an open socket fails a later test.
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _acting(kubeconfig: Path) -> str:
    loaded: Json = yaml.safe_load(kubeconfig.read_text())
    for user in loaded["users"]:
        user["user"]["as"] = USER
    return yaml.safe_dump(loaded)

"""nginx as an ingress controller in the network namespace of a pod.

The program is Debian's; without one on this machine, its package is unpacked into the cache: the distribution's own
installation would start a server on the port 80 of the machine. The configuration follows the Ingresses of one class
and the EndpointSlices of their Services, as ingress controllers do it.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tenantry.api.model import Resource
from testkit import debian
from testkit.api import SECONDS, Api, until
from testkit.hosts import INGRESSES
from testkit.podnet import Endpoint

Json = dict[str, Any]

ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
PORT = 8000
"""Where visitors find it."""

_PACKAGE = "nginx"
# One second is enough between processes of one machine, and 504 is the answer of a controller that is kept away.
_MAIN = """\
daemon off;
user root;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    proxy_connect_timeout 1s;
    proxy_next_upstream off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {port} default_server;
        return 404;
    }}
{servers}
}}
"""
_SERVER = """\
    upstream {name} {{ {targets} }}
    server {{
        listen {port};
        server_name {host};
        location {path} {{ proxy_pass http://{name}; }}
    }}"""


def program() -> Path:
    """Return nginx: this machine's, or that of Debian's package, which is fetched once.

    Raises:
        RuntimeError: The package cannot be fetched, or a library that nginx needs is missing, with apt's message.
    """
    found = shutil.which("nginx")
    return Path(found) if found else debian.cached(_PACKAGE, _fetch) / "usr" / "sbin" / "nginx"


def _fetch(folder: Path) -> None:
    debian.fetch(_PACKAGE, folder=folder)
    debian.run("unpacked/usr/sbin/nginx", "-v", folder=folder)


class Nginx:
    """A running controller of the Ingresses of one class.

    Args:
        api: An administrator.
        cls: The class.
        folder: For its files.
        process: The program.
    """

    def __init__(self, api: Api, cls: str, folder: Path, process: asyncio.subprocess.Process) -> None:
        self._api = api
        self._cls = cls
        self._folder = folder
        self._process = process

    async def sync(self) -> int:
        """Make the Ingresses of the class the configuration, and return how many paths have a pod behind them."""
        ingresses = [
            each for each in await self._api.list(INGRESSES) if each["spec"].get("ingressClassName") == self._cls
        ]
        servers = [server for each in ingresses for server in await self._servers(each)]
        if _write(self._folder, servers):
            # Until the new processes have it, visitors get the answers of before.
            self._process.send_signal(signal.SIGHUP)
        return len(servers)

    async def _servers(self, ingress: Json) -> list[str]:
        namespace, uid = ingress["metadata"]["namespace"], ingress["metadata"]["uid"]
        rows = [(rule["host"], path) for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]]
        found: list[str] = []
        for number, (host, path) in enumerate(rows):
            targets = "".join(f"server {each};" for each in await self._targets(namespace, path["backend"]["service"]))
            if targets:
                name = f"{uid}-{number}"
                found.append(_SERVER.format(name=name, targets=targets, port=PORT, host=host, path=path["path"]))
        return found

    async def _targets(self, namespace: str, service: Json) -> list[str]:
        return [
            f"{address}:{slice_['ports'][0]['port']}"
            for slice_ in await self._api.list(ENDPOINT_SLICES, namespace)
            if slice_["metadata"]["labels"].get("kubernetes.io/service-name") == service["name"]
            for each in slice_["endpoints"]
            if each["conditions"].get("ready")
            for address in each["addresses"]
        ]


def _write(folder: Path, servers: list[str]) -> bool:
    """Write the configuration; return whether it changed."""
    file, text = folder / "nginx.conf", _MAIN.format(folder=folder, port=PORT, servers="\n".join(servers))
    if file.exists() and file.read_text() == text:
        return False
    file.write_text(text)
    return True


@asynccontextmanager
async def nginx(api: Api, pod: Endpoint, folder: Path, *, cls: str) -> AsyncGenerator[Nginx]:
    """Run nginx in a pod.

    Args:
        api: An administrator.
        pod: The pod of the controller.
        folder: For temporary files.
        cls: The class of its Ingresses.
    """
    binary = await asyncio.to_thread(program)
    _write(folder, [])
    arguments = ("-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log"))
    process = await asyncio.create_subprocess_exec("nsenter", f"--net={pod.place.path}", str(binary), *arguments)

    async def is_up() -> bool:
        assert process.returncode is None, (folder / "error.log").read_text()
        return (folder / "pid").exists()

    try:
        # Before nginx writes this file, it does not handle signals yet, and a reload would end it.
        await until(is_up, "nginx runs")
        yield Nginx(api, cls, folder, process)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), SECONDS)

"""Runs the containers of a Pod as processes of this machine, in place of kubelet: on clusters without nodes.

Pod, Secrets ─► a folder for each volume ─► the commands, with these folders for the paths of their mounts
─► ports at one loopback address, which becomes the Pod's address
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from testkit.api import PODS, SECRETS, Api

Json = dict[str, Any]


class PodProcesses:
    """The processes of Pods at one address.

    Args:
        host: The cluster.
        folder: An empty folder with a short path, because paths of Unix sockets are short.
        address: A loopback address that no other test has.
        programs: The programs and folders of this machine by their paths in the image.
        replaced: Other words of commands and files by what they are replaced with.
        further: Further arguments of containers, by their names.
    """

    def __init__(
        self,
        host: Api,
        folder: Path,
        address: str,
        programs: Mapping[str, Path],
        replaced: Mapping[str, str],
        *,
        further: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._host = host
        self._folder = folder
        self._programs = programs
        self._replaced = replaced
        self._further = further or {}
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.address = address

    @asynccontextmanager
    async def running(self, pod: Json) -> AsyncGenerator[None]:
        """Run the containers of a Pod while the context is open; volumes that are claims keep their files."""
        spec = pod["spec"]
        for each in spec["volumes"]:
            await self._fill(each)
        async with AsyncExitStack() as stack:
            for container in spec["containers"]:
                await stack.enter_async_context(self._process(container))
            yield

    async def ready(self, pod: Json) -> None:
        """Report a Pod as ready, at the address."""
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}], "conditions": conditions}
        meta = pod["metadata"]
        patch = {"status": status}
        await self._host.client.merge_patch(PODS, meta["namespace"], meta["name"], patch, subresource="status")

    def volume(self, name: str) -> Path:
        """Return the folder of a volume."""
        return self._folder / f"v-{name}"

    async def _fill(self, volume: Json) -> None:
        at = self.volume(volume["name"])
        if "emptyDir" in volume:
            shutil.rmtree(at, ignore_errors=True)
        at.mkdir(exist_ok=True)
        if (wanted := volume.get("secret")) is None:
            return
        found = await self._host.get(SECRETS, wanted["secretName"], PROCESS_NAMESPACE)
        for item in wanted.get("items") or [{"key": key, "path": key} for key in found["data"]]:
            file = at / item["path"]
            file.parent.mkdir(exist_ok=True)
            content = base64.b64decode(found["data"][item["key"]]).decode()
            sockets = {"/sockets": self.volume("sockets")}
            file.write_text(content if content.startswith("-----BEGIN") else self._local(content, sockets))

    def _local(self, text: str, mounts: Mapping[str, Path]) -> str:
        """Return a word of a command, or a file, with the paths and the ports of this machine."""
        paths = {**self._programs, **mounts}
        known = "|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True))
        text = re.sub(rf'(?<![\w.-])({known})(?=[/",]|$)', lambda found: str(paths[found[1]]), text)
        for word, other in self._replaced.items():
            text = text.replace(word, other)
        return re.sub(r"(?<=[=/])(0\.0\.0\.0)?:(?=\d{4}\b)|^:(?=\d{4}$)", f"{self.address}:", text)

    @asynccontextmanager
    async def _process(self, container: Json) -> AsyncGenerator[None]:
        sources = {
            each["mountPath"]: self.volume(each["name"]) / each.get("subPath", "") for each in container["volumeMounts"]
        }
        # A mount within another one is a link there.
        within = {path: above for path in sources for above in sources if path.startswith(f"{above}/")}
        for path, above in within.items():
            link = sources[above] / path.removeprefix(f"{above}/")
            link.unlink(missing_ok=True)
            link.symlink_to(sources[path])
        mounts = {path: source for path, source in sources.items() if path not in within}
        environment = os.environ | {each["name"]: each["value"] for each in container.get("env", ())}
        name: str = container["name"]
        with self._log(name).open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(self._local(each, mounts) for each in container["command"]),
                *self._further.get(name, ()),
                stdout=output,
                stderr=output,
                cwd=mounts.get(container.get("workingDir", ""), self._folder),
                env=environment,
            )
        self._running[name] = process
        try:
            yield
        finally:
            del self._running[name]
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _log(self, container: str) -> Path:
        return self._folder / f"{container}.log"

    def check(self) -> None:
        """Check that all containers run.

        Raises:
            AssertionError: One has ended, with its last words.
        """
        for name, process in self._running.items():
            if process.returncode is not None:
                raise AssertionError(f"{name} has ended: {self._log(name).read_text(errors='replace')[-2000:]}")

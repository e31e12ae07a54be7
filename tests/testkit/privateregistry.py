"""A registry of images behind a password, as a process in the network of a real node.

It listens on the node's own 127.0.0.1, with which containerd speaks plain HTTP.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tarfile
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tenantry.local import build
from tenantry.local.progress import SilentProgress
from tenantry.local.real import images
from tenantry.local.real.images import ImageRecipe
from testkit.realpods import RealPods

Json = dict[str, Any]
ADDRESS = "127.0.0.1:5000"
USER, PASSWORD = "acme", "of-acme"
_REPOSITORY = "acme/private"
_START_SECONDS = 30.0

IMAGE = f"{ADDRESS}/{_REPOSITORY}:1"
"""The image that the registry has."""


@asynccontextmanager
async def registry(pods: RealPods, place: str, folder: Path) -> AsyncGenerator[None]:
    """Run a registry that has `IMAGE` on a node.

    Args:
        pods: Of the cluster.
        place: The node.
        folder: For temporary files.
    """
    binaries = await asyncio.to_thread(build.ensure, SilentProgress(), build.REGISTRY)
    entered = (shutil.which("nsenter") or "nsenter", f"--target={pods.pid(place)}", "--net")
    process = await asyncio.create_subprocess_exec(
        *(*entered, str(binaries.folder / "registry"), ADDRESS, USER, PASSWORD), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            assert (await process.stdout.readline()).startswith(b"serving")
        recipe = ImageRecipe(
            reference="tenantry.local/private:1",
            files={"/pause": Path(pods.cluster.real().binaries) / "node-pause"},
            entrypoint=("/pause",),
        )
        target = folder / "private.tar"
        await asyncio.to_thread(images.write, recipe, target)
        await asyncio.to_thread(pods.inside, place, lambda: _push(target))
        yield
    finally:
        process.terminate()
        await process.wait()


def pull_secret(password: str = PASSWORD) -> Json:
    """Return a Secret with credentials of the registry."""
    login = {"auths": {ADDRESS: {"username": USER, "password": password}}}
    return {
        "metadata": {"name": "registry"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": json.dumps(login)},
    }


def _push(layout: Path) -> None:
    """Upload an image in a tar file (OCI distribution specification, "Push")."""
    with tarfile.open(layout) as tar:
        whole = {each.name: found.read() for each in tar if (found := tar.extractfile(each)) is not None}
    manifest = json.loads(whole["index.json"])["manifests"][0]
    blobs = {name.replace("blobs/sha256/", "sha256:"): data for name, data in whole.items() if "blobs/" in name}
    for digest, data in blobs.items():
        if digest != manifest["digest"]:
            _send("POST", f"blobs/uploads/?digest={digest}", data, "application/octet-stream")
    _send("PUT", "manifests/1", blobs[manifest["digest"]], manifest["mediaType"])


def _send(verb: str, path: str, data: bytes, kind: str) -> None:
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": kind}
    asked = urllib.request.Request(f"http://{ADDRESS}/v2/{_REPOSITORY}/{path}", data, headers, method=verb)
    with urllib.request.urlopen(asked) as answer:  # noqa: S310 - likewise
        answer.read()

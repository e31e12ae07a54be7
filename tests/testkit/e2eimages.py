"""The images of Kubernetes' conformance tests, made of our own programs and of Debian's: no registry is asked.

Those with a shell share one file system, and so one layer, which a node keeps once: agnhost, BusyBox, and what tests
call beside them (dig, curl, nc, ss, getent). The tests find the images by a file that maps registries to
`tenantry.local`.

Source: Kubernetes, test/utils/image/manifest.go and test/images.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import yaml

from tenantry.local import build
from tenantry.local.progress import SilentProgress
from tenantry.local.real import images, loading
from tenantry.local.real.images import ImageRecipe
from testkit import debian, modules
from testkit.realpods import RealPods

REGISTRY = "tenantry.local/e2e"
VARIABLE = "KUBE_TEST_REPO_LIST"
"""The environment variable with the file of registries, which the tests read when they start."""

_REGISTRIES = (
    *("promoterE2eRegistry", "buildImageRegistry", "gcEtcdRegistry", "gcRegistry", "sigStorageRegistry"),
    *("dockerLibraryRegistry", "cloudProviderGcpRegistry"),
)
# No image is there.
_ABSENT = {"invalidRegistry": "tenantry.local/invalid", "privateRegistry": "tenantry.local/private"}
_PACKAGES = ("busybox-static", "curl", "bind9-dnsutils", "libc-bin", "netcat-openbsd", "iproute2", "bash")
_TEXTS = {
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "data.json": '{"image": "nautilus.jpg"}\n',
}
_CERTIFICATES = ("localhost.crt", "localhost.key")
"""Beside agnhost: probes read one of them, and a server of tests uses both."""
_CHOSEN = {"nc": "nc.openbsd", "sh": "bash"}
"""What Debian's alternatives lead to: BusyBox has fewer options, and its shell drops variables with dashes."""
_SETUID = 0o4755


def write_registries(folder: Path) -> Path:
    """Write the file that maps the registries of the tests, and return it."""
    target = folder / "registries.yaml"
    target.write_text(yaml.safe_dump(dict.fromkeys(_REGISTRIES, REGISTRY) | _ABSENT))
    return target


async def load(pods: RealPods, program: build.Binaries, registries: Path, folder: Path) -> list[str]:
    """Make the images that conformance tests use, import them on all nodes, and return their references.

    Args:
        pods: Of the cluster.
        program: The folder of the tests' program.
        registries: The file of `write_registries`.
        folder: For temporary files.
    """
    recipes = await _recipes(pods, program, registries, folder)
    real = pods.cluster.real()
    names = [each.name for each in real.nodes]
    target = folder / "image.tar"
    await asyncio.to_thread(images.write_all, recipes, target)
    await loading.load(pods.cluster.paths, real.binaries, names, target, f"{REGISTRY}/all:1")
    target.unlink()
    return [each.reference for each in recipes]


async def _recipes(pods: RealPods, program: build.Binaries, registries: Path, folder: Path) -> tuple[ImageRecipe, ...]:
    agnhost = await asyncio.to_thread(build.ensure, SilentProgress(), build.AGNHOST)
    system = await asyncio.to_thread(debian.cached, "e2e-images", _fill)
    files = {f"/{each.name}": each for each in system.iterdir()}
    files |= {f"/{name}": agnhost.folder / "agnhost" for name in ("agnhost", "agnhost-2")}
    kubernetes = await asyncio.to_thread(modules.folder, "conformance", "k8s.io/kubernetes")
    files |= {f"/{name}": kubernetes / "test" / "images" / "agnhost" / "porter" / name for name in _CERTIFICATES}
    raised = folder / "nnp"
    shutil.copyfile(program.folder / "nonewprivs", raised)
    raised.chmod(_SETUID)
    control_plane = build.ensure(SilentProgress()).controlplane

    def of(place: str, source: Path) -> Callable[[str], ImageRecipe]:
        return lambda reference: ImageRecipe(reference=reference, files={place: source}, entrypoint=(place,))

    def system_with(entrypoint: tuple[str, ...], command: tuple[str, ...] = ()) -> Callable[[str], ImageRecipe]:
        return lambda reference: ImageRecipe(reference=reference, files=files, entrypoint=entrypoint, command=command)

    made: dict[str, Callable[[str], ImageRecipe]] = {
        "agnhost": system_with(("/agnhost",), ("pause",)),
        "busybox": system_with((), ("sh",)),
        "etcd": of("/usr/local/bin/etcd", control_plane),
        "glibc-dns-testing": system_with((), ("sh",)),
        # A server of files at port 80 is all that tests expect of it.
        "nginx": system_with(("/agnhost", "test-webserver")),
        "nautilus": system_with(("/agnhost", "test-webserver")),
        "nonewprivs": lambda reference: ImageRecipe(
            reference=reference, files={"/usr/local/bin/nnp": raised}, command=("nnp",)
        ),
        "pause": of("/pause", Path(pods.cluster.real().binaries) / "node-pause"),
        "sample-apiserver": of("/sample-apiserver", program.folder / "sample-apiserver"),
    }
    listed = await _listed(program, registries)
    names = {each: each.rpartition("/")[2].partition(":")[0] for each in listed}
    return tuple(made[name](each) for each, name in names.items() if name in made)


async def _listed(program: build.Binaries, registries: Path) -> list[str]:
    """Return the images that the tests name."""
    process = await asyncio.create_subprocess_exec(
        *(program.conformance, "--list-images"),
        env={VARIABLE: str(registries)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    return sorted(each for each in set(out.decode().splitlines()) if each.startswith(f"{REGISTRY}/"))


def _fill(folder: Path) -> None:
    debian.fetch(*_PACKAGES, folder=folder, with_dependencies=True)
    root = folder / "unpacked"
    for each in ("usr/share", "usr/include", "var", "etc", "usr/lib/systemd", "lib/systemd"):
        shutil.rmtree(root / each, ignore_errors=True)
    for each in [found for found in root.rglob("*") if found.is_symlink() and found.readlink().is_absolute()]:
        # Otherwise, the image would get the file of this machine.
        source = root / each.readlink().relative_to("/")
        each.unlink()
        if source.is_file():
            shutil.copy2(source, each)
    for each in ("bin", "sbin", "lib", "lib64"):
        # Newer releases have these folders below /usr only, and links are not kept in images.
        if not (root / each).exists() and (root / "usr" / each).is_dir():
            shutil.copytree(root / "usr" / each, root / each)
    for name, text in _TEXTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    _add_applets(root)


def _add_applets(root: Path) -> None:
    """Give BusyBox's applets a name each: a script instead of a link, because images have no links."""
    known = [root / place for place in ("bin", "sbin", "usr/bin", "usr/sbin")]
    for name, program in _CHOSEN.items():
        shutil.copy2(root / "bin" / program, root / "bin" / name)
    for applet in debian.run(str(root / "bin" / "busybox"), "--list", folder=root).split():
        if any((place / applet).exists() for place in known):
            continue
        script = root / "bin" / applet
        script.write_text(f'#!/bin/sh\nexec /bin/busybox {applet} "$@"\n')
        script.chmod(0o755)

"""Builds OCI images from files of this machine, with no registry and no daemon: an image layout in one tar file.

Source: OCI image format specification, image-layout.md, manifest.md and config.md.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tenantry.api.errors import InputError, LocalError
from tenantry.api.model import Json

_REFERENCE = re.compile(r"[a-z0-9.-]+\.[a-z0-9.-]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)+:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "var")
_TEXTS = {
    "etc/passwd": "root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/:/\n",
    "etc/group": "root:x:0:\nnobody:x:65534:\n",
}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class ImageRecipe:
    """The contents of an image.

    Args:
        reference: Its name with a registry and a tag, such as "tenantry.local/web:1".
        files: From a path in the image to a file or folder of this machine. Links in a folder that lead to other places
            in it stay links.
        entrypoint: The program and its first arguments.
        command: Arguments that a pod may replace.
        user: The user that runs it, as a number or "number:number"; "" for root.
        environment: Variables beside PATH.
        labels: Annotations of OCI, such as "org.opencontainers.image.title".
        compression: The level of gzip, 1 to 9. The default is fast rather than small: most images never leave this
            machine.
    """

    reference: str
    files: dict[str, Path] = field(default_factory=dict[str, Path])
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    compression: int = 1


def check_reference(reference: str) -> str:
    """Return the reference if a pod can use it and containerd would not prepend a registry to it.

    Raises:
        InputError: The reference is invalid: what it must be.
    """
    if not _REFERENCE.fullmatch(reference):
        raise InputError(f'"{reference}" must be HOST/NAME:TAG with a dot in HOST, such as "tenantry.local/web:1"')
    return reference


def write(recipe: ImageRecipe, target: Path) -> None:
    """Write an image as a tar file, atomically; the same files give the same bytes.

    Raises:
        InputError: The reference is invalid.
        LocalError: A file cannot be read.
    """
    write_all([recipe], target)


def write_all(recipes: Sequence[ImageRecipe], target: Path) -> None:
    """Write images as one tar file, as `write` does; those with the same files share a layer.

    Raises:
        InputError: A reference is invalid.
        LocalError: A file cannot be read.
    """
    layers: dict[tuple[int, tuple[tuple[str, Path], ...]], _Layer] = {}
    images: list[tuple[ImageRecipe, _Layer]] = []
    for recipe in recipes:
        check_reference(recipe.reference)
        files = (recipe.compression, tuple(sorted(recipe.files.items())))
        try:
            layer = layers.get(files) or _layer(recipe.files, recipe.compression)
        except OSError as error:
            raise LocalError(f'the image "{recipe.reference}" cannot be made: {error}') from error
        layers[files] = layer
        images.append((recipe, layer))
    unfinished = target.with_name(f".{target.name}")
    unfinished.write_bytes(_layout(images))
    unfinished.replace(target)


def architecture() -> str:
    """Return the architecture of the images that are made here, as OCI names it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def file_name(reference: str) -> str:
    """Return the file name of an image."""
    return reference.replace("/", "_").replace(":", "_") + ".tar"


def reference_of(file: Path) -> str:
    """Return the name of the image in a tar file.

    Raises:
        InputError: The file is not an image layout, or does not hold exactly one image with a name.
    """
    try:
        with tarfile.open(file) as tar:
            member = tar.extractfile("index.json")
            index: Json = json.loads(member.read()) if member else {}
        names = [each.get("annotations", {}).get("io.containerd.image.name", "") for each in index["manifests"]]
    except (OSError, tarfile.TarError, KeyError, ValueError, AttributeError) as error:
        raise InputError(f'"{file}" must be an OCI image layout in a tar file: {error}') from error
    if len(names) != 1 or not names[0]:
        raise InputError(f'"{file}" must hold one image with the annotation "io.containerd.image.name"')
    return check_reference(str(names[0]))


@dataclass(frozen=True)
class _Layer:
    """The files of an image.

    Args:
        digest: Of the files before they are compressed.
        data: The compressed files.
    """

    digest: str
    data: bytes


def _layer(files: dict[str, Path], compression: int) -> _Layer:
    entries: dict[str, Path | bytes | str | None] = dict.fromkeys(_FOLDERS)
    entries |= {name: text.encode() for name, text in _TEXTS.items()}
    for place, source in files.items():
        for name, file in _found(place.strip("/"), source):
            entries |= {str(above): None for above in PurePosixPath(name).parents if str(above) not in (".", *entries)}
            entries[name] = file
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(entries.items()):
            _add(tar, name, content)
    data = out.getvalue()
    return _Layer(hashlib.sha256(data).hexdigest(), gzip.compress(data, compression, mtime=0))


def _found(place: str, source: Path) -> Iterator[tuple[str, Path | str]]:
    """Yield the files of a source by their places, and the targets of the links that stay links."""
    if not source.is_dir():
        yield place, source
        return
    inside = source.resolve()
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        name = f"{place}/{file.relative_to(source)}".lstrip("/")
        target = file.readlink() if file.is_symlink() else None
        if target is None or target.is_absolute() or not file.resolve().is_relative_to(inside):
            yield name, file
        else:
            yield name, str(target)


def _add(tar: tarfile.TarFile, name: str, content: Path | bytes | str | None) -> None:
    """Add a file, a link (a string), or a folder (None)."""
    about = tarfile.TarInfo(name)
    if isinstance(content, str):
        about.type, about.linkname, about.mode = tarfile.SYMTYPE, content, 0o777
        tar.addfile(about)
        return
    if content is None:
        about.type, about.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        tar.addfile(about)
        return
    # Any user of a container must be able to read them, whatever the umask of their author was.
    mode = content.stat().st_mode if isinstance(content, Path) else 0
    # Programs keep the bit by which they run as their owner, which is root in the image.
    about.mode = 0o755 | (mode & stat.S_ISUID) if mode & stat.S_IXUSR else 0o644
    data = content if isinstance(content, bytes) else content.read_bytes()
    about.size = len(data)
    tar.addfile(about, io.BytesIO(data))


def _layout(images: Sequence[tuple[ImageRecipe, _Layer]]) -> bytes:
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> Json:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    machine = {"architecture": architecture(), "os": "linux"}

    def manifest(recipe: ImageRecipe, layer: _Layer) -> Json:
        said = {
            "Env": [
                "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                *(f"{name}={value}" for name, value in sorted(recipe.environment.items())),
            ],
            "Entrypoint": list(recipe.entrypoint),
            "Cmd": list(recipe.command),
            "User": recipe.user,
            "WorkingDir": "/",
            "Labels": recipe.labels,
        }
        config = machine | {
            "created": "1970-01-01T00:00:00Z",
            "config": {key: value for key, value in said.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}"]},
        }
        found = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": blob(_text(config), "application/vnd.oci.image.config.v1+json"),
            "layers": [blob(layer.data, "application/vnd.oci.image.layer.v1.tar+gzip")],
        }
        names = {
            "io.containerd.image.name": recipe.reference,
            "org.opencontainers.image.ref.name": recipe.reference.rpartition(":")[2],
        }
        return blob(_text(found), _MANIFEST) | {"platform": machine, "annotations": names}

    manifests = [manifest(recipe, layer) for recipe, layer in images]
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    files = {"oci-layout": _text({"imageLayoutVersion": "1.0.0"}), "index.json": _text(index)}
    return _tar([*files.items(), *((f"blobs/sha256/{digest}", data) for digest, data in blobs.items())])


def _text(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: Iterable[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files:
            _add(tar, name, data)
    return out.getvalue()

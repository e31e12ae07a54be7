"""Unpack packages of Debian into a folder that becomes an image: Python without a shell or a package manager.

    apt-get download ─► dpkg-deb ─► folder, without documentation
                                └► components of a bill of materials

apt checks the signatures of the archive. No script of a package runs, and no rights are needed.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RELEASE = "bookworm"
PYTHON = "python3.11"
PACKAGES = (
    "ca-certificates",
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "media-types",
    "netbase",
    "python3.11-minimal",
    "tzdata",
    "zlib1g",
)
"""What Python and the wheels need. dpkg, perl and a shell, which they depend on to be installed, are not among them."""
NFTABLES = (
    "libbsd0",
    "libedit2",
    "libgmp10",
    "libjansson4",
    "libmd0",
    "libmnl0",
    "libnftables1",
    "libnftnl11",
    "libtinfo6",
    "libxtables12",
    "nftables",
)
"""What nft needs beside those."""
NFT = "usr/sbin/nft"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_UNUSED = (
    "etc/ca-certificates",
    "usr/sbin",
    "usr/share/bug",
    "usr/share/gcc",
    "usr/share/gdb",
    "usr/share/lintian",
    "usr/share/man",
    "usr/share/binfmts",
    "usr/lib/binfmt.d",
    "usr/lib/valgrind",
    "usr/lib/python3.11/lib2to3",
    "usr/lib/python3.11/pydoc_data",
)
_SECONDS = 300


class DebianError(Exception):
    """What is wrong, and what to do."""


@dataclass(frozen=True)
class Package:
    """A package of Debian.

    Args:
        name: Its name.
        version: Its version, with the epoch.
        architecture: Such as "amd64", or "all".
        file: The file.
    """

    name: str
    version: str
    architecture: str
    file: Path

    def component(self) -> dict[str, Any]:
        """Return it as a component of a bill of materials. Source: package-url, type "deb"."""
        version = self.version.replace(":", "%3A").replace("+", "%2B")
        purl = f"pkg:deb/debian/{self.name.replace('+', '%2B')}@{version}?arch={self.architecture}&distro={RELEASE}"
        digest = hashlib.sha256(self.file.read_bytes()).hexdigest()
        return {
            "type": "library",
            "bom-ref": purl,
            "name": self.name,
            "version": self.version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }


def require_release() -> None:
    """Check that apt of this machine has the packages.

    Raises:
        DebianError: This is another system.
    """
    about = Path("/etc/os-release")
    lines = about.read_text().splitlines() if about.exists() else []
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    if found.get("VERSION_CODENAME") != RELEASE or found.get("ID") != "debian":
        here = found.get("PRETTY_NAME", "another system").strip('"')
        raise DebianError(
            f"the operator's image is made from packages of Debian 12 ({RELEASE}), and this is {here}: run it on "
            "Debian 12, give --packages, or build from Containerfile"
        )


def fetch(folder: Path, names: Sequence[str] = PACKAGES) -> list[Package]:
    """Download the current versions of packages into a folder, unless it has a version of each, and return them.

    Raises:
        DebianError: apt cannot download them, or the folder has two versions of one.
    """
    have = {each.name for each in _read_all(folder)}
    missing = [name for name in names if name not in have]
    if missing:
        require_release()
        # As root, apt drops its rights for the download, and the user `_apt` cannot write here.
        _run("apt-get", "download", "--quiet", "--option", "APT::Sandbox::User=root", *missing, folder=folder)
    found = _read_all(folder)
    chosen = [each for each in found if each.name in names]
    twice = sorted({each.name for each in chosen if sum(other.name == each.name for other in chosen) > 1})
    if twice:
        raise DebianError(f"{folder} has two versions of {', '.join(twice)}: delete one, or give an empty folder")
    return sorted(chosen, key=lambda each: each.name)


def _read_all(folder: Path) -> list[Package]:
    return [_read(file) for file in sorted(folder.glob("*.deb"))]


def _read(file: Path) -> Package:
    form = "${Package}\n${Version}\n${Architecture}"
    name, version, architecture = _run("dpkg-deb", "--show", f"--showformat={form}", str(file)).split("\n")
    return Package(name, version, architecture, file)


def unpack(packages: Sequence[Package], root: Path) -> None:
    """Unpack packages into a folder, and write the file of certificates that OpenSSL reads.

    Scanners of images find the versions below var/lib/dpkg/status.d, where images without dpkg have them.

    Raises:
        DebianError: A package is damaged, or has a file that is outside of the folder.
    """
    for package in packages:
        _unpack(package, root)
        status = root / "var/lib/dpkg/status.d" / package.name
        status.parent.mkdir(parents=True, exist_ok=True)
        status.write_text(_run("dpkg-deb", "--field", str(package.file)) + "\n")
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    if not authorities:
        raise DebianError("ca-certificates has no certificates: is it another version?")
    target = root / CERTIFICATES
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{each.read_text().strip()}\n" for each in authorities))


def _unpack(package: Package, root: Path) -> None:
    data = _call("dpkg-deb", "--fsys-tarfile", str(package.file))
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in _used(tar):
                _write(tar, member, root)
    except (tarfile.TarError, OSError) as error:
        raise DebianError(f"{package.file} cannot be unpacked: {error}") from error


def _used(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in tar:
        member.name = member.name.removeprefix("./").strip("/")
        parts = Path(member.name).parts
        if ".." in parts:
            raise tarfile.TarError(f'"{member.name}" leads out of the package')
        is_text = member.name.startswith("usr/share/doc/") and not member.name.endswith("/copyright")
        is_unused = any(member.name == each or member.name.startswith(f"{each}/") for each in _UNUSED)
        if not is_text and (not is_unused or member.name == NFT):
            yield member


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    target = root / member.name
    if member.isdir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(root.resolve()):
        raise tarfile.TarError(f'"{member.name}" leads out of the package')
    if member.issym():
        # A link to "/lib/x" leads to this machine's file until the folder is the root.
        above = Path("/") / Path(member.name).parent
        where = os.path.relpath(member.linkname, above) if member.linkname.startswith("/") else member.linkname
        if os.path.normpath(Path(member.name).parent / where).startswith(".."):
            raise tarfile.TarError(f'the link "{member.name}" leads out of the package')
        target.symlink_to(where)
        return
    content = tar.extractfile(member) if member.isfile() else None
    if content is None:
        raise tarfile.TarError(f'"{member.name}" is neither a file nor a link')
    with target.open("xb") as file:
        file.write(content.read())
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _run(*command: str, folder: Path | None = None) -> str:
    return _call(*command, folder=folder).decode().strip()


def _call(*command: str, folder: Path | None = None) -> bytes:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=_SECONDS)
    except FileNotFoundError as error:
        raise DebianError(f"there is no {command[0]} on this machine: the image is made on Debian 12") from error
    if done.returncode:
        raise DebianError(f"`{' '.join(command)}` failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout

"""Packages of Debian that become an image: what is left out, and what is refused."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from testkit import tools

debian = tools.load("debian")
pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")

CONTROL = "Package: web\nVersion: 1:2.0+b1\nArchitecture: all\nMaintainer: t <t@example.com>\nDescription: t\n"


def package(folder: Path, members: list[tarfile.TarInfo]) -> Any:  # noqa: ANN401 - a class of tools/, which is no package
    """Return a package with these members; files have the content "x". Source: deb(5)."""

    def packed(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for about, data in entries:
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
        return out.getvalue()

    control = packed([(tarfile.TarInfo("control"), CONTROL.encode())])
    data = packed([(each, b"x" if each.isfile() else b"") for each in members])
    file = folder / "web.deb"
    with file.open("wb") as out:
        out.write(b"!<arch>\n")
        for name, content in (("debian-binary", b"2.0\n"), ("control.tar.gz", control), ("data.tar.gz", data)):
            out.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content)
            out.write(b"\n" * (len(content) % 2))
    (found,) = debian.fetch(folder, ("web",))
    return found


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    """Return a member."""
    about = tarfile.TarInfo(name)
    about.type, about.linkname, about.mode = kind, link, mode
    return about


AUTHORITY = entry("./usr/share/ca-certificates/mozilla/a.crt")


def test_what_no_program_reads_is_left_out(tmp_path: Path) -> None:
    members = [
        entry("./usr/bin/web", mode=0o4755),
        entry("./lib64/ld.so", tarfile.SYMTYPE, "/lib/ld.so.1"),
        entry("./lib/ld.so.1"),
        entry("./usr/share/doc/web/copyright"),
        entry("./usr/share/doc/web/changelog.gz"),
        entry("./usr/share/man/man1/web.1.gz"),
        AUTHORITY,
    ]
    found, root = package(tmp_path, members), tmp_path / "root"
    debian.unpack([found], root)
    files = {str(each.relative_to(root)) for each in root.rglob("*") if not each.is_dir()}
    status = "var/lib/dpkg/status.d/web"
    assert files == {
        *(
            "usr/bin/web",
            "lib64/ld.so",
            "lib/ld.so.1",
            "usr/share/doc/web/copyright",
            AUTHORITY.name.removeprefix("./"),
            status,
        ),
        debian.CERTIFICATES,
    }
    assert (root / "lib64/ld.so").readlink() == Path("../lib/ld.so.1")
    # No program of the image runs as its owner, root.
    assert (root / "usr/bin/web").stat().st_mode & 0o7777 == 0o755
    assert "Version: 1:2.0+b1" in (root / status).read_text()


@pytest.mark.parametrize(
    "members",
    [
        [entry("../outside")],
        [entry("usr/../../outside")],
        [entry("link", tarfile.SYMTYPE, "../outside")],
        [entry("usr", tarfile.SYMTYPE, ".."), entry("usr/outside")],
        [entry("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [entry("device", tarfile.CHRTYPE)],
    ],
    ids=["above", "above-inside", "link", "through-a-link", "hard-link", "device"],
)
def test_a_package_that_leads_out_of_its_folder_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    found, root = package(tmp_path, [*members, AUTHORITY]), tmp_path / "a" / "root"
    root.mkdir(parents=True)
    with pytest.raises(debian.DebianError, match=r"web\.deb cannot be unpacked"):
        debian.unpack([found], root)
    assert not list(tmp_path.rglob("outside"))


def test_packages_without_certificates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(debian.DebianError, match="no certificates"):
        debian.unpack([package(tmp_path, [entry("usr/bin/web")])], tmp_path / "root")


def test_two_versions_of_a_package_are_refused(tmp_path: Path) -> None:
    package(tmp_path, [AUTHORITY])
    shutil.copy(tmp_path / "web.deb", tmp_path / "older.deb")
    with pytest.raises(debian.DebianError, match="two versions of web"):
        debian.fetch(tmp_path, ("web",))


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web.deb").write_bytes(b"nonsense")
    with pytest.raises(debian.DebianError, match="dpkg-deb"):
        debian.fetch(tmp_path, ("web",))


def test_a_package_is_named_as_package_url_does(tmp_path: Path) -> None:
    found = package(tmp_path, [AUTHORITY])
    component = found.component()
    assert component["purl"] == "pkg:deb/debian/web@1%3A2.0%2Bb1?arch=all&distro=bookworm"
    digest = hashlib.sha256((tmp_path / "web.deb").read_bytes()).hexdigest()
    assert component["hashes"] == [{"alg": "SHA-256", "content": digest}]

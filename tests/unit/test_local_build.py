"""Finding a Go toolchain and naming builds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tenantry.api.errors import LocalError
from tenantry.local import build, complaints, sources, toolchain


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.27rc1 linux/arm64", (1, 27)),
        ("go version go2.0 linux/amd64", (2, 0)),
        ("go version devel go1.28-abcdef Mon", (1, 28)),
        ("go version go1.9 linux/amd64", (1, 9)),
        ("", None),
        ("command not found", None),
        ("gopher 1.26", None),
    ],
)
def test_versions_of_go(text: str, version: tuple[int, int] | None) -> None:
    assert toolchain.parse_version(text) == version


def test_an_old_go_is_too_old() -> None:
    """As numbers: 1.9 comes before 1.26."""
    old = toolchain.parse_version("go version go1.9 linux/amd64")
    assert old is not None
    assert old < toolchain.NEEDED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("link: /tmp/x: no space left on device", "disk is full"),
        ('Get "https://proxy/x": dial tcp: lookup proxy: no such host', "GOPROXY"),
        ("go: x@v1: verifying module: checksum mismatch", "not the one that was locked"),
        ("k8s.io/x: /usr/lib/go/pkg/tool/compile: signal: killed", "3 GiB"),
        ("main.go:3: undefined: x", ""),
    ],
)
def test_what_to_do_about_a_failed_build(text: str, words: str) -> None:
    assert words in complaints.hint(text)
    assert bool(complaints.hint(text)) == bool(words)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for module in ("controlplane", "kwok"):
        shutil.copytree(sources.root() / "go" / module, tmp_path / "go" / module)
    return tmp_path


def test_the_same_sources_have_the_same_fingerprint(copy: Path) -> None:
    assert build.fingerprint(copy) == build.fingerprint(sources.root())


@pytest.mark.parametrize("file", ["controlplane/main.go", "controlplane/go.sum", "kwok/go.mod"])
def test_other_sources_have_another_fingerprint(copy: Path, file: str) -> None:
    before = build.fingerprint(copy)
    with (copy / "go" / file).open("a") as text:
        text.write("// more\n")
    assert build.fingerprint(copy) != before


def test_tests_do_not_change_the_fingerprint(copy: Path) -> None:
    before = build.fingerprint(copy)
    (copy / "go" / "controlplane" / "more_test.go").write_text("package main\n")
    assert build.fingerprint(copy) == before


def test_the_version_comes_from_the_module_file() -> None:
    text = "require (\n\tk8s.io/kubernetes v1.36.3\n\tk8s.io/kubectl v0.36.3 // indirect\n)\n"
    assert build.module_version(text, "k8s.io/kubernetes") == "v1.36.3"
    with pytest.raises(LocalError, match=r"does not require \"k8s.io/kube\""):
        build.module_version(text, "k8s.io/kube")

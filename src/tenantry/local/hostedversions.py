"""The programs of hosted control planes on this machine, one for each version of Kubernetes.

    go/hosted/go.mod        the default version
    go/hosted/go-1.35.mod   another one: the same sources, with other versions of the modules (`go build -modfile`)

A program is built on request and kept in the cache, named by its sources and its version.
"""

from __future__ import annotations

import functools
import re

from tenantry.api.errors import LocalError
from tenantry.hosting import versions
from tenantry.hosting.versions import HostedVersion
from tenantry.local import build, sources
from tenantry.local.build import Binaries, Product

_MODULE = "k8s.io/kubernetes"
_OTHER = re.compile(r"go-\d+\.\d+\.mod")


def known() -> tuple[HostedVersion, ...]:
    """Return the versions that can be built, the oldest first.

    Raises:
        LocalError: The sources are incomplete.
    """
    found = [_version(file) for file in _files()]
    return tuple(sorted(found, key=lambda each: [int(part) for part in each.name.split(".")]))


def product(name: str) -> Product:
    """Return the program of a version.

    Args:
        name: As in "1.36"; "" for the default.

    Raises:
        InputError: There is no such version: the message lists those that there are.
    """
    found = versions.find(known(), name)
    return build.HOSTED if found.is_default else build.hosted(found.name)


def products() -> tuple[Product, ...]:
    """Return the programs of all versions, the oldest first."""
    return tuple(product(each.name) for each in known())


def built(name: str) -> Binaries:
    """Return the program of a version.

    Args:
        name: As for `product`.

    Raises:
        InputError: There is no such version.
        LocalError: It is not built: what to do.
    """
    wanted = product(name)
    found = build.built(wanted)
    if found is None:
        flag = "--with-hosted" if wanted is build.HOSTED else f"--hosted-version {name}"
        raise LocalError(
            f"the program of {wanted.title} is not built on this machine: run `tenantry local build {flag}`"
        )
    return found


@functools.cache
def _files() -> tuple[str, ...]:
    folder = sources.root() / "go" / "hosted"
    return ("go.mod", *sorted(each.name for each in folder.glob("go-*.mod") if _OTHER.fullmatch(each.name)))


@functools.cache
def _version(file: str) -> HostedVersion:
    text = (sources.root() / "go" / "hosted" / file).read_text()
    kubernetes = build.module_version(text, _MODULE).removeprefix("v")
    return HostedVersion(name=versions.minor(kubernetes), kubernetes=kubernetes, is_default=file == "go.mod")

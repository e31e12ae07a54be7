"""The versions of Kubernetes that the programs of one Go module can have.

    go/hosted/go.mod        the default version
    go/hosted/go-1.35.mod   another one: the same sources, with other versions of the modules (`go build -modfile`)

A program is built on request and kept in the cache, named by its sources and its version.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from tenantry.hosting import versions
from tenantry.hosting.versions import HostedVersion
from tenantry.local import build, sources
from tenantry.local.build import Product

_MODULE = "k8s.io/kubernetes"
_OTHER = re.compile(r"go-\d+\.\d+\.mod")


class ModuleVersions:
    """The versions of one module.

    Args:
        folder: Of the module, below go/.
        default: What is built of the default version.
        other: Returns what is built of another one, as in "1.35".
    """

    def __init__(self, folder: str, default: Product, other: Callable[[str], Product]) -> None:
        self._folder = folder
        self._default = default
        self._other = other

    def known(self) -> tuple[HostedVersion, ...]:
        """Return the versions that can be built, the oldest first.

        Raises:
            LocalError: The sources are incomplete.
        """
        found = [_version(self._folder, file) for file in _files(self._folder)]
        return tuple(sorted(found, key=lambda each: [int(part) for part in each.name.split(".")]))

    def find(self, name: str) -> HostedVersion:
        """Return a version by its name.

        Args:
            name: As in "1.36"; "" for the default.

        Raises:
            InputError: There is no such version: the message lists those that there are.
        """
        return versions.find(self.known(), name)

    def product(self, name: str) -> Product:
        """Return the programs of a version; argument and error as `find`."""
        found = self.find(name)
        return self._default if found.is_default else self._other(found.name)

    def products(self) -> tuple[Product, ...]:
        """Return the programs of all versions, the oldest first."""
        return tuple(self.product(each.name) for each in self.known())


@functools.cache
def _files(folder: str) -> tuple[str, ...]:
    found = (sources.root() / "go" / folder).glob("go-*.mod")
    return ("go.mod", *sorted(each.name for each in found if _OTHER.fullmatch(each.name)))


@functools.cache
def _version(folder: str, file: str) -> HostedVersion:
    text = (sources.root() / "go" / folder / file).read_text()
    kubernetes = build.module_version(text, _MODULE).removeprefix("v")
    return HostedVersion(name=versions.minor(kubernetes), kubernetes=kubernetes, is_default=file == "go.mod")

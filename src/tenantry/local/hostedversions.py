"""The programs of hosted control planes on this machine, one for each version of Kubernetes; see `moduleversions`."""

from __future__ import annotations

from tenantry.api.errors import LocalError
from tenantry.hosting.versions import HostedVersion
from tenantry.local import build
from tenantry.local.build import Binaries, Product
from tenantry.local.moduleversions import ModuleVersions

_VERSIONS = ModuleVersions("hosted", build.HOSTED, build.hosted)


def known() -> tuple[HostedVersion, ...]:
    """Return the versions that can be built, the oldest first.

    Raises:
        LocalError: The sources are incomplete.
    """
    return _VERSIONS.known()


def product(name: str) -> Product:
    """Return the program of a version.

    Args:
        name: As in "1.36"; "" for the default.

    Raises:
        InputError: There is no such version: the message lists those that there are.
    """
    return _VERSIONS.product(name)


def products() -> tuple[Product, ...]:
    """Return the programs of all versions, the oldest first."""
    return _VERSIONS.products()


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

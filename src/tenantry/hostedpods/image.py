"""The image of hosted control planes: four static programs and what `hosted` makes at build, on an empty base."""

from __future__ import annotations

from pathlib import Path

from tenantry import __version__
from tenantry.hostedpods import objects
from tenantry.install import planestore
from tenantry.local import build, hostedversions
from tenantry.local.progress import Progress
from tenantry.local.real import images
from tenantry.local.real.images import ImageRecipe

REFERENCE = f"tenantry.local/hosted:{__version__}"
"""The name under which the operator looks for it by default."""

_USER = "65532:65532"


def write(progress: Progress, reference: str, target: Path, version: str = "") -> None:
    """Write the image as a tar file; arguments and errors as for `recipe`.

    Args:
        progress: Shows what is being built.
        reference: The name of the image.
        target: The file.
        version: The minor version of Kubernetes; "" for the default.
    """
    images.write(recipe(progress, reference, version), target)


def recipe(progress: Progress, reference: str, version: str = "") -> ImageRecipe:
    """Build the programs unless they are in the cache, and return what the image consists of.

    Args:
        progress: Shows what is being built.
        reference: The name of the image.
        version: The minor version of Kubernetes; "" for the default.

    Raises:
        InputError: The reference is invalid, or there is no such version.
        LocalError: The programs cannot be built.
    """
    images.check_reference(reference)
    hosted = build.ensure(progress, hostedversions.product(version))
    sidecar = build.ensure(progress, build.SIDECAR)
    forwarder = build.ensure(progress, build.ENDPOINT_PROXY)
    etcd = build.ensure(progress, build.HOSTED_ETCD)
    files = {
        objects.PROGRAM: hosted.hosted,
        objects.OPENAPI: hosted.openapi,
        objects.PREBUILT: hosted.prebuilt,
        objects.SIDECAR: sidecar.sidecar,
        objects.FORWARDER: forwarder.endpoint_proxy,
        planestore.ETCD: etcd.hosted_etcd,
    }
    return ImageRecipe(reference=reference, files=files, entrypoint=(objects.PROGRAM,), user=_USER)

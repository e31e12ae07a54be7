"""What the images of Tenantry's own static programs consist of; `images` writes them."""

from __future__ import annotations

from tenantry.local import build
from tenantry.local.build import Binaries
from tenantry.local.progress import Progress
from tenantry.local.real import settings
from tenantry.local.real.images import ImageRecipe


def pause(binaries: Binaries) -> ImageRecipe:
    """Return the image that holds the namespaces of a pod, from the programs of nodes."""
    files = {"pause": binaries.folder / "node-pause"}
    return ImageRecipe(reference=settings.PAUSE, files=files, entrypoint=("/pause",))


def coredns_of(dns: Binaries, reference: str) -> ImageRecipe:
    """Return the image of CoreDNS with the plugin `tenantry`."""
    return ImageRecipe(reference=reference, files={"coredns": dns.coredns}, entrypoint=("/coredns",))


def coredns(progress: Progress, reference: str) -> ImageRecipe:
    """Build CoreDNS unless the cache has it, and return its image.

    Raises:
        LocalError: It cannot be built.
    """
    return coredns_of(build.ensure(progress, build.DNS), reference)


def probe(progress: Progress, reference: str = "") -> ImageRecipe:
    """Build the probe of audits unless the cache has it, and return its image.

    Args:
        progress: Shows what is being built.
        reference: Its name; "" for one that changes with the program.

    Raises:
        LocalError: It cannot be built.
    """
    binaries = build.ensure(progress, build.PROBE)
    reference = reference or f"tenantry.local/probe:{binaries.folder.name}"
    return ImageRecipe(reference=reference, files={"probe": binaries.folder / "probe"}, entrypoint=("/probe",))

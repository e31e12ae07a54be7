"""The image of the probe that audits run in pods: made of its program, and brought to a cluster's real nodes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import Progress
from tenantry.local.real import images, loading
from tenantry.local.real.images import ImageRecipe


async def provide(cluster: LocalCluster, progress: Progress) -> str:
    """Return the image's reference, once every real node that runs has it.

    Raises:
        LocalError: The program cannot be built, or a node does not take the image.
    """
    binaries = build.ensure(progress, build.PROBE)
    reference = f"tenantry.local/probe:{binaries.folder.name}"
    recipe = ImageRecipe(reference=reference, files={"probe": binaries.folder / "probe"}, entrypoint=("/probe",))
    real = cluster.real()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / images.file_name(reference)
        images.write(recipe, file)
        await loading.load(cluster.paths, real.binaries, [each.name for each in real.nodes], file, reference)
    return reference

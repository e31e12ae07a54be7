"""Builds the image of the probe that audits run in pods, and imports it into a cluster's real nodes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import Progress
from tenantry.local.real import images, loading, recipes


async def provide(cluster: LocalCluster, progress: Progress) -> str:
    """Import the image into every running real node; return its reference.

    Raises:
        LocalError: The program cannot be built, or a node rejects the image.
    """
    recipe = recipes.probe(progress)
    reference = recipe.reference
    real = cluster.real()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / images.file_name(reference)
        images.write(recipe, file)
        await loading.load(cluster.paths, real.binaries, [each.name for each in real.nodes], file, reference)
    return reference

"""The image of the program that pods of `audit --probe` and `bench runtimes` run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenantry.cli.target import Target

if TYPE_CHECKING:
    from tenantry.audit.probe.objects import ProbeImage


async def image_of(target: Target, named: str) -> ProbeImage | str:
    """Return the image of the pods that run, or the reason why there is none.

    Args:
        target: The cluster.
        named: The reference that the user gave; "" to build the image for a local cluster with real nodes.

    Raises:
        LocalError: The image cannot be built for a local cluster.
    """
    from tenantry.audit.probe.objects import ProbeImage
    from tenantry.audit.verdict import NO_IMAGE
    from tenantry.local.cluster import LocalCluster
    from tenantry.local.progress import StreamProgress
    from tenantry.local.real import probe

    if named:
        return ProbeImage(reference=named)
    cluster = LocalCluster(target.local_name) if target.local_name else None
    if cluster is None or cluster.spec().real is None:
        return NO_IMAGE
    with StreamProgress() as progress:
        return ProbeImage(reference=await probe.provide(cluster, progress), is_there=True)

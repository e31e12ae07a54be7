"""The components that the supervisor takes for ready, and that do not confirm it now.

The supervisor notices the end of a process, but not that a process hangs or is stopped by a signal. A process that is
asked now answers for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

from tenantry.engine.tasks import all_of
from tenantry.local.cluster import LocalCluster
from tenantry.local.components import ReadinessSignal, components
from tenantry.local.readiness import answers, trust


async def unresponsive(cluster: LocalCluster, ready: Collection[str]) -> frozenset[str]:
    """Return the components whose health endpoint does not answer within two seconds that they are healthy.

    Args:
        cluster: A running cluster.
        ready: The names of the components that its supervisor takes for ready.
    """
    found = [
        each for each in components(cluster.spec(), cluster.paths, sys.executable) if each.name in ready and each.health
    ]
    tls = trust(cluster.paths.pki / "ca.crt")

    async def is_silent(port: int, path: str, signal: ReadinessSignal) -> bool:
        return not await answers(port, path, None if signal is ReadinessSignal.HTTP else tls)

    silent = await all_of(is_silent(each.port, each.health, each.signal) for each in found)
    return frozenset(each.name for each, is_so in zip(found, silent, strict=True) if is_so)

"""Nodes that their owners contribute: offered and forgotten, for tests."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from tenantry.api import contribution, marks
from tenantry.api.errors import NotFound
from tenantry.api.node import Node
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.signing import SigningRequest
from tenantry.local.cluster import LocalCluster
from testkit.api import SECRETS, Api


async def command(cluster: LocalCluster, *arguments: str) -> str:
    """Run a command of `tenantry node`; its stdout is returned."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "node", *arguments, f"--kubeconfig={cluster.kubeconfig_path}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode()


async def offer(cluster: LocalCluster, tenant: str, *more: str) -> tuple[str, str]:
    """Have a node contributed by the command; its name and the token are returned."""
    said = await command(cluster, "contribute", f"--tenant={tenant}", "--owner=ada", *more)
    token = said.split()[-1]
    return contribution.node_of(token.partition(".")[0]), token


async def clean_up(api: Api, node: str, *requests: str) -> None:
    """Delete what of a contribution is not the test's namespace."""
    token_id = node.removeprefix(contribution.PREFIX)
    for each in requests:
        await api.delete(SigningRequest.resource, each)
    with suppress(NotFound):
        await api.delete(Node.resource, node)
    await api.delete(SECRETS, f"bootstrap-token-{token_id}", "kube-system")
    gone = contribution.change(node, None)
    await api.patch(PolicyParameters.resource, contribution.REGISTER, gone, marks.SYSTEM_NAMESPACE)

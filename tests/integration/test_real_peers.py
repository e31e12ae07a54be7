"""Pods at a peer whose nodes are real, with logs and streams through the home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from testkit.api import CONFIG_MAPS, PODS, until
from testkit.kubectl import Kubectl
from testkit.peerings import Peering, peering, placed
from testkit.realpods import AGNHOST, CAREFUL, START_SECONDS, RealPods, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peering]:
    """A home, and a peer with a real node."""
    async with peering(tenantry_home, "real", "--runtime", "real", "--nodes", "1") as found:
        pods = RealPods(found.cluster(found.peer_name), found.peer)
        await pods.load_image(tmp_path_factory.mktemp("images"))
        await found.connect()
        yield found


async def test_a_container_at_a_peer_has_its_config_and_serves_logs_and_exec(both: Peering) -> None:
    """L06: kubectl at home reads the log and runs commands, whose exit codes and output return."""
    await both.offload("streams")
    await both.home.create(CONFIG_MAPS, {"metadata": {"name": "greeting"}, "data": {"word": "hello"}}, "streams")
    container = {
        "image": AGNHOST,
        "args": ["netexec", "--http-port=8080"],
        "securityContext": {key: value for key, value in CAREFUL.items() if key != "hostname"},
        "env": [{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "greeting", "key": "word"}}}],
    }
    await both.home.create(PODS, placed("streams", "web", container=container), "streams")

    async def ready() -> bool:
        found = await both.home.get(PODS, "web", "streams")
        return any(each["ready"] for each in found["status"].get("containerStatuses", ()))

    await until(ready, "the pod is ready at home", seconds=START_SECONDS)
    kubectl = Kubectl(both.cluster(both.home_name).kubeconfig_path)

    async def logged() -> bool:
        return "Started HTTP server" in await kubectl.out("logs", "-n", "streams", "web")

    await until(logged, "the log of the container")
    run = ("exec", "-n", "streams", "web", "--", "/agnhost", "entrypoint-tester", "said")
    assert "said" in await kubectl.out(*run)
    failed = await kubectl.run("exec", "-n", "streams", "web", "--", "/agnhost", "no-such-command")
    assert failed.returncode != 0

"""What is refused without asking the lower side when a pod is tried out."""

from __future__ import annotations

from typing import Any

from tenantry.mirror.decision import BOUND_BY_USER
from tenantry.mirror.podtrial import PodTrial


async def test_a_pod_that_names_its_node_is_refused() -> None:
    """H02: the mirror never makes its lower pod, so that users are warned at once."""
    unused: Any = None
    pod: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "b", "uid": "u"},
        "spec": {"nodeName": "n", "containers": []},
    }
    assert await PodTrial(unused, unused, unused).refusal(pod) == BOUND_BY_USER

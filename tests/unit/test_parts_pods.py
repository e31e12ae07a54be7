"""What a pod has of a node, as the scheduler counts, and whose part it is in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.controllers.parts.pods import of_others, read
from tenantry.world.parts import Size

Json = dict[str, Any]


def _container(cpu: str, memory: str = "1Mi", **more: object) -> Json:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def _pod(*containers: Json, **spec: object) -> msgspec.Raw:
    meta = {"name": "p", "namespace": "acme", "uid": "u", "resourceVersion": "7"}
    return msgspec.Raw(msgspec.json.encode({"metadata": meta, "spec": {"containers": containers, **spec}}))


SIDECAR = _container("300m", restartPolicy="Always")


@pytest.mark.parametrize(
    ("pod", "size"),
    [
        (_pod(_container("100m"), _container("0.2", "3Mi")), Size(300, 4)),
        (_pod({"name": "none"}), Size(0, 0)),
        # What runs before counts where it is larger than what runs together.
        (_pod(_container("100m"), initContainers=[_container("2", "1000Ki")]), Size(2000, 1)),
        # A sidecar runs on: beside the containers, and beside what comes after it.
        (_pod(_container("1"), initContainers=[SIDECAR]), Size(1300, 2)),
        (_pod(_container("1"), initContainers=[SIDECAR, _container("2")]), Size(2300, 2)),
        (_pod(_container("1"), initContainers=[_container("2"), SIDECAR]), Size(2000, 2)),
        (_pod(_container("1"), overhead={"cpu": "250m", "memory": "120Mi"}), Size(1250, 121)),
        (_pod(_container("1"), resources={"requests": {"cpu": "3"}}), Size(3000, 1)),
    ],
)
def test_a_pod_has_what_the_scheduler_counts(pod: msgspec.Raw, size: Size) -> None:
    """E20: source, Kubernetes, "Init Containers", "Sidecar Containers", "Pod Overhead", "Pod-level resources"."""
    assert read(pod).size == size


def test_pods_of_parts_are_known_by_what_they_select() -> None:
    """E20: what they have is of their part, and not taken from it again."""
    mine = read(_pod(_container("1"), nodeSelector={"disk": "ssd", "web-1.parts.tenantry.dev/open": "true"}))
    agent = read(_pod(_container("200m"), nodeSelector={"web-1.parts.tenantry.dev/cpu-milli": "2000"}))
    assert (mine.part, agent.part) == ("web-1", "")
    assert of_others([mine, agent]) == Size(200, 1)

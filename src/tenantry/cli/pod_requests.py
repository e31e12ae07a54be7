"""What a pod asks of its node. Pure; the sums are Kubernetes' own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from tenantry.world.quantity import parse

FINISHED = ("Succeeded", "Failed")


class _Resources(msgspec.Struct, frozen=True, gc=False):
    requests: Mapping[str, str] | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel", gc=False):
    resources: _Resources | None = None
    restart_policy: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    overhead: Mapping[str, str] | None = None
    resources: _Resources | None = None
    node_name: str = ""


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    namespace: str


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class PodSeen(msgspec.Struct, frozen=True, gc=False):
    """A pod with what it asks for, and where it is."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def node(self) -> str:
        """Return the node whose room it takes; "" where it takes none."""
        return self.spec.node_name if self.status.phase not in FINISHED else ""

    def asks(self, resource: str) -> Fraction:
        """Return how much of a resource the scheduler counts for it.

        Source: Kubernetes, "Sidecar Containers", resource sharing within containers, and "Pod Overhead".
        """
        spec = self.spec
        over = parse((spec.overhead or {}).get(resource, "0"))
        whole = spec.resources.requests if spec.resources is not None else None
        if whole and resource in whole:
            return parse(whole[resource]) + over
        beside = Fraction(0)
        most = Fraction(0)
        for each in spec.init_containers:
            asked = _asked(each, resource)
            most = max(most, beside + asked)
            # A sidecar goes on beside all that start after it.
            beside += asked if each.restart_policy == "Always" else 0
        return max(most, beside + sum((_asked(each, resource) for each in spec.containers), Fraction(0))) + over


def _asked(container: _Container, resource: str) -> Fraction:
    requests = container.resources.requests if container.resources is not None else None
    return parse((requests or {}).get(resource, "0"))


def together(pods: Iterable[PodSeen], resource: str) -> Fraction:
    """Return how much of a resource pods ask for together."""
    return sum((pod.asks(resource) for pod in pods), Fraction(0))

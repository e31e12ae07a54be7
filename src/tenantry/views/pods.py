"""What a pod requests of its node, computed as the scheduler does. Pure."""

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


class PodRequests(msgspec.Struct, frozen=True, gc=False):
    """A pod with its requests and its node."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def node(self) -> str:
        """Return the node whose capacity the pod takes; "" for none, as of a finished pod."""
        return self.spec.node_name if self.status.phase not in FINISHED else ""

    def requested(self, resource: str) -> Fraction:
        """Return how much of a resource the scheduler counts for the pod.

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
            request = _request(each, resource)
            most = max(most, beside + request)
            # A sidecar keeps running beside the containers that start after it.
            beside += request if each.restart_policy == "Always" else 0
        return max(most, beside + sum((_request(each, resource) for each in spec.containers), Fraction(0))) + over


def _request(container: _Container, resource: str) -> Fraction:
    requests = container.resources.requests if container.resources is not None else None
    return parse((requests or {}).get(resource, "0"))


def total(pods: Iterable[PodRequests], resource: str) -> Fraction:
    """Return how much of a resource pods request together."""
    return sum((pod.requested(resource) for pod in pods), Fraction(0))

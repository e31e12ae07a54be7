"""The resources that a pod requests of its node, computed as the scheduler does: pure.

init containers, one after the other   cpu 2, then a sidecar of 1, then 1   ─► at most 2
containers, beside the sidecars        1 (sidecar) + 1 + 1                  ─► 3, the larger of both
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from tenantry.world.quantity import parse

Requests = Mapping[str, str | int]
"""Quantities by resource; YAML may write a whole quantity as a number."""


class ResourceRequests(msgspec.Struct, frozen=True, gc=False):
    """The resources of a container, or of a whole pod."""

    requests: Requests | None = None


class ContainerRequests(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A container, as far as its requests are concerned."""

    resources: ResourceRequests | None = None
    restart_policy: str = ""

    def requested(self, resource: str) -> Fraction:
        """Return how much of a resource the container requests."""
        return _amount(self.resources.requests if self.resources is not None else None, resource)


class PodSpecRequests(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The spec of a pod, as far as its requests are concerned."""

    containers: tuple[ContainerRequests, ...] = ()
    init_containers: tuple[ContainerRequests, ...] | None = None
    overhead: Requests | None = None
    resources: ResourceRequests | None = None

    def requested(self, resource: str) -> Fraction:
        """Return how much of a resource the scheduler counts for the pod.

        Source: Kubernetes, "Sidecar Containers", resource sharing within containers, and "Pod Overhead".
        """
        over = _amount(self.overhead, resource)
        whole = self.resources.requests if self.resources is not None else None
        if whole and resource in whole:
            return parse(whole[resource]) + over  # the API server refuses one that is less than the containers'
        beside = Fraction(0)
        most = Fraction(0)
        for each in self.init_containers or ():
            request = each.requested(resource)
            most = max(most, beside + request)
            # A sidecar keeps running beside the containers that start after it.
            beside += request if each.restart_policy == "Always" else 0
        return max(most, sum((each.requested(resource) for each in self.containers), beside)) + over


def _amount(requests: Requests | None, resource: str) -> Fraction:
    return parse((requests or {}).get(resource, "0"))

"""The resources that a pod requests of its node, computed as the scheduler and quotas do: pure.

init containers, one after the other   cpu 2, then a sidecar of 1, then 1   ─► at most 2
containers, beside the sidecars        1 (sidecar) + 1 + 1                  ─► 3, the larger of both
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

import msgspec

from tenantry.world.quantity import parse

Requests = Mapping[str, str | int | float]
"""Quantities by resource; YAML may write a quantity as a number."""

Bound = Literal["requests", "limits"]


class ResourceRequests(msgspec.Struct, frozen=True, gc=False):
    """The resources of a container, or of a whole pod."""

    requests: Requests | None = None
    limits: Requests | None = None

    def of(self, bound: Bound) -> Requests:
        """Return the requests or the limits."""
        return (self.requests if bound == "requests" else self.limits) or {}


class ContainerRequests(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The resources of a container."""

    resources: ResourceRequests | None = None
    restart_policy: str = ""

    def of(self, bound: Bound) -> Requests:
        """Return the requests or the limits."""
        return self.resources.of(bound) if self.resources is not None else {}


class PodSpecRequests(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The parts of a pod's spec that decide about its resources."""

    containers: tuple[ContainerRequests, ...] = ()
    init_containers: tuple[ContainerRequests, ...] | None = None
    overhead: Requests | None = None
    resources: ResourceRequests | None = None

    def requested(self, resource: str) -> Fraction:
        """Return how much of a resource the scheduler counts for the pod."""
        return self.counted("requests", resource)

    def named(self, bound: Bound) -> set[str]:
        """Return the resources that the pod requests, or limits."""
        holders = (*self.containers, *(self.init_containers or ()), self.resources or ResourceRequests())
        # Kubernetes adds the overhead of a sandbox to limits only of resources that have one.
        over = self.overhead or {} if bound == "requests" else {}
        return {*over, *(resource for holder in holders for resource in holder.of(bound))}

    def counted(self, bound: Bound, resource: str) -> Fraction:
        """Return the sum of a resource over the containers that run together, or of the largest init container.

        Args:
            bound: Requests, which the scheduler counts, or limits, which only quotas count.
            resource: One of `named`; the amount of any other is 0.

        Source: Kubernetes, "Sidecar Containers", resource sharing within containers, and "Pod Overhead".
        """
        over = _amount(self.overhead or {}, resource)
        whole = (self.resources or ResourceRequests()).of(bound)
        if resource in whole:
            return _amount(whole, resource) + over  # the API server refuses one that is less than the containers'
        beside = Fraction(0)
        most = Fraction(0)
        for each in self.init_containers or ():
            amount = _amount(each.of(bound), resource)
            most = max(most, beside + amount)
            # A sidecar keeps running beside the containers that start after it.
            beside += amount if each.restart_policy == "Always" else 0
        return max(most, sum((_amount(each.of(bound), resource) for each in self.containers), beside)) + over


def _amount(amounts: Requests, resource: str) -> Fraction:
    return parse(str(amounts.get(resource, "0")))

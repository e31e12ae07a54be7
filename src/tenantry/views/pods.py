"""Pods with their requests and their nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from tenantry.world.podrequests import PodSpecRequests

FINISHED = ("Succeeded", "Failed")


class _Spec(PodSpecRequests, frozen=True, rename="camel", gc=False):
    node_name: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    namespace: str
    name: str = ""
    creation_timestamp: str = ""


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


def total(pods: Iterable[PodRequests], resource: str) -> Fraction:
    """Return how much of a resource pods request together."""
    return sum((pod.spec.requested(resource) for pod in pods), Fraction(0))

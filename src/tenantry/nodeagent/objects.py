"""The parts of the node and its pods that the agent reads."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenantry.api.cleaning import CleaningResult
from tenantry.api.marks import CLEANED, CLEANING, NODE_AGENT, SLICE, SLICE_RESERVED
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.api.node import Node
from tenantry.kube.client import Client
from tenantry.nodeagent.leftovers import NodePod

STATIC = "kubernetes.io/config.hash"
"""Annotation on the mirror pod of a static pod: the uid that the kubelet uses for it."""

_FINISHED = ("Succeeded", "Failed")


class _PodSpec(Model, frozen=True, kw_only=True):
    node_selector: dict[str, str] = {}


class _PodStatus(Model, frozen=True, kw_only=True):
    phase: str = ""


class _PodObject(KubernetesObject, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("", "v1", "pods", "Pod")

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


decode_node = msgspec.json.Decoder(Node).decode
_answer = msgspec.json.Decoder(CleaningResult)


async def pods_of(client: Client, node: str) -> list[NodePod]:
    """Return the current pods of a node."""
    found = await client.list(_PodObject, selectors={"fieldSelector": f"spec.nodeName={node}"})
    return [
        NodePod(
            key=each.key,
            uids=frozenset({each.metadata.uid, each.metadata.annotations.get(STATIC, "")} - {""}),
            slice=each.spec.node_selector.get(SLICE, ""),
            finished=each.status.phase in _FINISHED,
        )
        for each in found
    ]


def answer_of(node: Node) -> CleaningResult | None:
    """Return the agent's last answer; None if there is none that can be decoded."""
    try:
        return _answer.decode(node.metadata.annotations.get(CLEANED, ""))
    except msgspec.MsgspecError:
        return None


def instructions(node: Node) -> tuple[str, ...]:
    """Return the labels and annotations that the agent acts on."""
    labels, notes = node.metadata.labels, node.metadata.annotations
    return (
        *(labels.get(SLICE_RESERVED, ""), labels.get(SLICE, "")),
        *(notes.get(key, "") for key in (CLEANING, CLEANED, NODE_AGENT)),
    )

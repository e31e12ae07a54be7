"""The pods of a node that is taken back or handed over: which of them leave, and how. Pure.

Source: Kubernetes, "Taints and Tolerations".
"""

from __future__ import annotations

import msgspec

from tenantry.api.kubernetes import MIRROR
from tenantry.api.marks import TAKEN_BACK
from tenantry.controllers.slices.pods import FINISHED, PodFacts, leaving_of, observe


class LeavingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a node.

    Args:
        facts: As slices see it.
        tainted_away: Kubernetes deletes it for the taint of the node: a DaemonSet's pod without a toleration of it.
    """

    facts: PodFacts
    tainted_away: bool

    @property
    def is_evicted(self) -> bool:
        """Return whether the operator evicts it."""
        return bool(leaving_of(self.facts))


class _Toleration(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Spec(msgspec.Struct, frozen=True):
    tolerations: tuple[_Toleration, ...] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Live(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_live = msgspec.json.Decoder(_Live)


def on_node(data: bytes | msgspec.Raw, key: str = TAKEN_BACK, value: str = "") -> LeavingPod:
    """Return a pod from its JSON.

    Args:
        data: The pod.
        key: Of the taint of the node.
        value: Of the same taint.

    Raises:
        msgspec.MsgspecError: The data is no pod.
    """
    live = _live.decode(data)
    # A mirror pod stands for a process of the node itself, which no taint ends.
    facts = observe(data)
    # A pod that is being deleted has finished a moment before kubelet removes it.
    has_finished = live.status.phase in FINISHED and not facts.deleting
    is_left = MIRROR in (live.metadata.annotations or {}) or has_finished
    tolerated = any(_tolerates(each, key, value) for each in live.spec.tolerations or ())
    return LeavingPod(facts=facts, tainted_away=not is_left and not tolerated)


def _tolerates(each: _Toleration, key: str, value: str) -> bool:
    """Return whether a pod with a toleration stays on a node with a NoExecute taint."""
    is_meant = not each.key or (each.key == key and (each.operator == "Exists" or each.value == value))
    # Also for a while only: its DaemonSet would create it again, without an end.
    return is_meant and each.effect in {"", "NoExecute"}

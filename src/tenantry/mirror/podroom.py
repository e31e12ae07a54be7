"""Room for pods on a lower side whose quota follows them: what a mirror of pods asks before it sends one.

upper, lower Pod ─► see ─► what all pods of the namespace need ─► the quota on the lower side
PodMirror ─► admits ─► sent at once, or woken when the quota is in force
"""

from __future__ import annotations

from typing import Protocol

from tenantry.mirror.cachedpods import CachedPod


class PodRoom(Protocol):
    """The quota on the lower side, as far as it follows pods. The keys are those of upper pods."""

    def counts(self, key: str) -> bool:
        """Return whether the quota follows the pods of the namespace of a pod."""
        ...

    def see(self, key: str, upper: CachedPod | None, lower: CachedPod | None) -> None:
        """Count a pod as it is now on both sides, in constant time."""
        ...

    def admits(self, key: str) -> bool:
        """Return whether a pod may be sent. Otherwise, it is woken when it may."""
        ...

    def words(self, key: str) -> str:
        """Return what to show at a pod that has waited for long; "" for nothing yet."""
        ...

    def refused(self, key: str, message: str) -> bool:
        """Take in that the lower side has refused a pod; return whether it gets more room, and the pod is woken then.

        Args:
            key: The pod.
            message: What the API server of the lower side answered.
        """
        ...

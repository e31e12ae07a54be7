"""Pairs of pods that agree, so that an event which changes only a status compares them no second time: pure.

    create ─► keep       what was made of the upper pod, for the first comparison with the lower one
    follow ─► compared   from `tokens` if the pair agrees; else from `made_of`, and then `settle`

A comparison depends on the metadata and the specs of both pods alone, of which a digest is kept. It costs a tenth of a
millisecond for a small pod, and a pod has an event for each change of its status.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tenantry.api.model import Json
from tenantry.mirror import podchanges
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.podchanges import PodChanges
from tenantry.mirror.pods import Down, Token
from tenantry.mirror.profile import Profile

_MOST_MADE = 256
"""How many lower pods are kept as they were made: each takes some 20 KB, and a pod may wait for its first event."""


class SettledPods:
    """The pairs of one mirror."""

    def __init__(self) -> None:
        # By key of the upper pod, the oldest first.
        self._made: dict[str, tuple[bytes, Down]] = {}
        self._settled: dict[str, tuple[bytes, Sequence[Token]]] = {}

    def keep(self, upper: CachedPod, made: Down) -> None:
        """Keep what was made of an upper pod until its lower pod is compared with it."""
        while len(self._made) >= _MOST_MADE:
            del self._made[next(iter(self._made))]
        self._made[upper.key] = _digest(upper), made

    def made_of(self, upper: CachedPod) -> Down | None:
        """Return what was made of an upper pod, once; None if that is not known, or it has changed since."""
        digest, made = self._made.pop(upper.key, (b"", None))
        return made if digest == _digest(upper) else None

    def compared(
        self, upper: CachedPod, lower: CachedPod, below: Json, profile: Profile, make: Callable[[], Down]
    ) -> tuple[Sequence[Token], PodChanges]:
        """Return the tokens of a lower pod, and what it must change.

        Args:
            upper: The upper pod.
            lower: The lower pod.
            below: The same, decoded.
            profile: The configuration.
            make: Makes a lower pod of the upper one.
        """
        tokens = self.tokens(upper, lower)
        if tokens is not None:
            return tokens, PodChanges()
        made = self.made_of(upper) or make()
        changed = podchanges.changes(made, below, profile)
        self.settle(upper, lower, made.tokens, changed)
        return made.tokens, changed

    def settle(self, upper: CachedPod, lower: CachedPod, tokens: Sequence[Token], changed: PodChanges) -> None:
        """Record what a comparison has found.

        Args:
            upper: The upper pod.
            lower: The lower pod.
            tokens: What its Secret holds.
            changed: What the lower pod must change.
        """
        if changed == PodChanges():
            self._settled[upper.key] = _digest(upper, lower), tuple(tokens)
        else:
            self._settled.pop(upper.key, None)

    def tokens(self, upper: CachedPod, lower: CachedPod) -> Sequence[Token] | None:
        """Return the tokens of a lower pod that need not change; None if the pods must be compared."""
        digest, tokens = self._settled.get(upper.key, (b"", ()))
        return tokens if digest and digest == _digest(upper, lower) else None

    def forget(self, key: str) -> None:
        """Forget an upper pod."""
        self._made.pop(key, None)
        self._settled.pop(key, None)


def _digest(*pods: CachedPod) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for pod in pods:
        for text in (pod.metadata, pod.specification):
            found.update(b"%d:" % len(text))
            found.update(text)
    return found.digest()

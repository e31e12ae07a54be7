"""The quotas of namespaces at one peer, as far as they follow the pods: the state between the mirror and the peer.

    PodMirror ─ see ─► what the pods of a namespace need ─► PeerNamespaces writes it at the peer, in steps
    PodMirror ◄─ woken ─ the ResourceQuota at the peer enforces it

A key of a quota follows if the peer limits it, it counts pods or what they request, and `spec.quota` of the
NamespaceOffloading does not name it. What follows is noted on the Subnamespace at the peer, so that another process
finds it there; only the ten minutes before a quota is lowered begin anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import InputError
from tenantry.api.offloading import DesiredNamespace
from tenantry.api.peercluster import PREFIX
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.wording import shortened
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.clock import Clock
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.podstatus import ENDED
from tenantry.mirror.refusals import RETRY_SECONDS, retry_seconds
from tenantry.world.podcharges import OBJECT, POD, charge, counted_with_pods
from tenantry.world.podrequests import PodSpecRequests
from tenantry.world.quota import normal
from tenantry.world.shares import following
from tenantry.world.shares.amounts import Amounts, ShareQuota, beyond, fits, higher, lower, read, spelled, total
from tenantry.world.shares.following import DOWN_SECONDS, PodLedger

FOLLOWS = f"{PREFIX}/follows-pods"
"""An annotation of a Subnamespace at a peer: what of its quota follows pods, as in `pods=5,requests.cpu=350m`."""

_EXCEEDED = re.compile(
    rf"exceeded quota: {QUOTA}, requested: (?P<requested>[^ ]{{1,4096}}), used: (?P<used>[^ ]{{1,4096}}), limited: "
)
"""The refusal of the quota admission (k8s.io/apiserver, pkg/admission/plugin/resourcequota/controller.go)."""

_MOST_WORDS = 8192


class _Phase(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


_spec = msgspec.json.Decoder(PodSpecRequests)
_phase = msgspec.json.Decoder(_Phase)


class FollowedQuota(msgspec.Struct, kw_only=True):
    """One namespace.

    Args:
        keys: Those that follow.
        uid: Of the Subnamespace at the peer.
        ledger: What the pods need.
        versions: By pod: the resourceVersions on both sides that are counted.
        asked: What the Subnamespace should have for pods.
        opened: What the peer is known to enforce for pods; None while that is not known.
        since: By key that is too high: since when.
        surplus: What the peer counts beside the need.
        surplus_at: Since when.
        look_at: When something may be lowered, of the monotonic clock.
        words: Why the peer has no more for this namespace; "" if it has, or that was not tried.
        times: How often it had no more in a row.
        waiting: Pods that wait, with the time since when.
        refused: Pods that the peer has refused.
        is_woken: The controller is about to look at it.
    """

    keys: frozenset[str] = frozenset()
    uid: str = ""
    ledger: PodLedger = msgspec.field(default_factory=PodLedger)
    versions: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict[str, tuple[int, int]])
    asked: Amounts = msgspec.field(default_factory=dict[str, int])
    opened: Amounts | None = None
    since: Mapping[str, float] = {}
    surplus: Amounts = msgspec.field(default_factory=dict[str, int])
    surplus_at: float = 0.0
    look_at: float = math.inf
    words: str = ""
    times: int = 0
    waiting: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    refused: set[str] = msgspec.field(default_factory=set[str])
    is_woken: bool = False

    @property
    def need(self) -> Amounts:
        """Return what the pods need, by key that follows."""
        sums, more = self.ledger.need, self.surplus
        return {key: sums.get(key, 0) + more.get(key, 0) for key in self.keys}

    @property
    def is_enough(self) -> bool:
        """Return whether pods may be sent: the peer enforces what they need, or all that it has."""
        if self.opened is None:
            return False
        return fits(self.need, self.opened) or (bool(self.words) and fits(self.asked, self.opened))


class FollowedQuotas:
    """All namespaces at one peer; as `PodRoom`, what the mirror of pods asks.

    Args:
        clock: For the ten minutes.
        wake: Has PeerNamespaces look at a namespace.
        wake_pods: Has the mirror look at pods, by their keys at home.
        look_again: Has the mirror look at all pods of a namespace.
        is_counted: Returns whether all pods of a namespace are known, on both sides.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        wake: Callable[[str], None],
        wake_pods: Callable[[Iterable[str]], None],
        look_again: Callable[[str], None],
        is_counted: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._wake_pods = wake_pods
        self._look_again = look_again
        self._is_counted = is_counted
        self._found: dict[str, FollowedQuota] = {}

    # -- for the mirror ---------------------------------------------------------------------------

    def counts(self, key: str) -> bool:
        """Return whether the quota follows the pods of the namespace of a pod."""
        found = self._found.get(key.partition("/")[0])
        return found is not None and bool(found.keys)

    def see(self, key: str, upper: CachedPod | None, lower: CachedPod | None) -> None:
        """Count a pod as it is now on both sides, in constant time."""
        namespace = key.partition("/")[0]
        found = self._found.get(namespace)
        if found is None or not found.keys:
            return
        versions = (upper.version if upper is not None else 0, lower.version if lower is not None else 0)
        if found.versions.get(key, (0, 0)) == versions:
            return
        if any(versions):
            found.versions[key] = versions
        else:
            del found.versions[key]
            found.waiting.pop(key, None)
            found.refused.discard(key)
        found.ledger.put(key, _charges(upper, lower), is_sent=lower is not None)
        need = found.need
        is_less = not found.since and any(
            need[key] <= following.step_below(key, value) for key, value in found.asked.items()
        )
        if is_less or not (found.words or fits(need, found.asked)):
            self._look(namespace, found)

    def admits(self, key: str) -> bool:
        """Return whether a pod may be sent. Otherwise, it is woken when it may."""
        namespace = key.partition("/")[0]
        found = self._found.get(namespace)
        if found is None or not found.keys or found.is_enough:
            return True
        found.waiting.setdefault(key, self._clock.monotonic())
        self._look(namespace, found)
        return False

    def words(self, key: str) -> str:
        """Return what to show at a pod that has waited for long; "" for nothing yet."""
        found = self._found.get(key.partition("/")[0])
        since = found.waiting.get(key) if found is not None else None
        if found is None or since is None or self._clock.monotonic() - since < RETRY_SECONDS:
            return ""
        short = sorted(key for key, value in found.need.items() if value > (found.opened or {}).get(key, 0))
        return f"the peer has not given the quota yet that pods of the namespace need: {shortened(short)}"

    def refused(self, key: str, message: str) -> bool:
        """Take in that the peer has refused a pod; return whether it gets more room, and the pod is woken then."""
        namespace = key.partition("/")[0]
        found, told = self._found.get(namespace), _EXCEEDED.search(message[:_MOST_WORDS])
        requested = _amounts(told["requested"]) if told is not None else {}
        if found is None or told is None or found.keys.isdisjoint(requested):
            return False
        found.refused.add(key)
        if found.words:
            return False
        # What the peer adds to pods, or counts beside them: a sandbox of its own, pods that end.
        counted = total([requested, _amounts(told["used"])])
        more = {each: value for each, value in beyond(counted, found.ledger.need).items() if each in found.keys}
        if not fits(more, found.surplus):
            found.surplus, found.surplus_at = higher(found.surplus, more), self._clock.monotonic()
        if found.is_enough:
            return False
        found.waiting.setdefault(key, self._clock.monotonic())
        self._look(namespace, found)
        return True

    def _look(self, namespace: str, found: FollowedQuota) -> None:
        if not found.is_woken:
            found.is_woken = True
            self._wake(namespace)

    # -- for the namespaces -----------------------------------------------------------------------

    def short(self) -> list[str]:
        """Return the namespaces for which the peer had no more."""
        return [namespace for namespace, found in self._found.items() if found.words]

    def known(self) -> list[str]:
        """Return all namespaces."""
        return list(self._found)

    def words_of(self, namespace: str) -> str:
        """Return why the peer has no more for the pods of a namespace; "" if it has."""
        found = self._found.get(namespace)
        return found.words if found is not None else ""

    def forget(self, namespace: str) -> None:
        """Drop a namespace that is not at the peer any more."""
        self._found.pop(namespace, None)

    def whole(self, namespace: str, wanted: DesiredNamespace) -> DesiredNamespace:
        """Return what a namespace should have with what follows its pods, as it was decided last."""
        found = self._found.get(namespace)
        return _with(wanted, found.asked) if found is not None else wanted

    def decide(
        self,
        namespace: str,
        wanted: DesiredNamespace,
        limited: Collection[str],
        sub: Subnamespace | None,
        *,
        held: Mapping[str, int],
        room: Mapping[str, int],
        used: Mapping[str, int] | None = None,
    ) -> DesiredNamespace:
        """Return what a namespace should have with what follows its pods.

        Args:
            namespace: At home.
            wanted: What it should have beside that.
            limited: The keys that the peer limits.
            sub: Its Subnamespace; None if the peer has none.
            held: What of the quota there may be its share.
            room: What it may get beside what it has.
            used: What is in use at the peer; None if that was not read, so that nothing is lowered.

        Raises:
            InputError: The quota has a key or a quantity that is none.
        """
        fixed = read(normal(wanted.hard))
        keys = counted_with_pods(limited).difference(fixed)
        found = self._found.setdefault(namespace, FollowedQuota())
        found.is_woken = False
        uid = sub.metadata.uid if sub is not None else ""
        if keys != found.keys:
            found.keys, found.ledger, found.opened, found.since = keys, PodLedger(), None, {}
            found.versions.clear()
            if keys:
                self._look_again(namespace)
        if uid != found.uid:
            found.uid, found.opened, found.since = uid, None, {}
        if not keys:
            found.asked, found.words = {}, ""
            self._release(found)
            return wanted
        if sub is None:
            # Without room for its pods yet: it is made first.
            found.asked, found.words = {key: following.first(key) for key in keys}, ""
            return _with(wanted, found.asked)
        self._step(namespace, found, _follows(sub, keys, held), room, used)
        return _with(wanted, found.asked)

    def _step(
        self,
        namespace: str,
        found: FollowedQuota,
        has: Amounts,
        room: Mapping[str, int],
        used: Mapping[str, int] | None,
    ) -> None:
        now = self._clock.monotonic()
        if found.surplus and now - found.surplus_at >= DOWN_SECONDS:
            found.surplus = {}
        is_known = self._is_counted(namespace)
        step = following.follow(found.keys, found.need, has, found.since, now, is_known=is_known)
        found.look_at = now + step.again if step.again is not None else math.inf
        if used is not None:
            # Pods that are not known here may still use it.
            least = {key: min(has.get(key, 0), following.step_to(key, used.get(key, 0))) for key in found.keys}
            kept = {key: now for key, value in least.items() if value > step.hard[key]}
            step = replace(step, hard=higher(step.hard, least), since={**step.since, **kept})
            found.look_at = min(found.look_at, now + DOWN_SECONDS if kept else math.inf)
        elif not fits(has, step.hard):
            step, found.look_at = replace(step, hard=higher(step.hard, has), since=found.since), now
        wanted = following.within(step.hard, found.need, has, room)
        found.words = ""
        if not fits(found.need, wanted):
            most = {key: has.get(key, 0) + max(0, room[key]) for key in found.keys if key in room}
            fitting = following.fitting(found.ledger.pods(), most)
            wanted = {key: max(has.get(key, 0), fitting.get(key, value)) for key, value in wanted.items()}
            short = sorted(key for key, value in found.need.items() if value > wanted[key])
            found.words = f"the peer has no more of {shortened(short)} for this cluster that pods of the namespace need"
        found.asked, found.since = wanted, step.since
        if found.opened is not None:
            found.opened = lower(found.opened, wanted)
        found.times = found.times + 1 if found.words else 0
        self._release(found)

    def lowers(self, namespace: str) -> bool:
        """Return whether a quota may be lowered now: its use at the peer must be read first."""
        found, now = self._found.get(namespace), self._clock.monotonic()
        return found is not None and any(now - each >= DOWN_SECONDS for each in found.since.values())

    def again(self, namespace: str) -> float | None:
        """Return in how many seconds to look at a namespace again; None for when something changes."""
        found, now = self._found.get(namespace), self._clock.monotonic()
        if found is None or not found.keys:
            return None
        waits = [found.look_at - now]
        if found.surplus:
            waits.append(DOWN_SECONDS - (now - found.surplus_at))
        if found.words:
            waits.append(retry_seconds(found.times - 1))
        return max(0.0, min(waits)) if min(waits) < math.inf else None

    def note(self, namespace: str) -> str:
        """Return the annotation of what follows pods; "" for nothing."""
        found = self._found.get(namespace)
        return ",".join(f"{key}={value}" for key, value in spelled(found.asked).items()) if found is not None else ""

    def yields(self, namespace: str, wanted: DesiredNamespace, sub: Subnamespace, words: str) -> DesiredNamespace:
        """Take in that the peer has no room for what follows pods; return what the namespace keeps.

        Args:
            namespace: At home.
            wanted: What it should have beside that.
            sub: Its Subnamespace.
            words: Why the peer has no room.
        """
        found = self._found.get(namespace)
        if found is None or not found.keys:
            return wanted
        has = noted(sub)
        kept = {key: min(value, has.get(key, value)) for key, value in found.asked.items()}
        if kept != found.asked:
            found.asked, found.words, found.times = kept, words, found.times + 1
            self._release(found)
        return _with(wanted, kept)

    def waits(self, namespace: str) -> bool:
        """Return whether pods wait until the peer enforces what they need."""
        found = self._found.get(namespace)
        if found is None or found.is_enough:
            return False
        return bool(found.waiting) or (bool(found.refused) and not found.words)

    def enforced(self, namespace: str, quota: ShareQuota, given: Mapping[str, int]) -> None:
        """Take in what the peer enforces; wake the pods that may be sent now.

        Args:
            namespace: At home.
            quota: The ResourceQuota there.
            given: The part of it that is the share.
        """
        found = self._found.get(namespace)
        if found is None or not found.keys:
            return
        in_force = {key: value - given.get(key, 0) for key, value in quota.in_force.items()}
        found.opened = {key: min(value, in_force.get(key, 0)) for key, value in found.asked.items()}
        self._release(found)

    def _release(self, found: FollowedQuota) -> None:
        """Wake the pods that wait, if they may be sent."""
        if found.keys and not found.is_enough:
            return
        keys = {*found.waiting, *(() if found.words else found.refused)}
        found.waiting.clear()
        found.refused -= keys
        if keys:
            self._wake_pods(sorted(keys))


def noted(sub: Subnamespace) -> Amounts:
    """Return what of the quota of a Subnamespace follows pods, as it is noted there; nothing of what is none."""
    return _amounts(sub.metadata.annotations.get(FOLLOWS, ""))


def _amounts(text: str) -> Amounts:
    """Return quantities of the form `key=quantity,…`; {} if one is none, which the other cluster may have written."""
    try:
        return read(dict(each.split("=", 1) for each in text.split(",") if "=" in each))
    except InputError:
        return {}


def _follows(sub: Subnamespace, keys: Collection[str], held: Mapping[str, int]) -> Amounts:
    """Return what a Subnamespace has for pods now."""
    before = noted(sub)
    try:
        hard, assigned = read(normal(sub.spec.quota.hard)), read(normal(sub.status.quota.assigned))
    except InputError:
        hard, assigned = {}, {}
    # A key that begins to follow keeps what it has for ten minutes, as one that the peer has given a default.
    found = {key: max(0, value - held.get(key, 0)) for key, value in {**assigned, **hard}.items()}
    found.update({key: value for key, value in before.items() if key in hard})
    return {key: value for key, value in found.items() if key in keys}


def _with(wanted: DesiredNamespace, asked: Mapping[str, int]) -> DesiredNamespace:
    if not asked:
        return wanted
    try:
        named = normal(wanted.hard)
    except InputError:
        return wanted  # what is refused anyway
    more = {key: text for key, text in spelled(asked).items() if key not in named}
    return replace(wanted, hard={**wanted.hard, **more})


def _charges(upper: CachedPod | None, lower: CachedPod | None) -> list[Amounts]:
    """Return what a pod counts at the peer: as it is there, or is going to be."""
    if lower is not None and _has_ended(lower):
        return [OBJECT]
    found: list[Amounts] = []
    if lower is not None:
        found.append(_charge(lower))
    if upper is not None and not _has_ended(upper):
        # The RuntimeClass, and with it the overhead, is that of the peer.
        found.append(_charge(upper, is_bare=True))
    return found


def _has_ended(pod: CachedPod) -> bool:
    try:
        return _phase.decode(pod.state).phase in ENDED
    except msgspec.MsgspecError:
        return False


def _charge(pod: CachedPod, *, is_bare: bool = False) -> Amounts:
    try:
        spec = _spec.decode(pod.specification)
    except msgspec.MsgspecError:
        return POD
    return charge(replace(spec, overhead=None) if is_bare else spec)

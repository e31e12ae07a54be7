"""Mirrors Pods: a controller of the upper cluster that writes both sides.

    upper Pod ─► decide ─► copies, lower Pod, token Secret            down
              ─► an adopted lower Pod gets the uid of its upper one
    lower Pod ─► Node, binding, status, deletion ─► upper Pod         up

With `Profile.node` upper pods are bound before they are mirrored: only the status goes up, and an upper pod fails when
its lower one is gone.

Sources: Kubernetes, "Pod Lifecycle"; k8s.io/kubernetes/pkg/registry/core/pod/storage (a binding's annotations become
the pod's).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from tenantry.api.errors import ApiError, BadRequest, Conflict, Invalid, NotFound, RetryableError
from tenantry.api.model import Json
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.plan import merge_patch
from tenantry.engine.request import ApiRequest, Verb
from tenantry.engine.writer import Writer
from tenantry.mirror import cachedpods, decision, marking, podevents, podlimits, pods, podstatus, things
from tenantry.mirror.adoption import ADOPTED
from tenantry.mirror.cachedpods import MOST_BYTES, CachedPod, Kept
from tenantry.mirror.copies import Copies
from tenantry.mirror.decision import Next
from tenantry.mirror.endings import Endings
from tenantry.mirror.podnodes import PodNodes
from tenantry.mirror.podpatches import PodPatches, named
from tenantry.mirror.pods import Down, Token
from tenantry.mirror.profile import Profile
from tenantry.mirror.refusals import REFUSALS, RETRY_SECONDS, cause, retry_seconds, upper_words
from tenantry.mirror.servicelinks import ServiceLinks
from tenantry.mirror.settledpods import SettledPods
from tenantry.mirror.shapes import NotTranslated, part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import PODS
from tenantry.mirror.tokens import PodTokens
from tenantry.mirror.upperpods import UpperPods

LISTED_SECONDS = 1.0
"""When to look again whether the lower pods of a namespace have been listed."""

AWAY_SECONDS = 5.0
"""When to look again at a pod whose lower API server does not answer: what was last known of it may be wrong by now."""

LINKS_SECONDS = 0.5
"""When to look again whether the Services of a pod's namespace have their addresses."""

_MANY = 16
"""So many pods at once keep both API servers busy."""


class PodMirror:
    """Mirrors the pods of one upper cluster; the key is the upper pod's.

    Args:
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
        upper_pods: The pods of the upper side.
        upper_nodes: The nodes of the upper side.
        copies: The copies of ConfigMaps and Secrets.
        links: The variables that name the Services of the upper side; None for no variables.
    """

    name = "pods"
    kind = CachedPod

    def __init__(
        self,
        profile: Profile,
        upper: Cluster,
        lower: LowerSide,
        *,
        upper_pods: UpperPods,
        upper_nodes: PodNodes,
        copies: Copies,
        links: ServiceLinks | None = None,
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._pods = upper_pods
        self._nodes = upper_nodes
        self._copies = copies
        self._links = links
        self._tokens = PodTokens(profile, upper, lower)
        # By key of a refused pod: how often in a row.
        self._refused: dict[str, int] = {}
        # By key of a pod that was bound: its uid, until the watch reports the binding.
        self._bound: dict[str, str] = {}
        self._patches = PodPatches(upper, lower)
        self._endings = Endings()
        self._settled = SettledPods()
        self._active = 0

    @property
    def is_busy(self) -> bool:
        """Return whether many pods are being created or followed at this moment."""
        return self._active > _MANY

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        below, selectors = self._lower.cluster, things.selector(self._profile.prefix)
        others = [self._nodes.watch(), self._links.watch() if self._links is not None else None]
        return [
            self._pods.watch(self._of_upper),
            *(each for each in others if each is not None),
            Watch(
                resource=PODS,
                decode=cachedpods.decoder(self._profile.prefix),
                keys=things.keys_of_lower(self._profile),
                selectors=selectors,
                cluster=below,
                scope=self._lower.scope,
            ),
        ]

    def wake(self, keys: Iterable[str]) -> None:
        """Queue pods for which something has changed that no watch reports."""
        for key in keys:
            self._upper.wake(PodMirror, key)

    def look_again(self, namespaces: Iterable[str]) -> None:
        """Queue the pods of upper namespaces whose lower namespace has changed, and the sources that they name.

        Args:
            namespaces: As `NamespacePairs.set` returns them.
        """
        changed = frozenset(namespaces)
        for each in self._upper.cache_of(PODS) or ():
            if each.key.partition("/")[0] in changed:
                self._upper.wake(PodMirror, each.key)
        # The upper pods of some may be gone.
        keys = things.keys_of_lower(self._profile)
        for each in self._lower.cluster.cache_of(PODS) or ():
            for key in keys(Change(None, each)):
                if key.partition("/")[0] in changed:
                    self._upper.wake(PodMirror, key)
        self._copies.look_again(changed)

    def _of_upper(self, change: Change[CachedPod]) -> Iterable[str]:
        found = change.after or change.before
        return [found.key] if found is not None else ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one pod a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: One side failed; the queue tries again.
        """
        upper, lower = cluster.cache(PODS).get(key), self._of(key)
        if upper is not None and lower is None and not self._is_listed(key):
            return LISTED_SECONDS
        room = self._lower.room
        if room is not None and room.counts(key):
            room.see(key, upper, lower)
        found = decision.decide(upper, lower, self._profile)
        if upper is None or found is not Next.FOLLOW:
            self._patches.forget(key)
        if upper is None:
            self._refused.pop(key, None)
            self._bound.pop(key, None)
            self._tokens.forget(key)
            self._settled.forget(key)
        self._active += 1
        try:
            return await self._go_on(cluster, found, upper, lower)
        finally:
            self._active -= 1
            if room is not None and room.counts(key):
                # What was written now, no watch reports.
                room.see(key, cluster.cache(PODS).get(key), self._of(key))

    async def _go_on(
        self, cluster: Cluster, found: Next, upper: CachedPod | None, lower: CachedPod | None
    ) -> float | None:
        again: float | None = None
        if found is Next.END_LOWER and lower is not None:
            await self._end(lower, self._lower.writer, decision.grace(upper) if upper is not None else None)
        elif found is Next.END_UPPER and upper is not None:
            await self._end(upper, cluster.writer, decision.grace(lower) if lower is not None else 0)
        elif found is Next.REFUSE and upper is not None:
            await self._refuse(upper, decision.BOUND_BY_USER)
        elif found is Next.LOST and upper is not None:
            again = await self._lose(upper)
        elif found is Next.FAIL and upper is not None and self._profile.limits is not None:
            again = await self._fail(upper, self._lower.unfit_reason, podlimits.unfit(upper.spec, self._profile.limits))
        elif found is Next.CREATE and upper is not None:
            again = await self._create(upper)
        elif found is Next.ADOPT and upper is not None and lower is not None:
            await self._adopt(upper, lower)
        elif found is Next.FOLLOW and (self._lower.cluster.outage.is_away or self._lower.is_silent()):
            again = await self._doubt(upper) if upper is not None else None
        elif found is Next.FOLLOW and upper is not None and lower is not None:
            again = await self._follow(upper, lower)
        return again

    def _of(self, key: str) -> CachedPod | None:
        found: CachedPod | None = self._lower.cluster.cache(PODS).get(self._profile.lower_key(PODS.kind, key))
        if found is None or things.is_own(self._profile, found.key, found.meta.get("labels")):
            return found
        return None

    def _is_listed(self, key: str) -> bool:
        """Return whether a lower pod that is not in the cache does not exist: the place must be watched, and listed."""
        place = self._profile.lower_namespace(key.partition("/")[0])
        is_anywhere = not place or self._lower.scope is None
        return is_anywhere or self._lower.cluster.is_listed_in(PODS, place)

    # -- down -------------------------------------------------------------------------------------

    async def _create(self, upper: CachedPod) -> float | None:
        refusal = self._left_out(upper)
        if refusal:
            return await self._hold_back(upper, refusal)
        above = await self._whole(upper)
        if above is None or not self._profile.is_mirrored(upper.key):
            return None
        none: Mapping[str, str] = {}
        links = self._links.of(upper.meta["namespace"]) if self._links is not None else none
        if links is None:
            return LINKS_SECONDS
        wanted = pods.down(above, self._profile, self._nodes.lower, links)
        if wanted.refusal:
            return await self._reject(upper, wanted.refusal)
        return await self._send(upper, above, wanted)

    async def _send(self, upper: CachedPod, above: Json, wanted: Down) -> float | None:
        """Create a lower pod; return in how many seconds to look again."""
        room = self._lower.room
        if room is not None and not room.admits(upper.key):
            if words := room.words(upper.key):
                await self._refuse(upper, words)
            return RETRY_SECONDS
        try:
            await self._copies.bring(wanted.needs)
            lower: CachedPod = await self._lower.writer.own(request.create_json(PODS, wanted.object), quiet=True)
        except REFUSALS as error:
            if room is not None and room.refused(upper.key, str(error)):
                return RETRY_SECONDS
            words = upper_words(error, self._profile, PODS.kind, upper.meta["namespace"], upper.meta["name"])
            await self._refuse(upper, str(words))
            return self._later(upper)
        self._refused.pop(upper.key, None)
        self._settled.keep(upper, wanted)
        if self._profile.node:
            # At once: a pod of which this is not recorded would get a second lower one.
            await self._show(upper, above, lower.object, is_current=False)
            self._tell_token(upper, above)
        # At once, because kubelet needs them before it starts a container.
        return await self._provide(upper, lower, wanted.tokens)

    async def _hold_back(self, upper: CachedPod, refusal: str) -> float | None:
        """Send no pod that is one too many, for now, or too large; return in how many seconds to look again."""
        if upper.kept is not Kept.TOO_MANY:
            return await self._reject(upper, refusal)
        await self._refuse(upper, refusal)
        return self._later(upper)

    def _tell_token(self, upper: CachedPod, above: Json) -> None:
        """Record in an event that a pod runs without the token that its upper side has added."""
        limits, reason = self._profile.limits, self._lower.token_reason
        if limits is not None and reason and podlimits.has_injected(part(above, "spec"), limits):
            note = "the token of its ServiceAccount stays in this cluster: set automountServiceAccountToken to false"
            self._upper.recorder.say(named(upper), EventKind.NORMAL, reason, note)

    async def _adopt(self, upper: CachedPod, lower: CachedPod) -> None:
        """Make a lower pod that was there before the one of an upper pod; its event wakes this key."""
        above = await self._whole(upper)
        if above is None:
            return
        try:
            wanted = marking.metadata(PODS.kind, above, self._profile, {pods.GIVEN_GATES: pods.gates(upper.spec)})
        except NotTranslated as error:
            await self._refuse(upper, str(error))
            return
        meta, marked = lower.meta, {each: wanted[each] for each in ("labels", "annotations")}
        body: Json = {"metadata": {"uid": lower.uid, **marked}}
        with suppress(NotFound, Conflict):
            await self._lower.writer.own(request.patch(PODS, meta["namespace"], meta["name"], body))

    def _later(self, upper: CachedPod) -> float:
        """Count a refusal; return in how many seconds to try again."""
        times = self._refused.get(upper.key, 0)
        self._refused[upper.key] = times + 1
        return retry_seconds(times)

    def _left_out(self, pod: CachedPod) -> str:
        """Return why a pod is not mirrored, or no longer; "" if it is."""
        if pod.kept is Kept.TOO_LARGE:
            limit = f"at most {MOST_BYTES // 1024} KiB are mirrored"
            return f"the pod has {pod.size // 1024} KiB, and {limit}: move data into ConfigMaps, Secrets or its image"
        if pod.kept is Kept.TOO_MANY and not self._pods.has_room():
            return f"more than {self._profile.most_pods} pods exist: delete pods, those that have ended included"
        return ""

    def _hidden(self, lower: CachedPod) -> str:
        """Return why the status of a lower pod is not shown; "" if it is."""
        if self._profile.node and lower.kept is Kept.TOO_LARGE:
            return f"the other cluster reports a pod of more than {MOST_BYTES // 1024} KiB: its status is not shown"
        return self._left_out(lower)

    async def _doubt(self, upper: CachedPod) -> float:
        """Show a pod as not ready if its lower side is silent for long; return in how many seconds to look again.

        The node controller of the upper side does so only for a node that it has found to be silent itself.
        """
        is_ready = podstatus.is_ready(upper.status)
        if self._profile.node and is_ready and upper.kept is Kept.WHOLE and self._lower.is_silent():
            words, now = self._lower.silent_message, rfc3339(self._upper.clock.now())
            status = podstatus.refused(upper.object, self._lower.silent_reason, words, now, podstatus.READY)
            if status is not None:
                await self._write_status(upper, status)
        # Controllers of the upper side may have written something, too.
        return AWAY_SECONDS

    async def _whole(self, upper: CachedPod) -> Json | None:
        """Return an upper pod whole; one of which the head alone was kept is read again. None if it has changed."""
        if upper.is_whole:
            return upper.object
        meta = upper.meta
        try:
            data = await self._upper.writer.send(request.get(PODS, meta["namespace"], meta["name"]))
        except NotFound:
            return None
        found = cachedpods.decode(msgspec.Raw(data), self._profile.prefix)
        # Of another version: its event wakes this key.
        return found.object if found.is_whole and (found.uid, found.version) == (upper.uid, upper.version) else None

    async def _reject(self, upper: CachedPod, message: str) -> float | None:
        """End an upper pod that can never have a lower one: one that is bound fails, others wait for their users."""
        if self._profile.node:
            return await self._fail(upper, self._lower.unfit_reason, message)
        await self._refuse(upper, message)
        return None

    async def _refuse(self, upper: CachedPod, message: str) -> None:
        """Record in the status of an upper pod, and in an event, why it has no lower one."""
        profile, reason = self._profile, self._lower.reason
        condition = profile.mark(profile.condition) if profile.node else podstatus.SCHEDULED
        status = podstatus.refused(upper.object, reason, message, rfc3339(self._upper.clock.now()), condition)
        if status is None:
            return
        await self._write_status(upper, status)
        self._upper.recorder.say(named(upper), EventKind.WARNING, reason, message)

    async def _fail(self, upper: CachedPod, reason: str, message: str) -> float | None:
        """End a bound upper pod, and record in an event why; return in how many seconds to look again."""
        left = self._left(upper)
        if left:
            return left
        status = podstatus.failed(upper.object, reason, message, rfc3339(self._upper.clock.now()))
        await self._write_status(upper, status)
        self._upper.recorder.say(named(upper), EventKind.WARNING, reason, message)
        return None

    def _left(self, upper: CachedPod) -> float:
        """Return in how many seconds a bound pod may be shown as failed; 0 for now, which counts."""
        now = self._upper.clock.now()
        about = upper.owner, upper.uid, podevents.time_of(upper.created), now
        left = self._endings.left(*about)
        if not left:
            self._endings.show(*about)
        return left

    async def _end(self, pod: CachedPod, writer: Writer, grace: int | None) -> None:
        meta = pod.meta
        asked = request.delete(PODS, meta["namespace"], meta["name"], uid=pod.uid, grace_period_seconds=grace)
        # Conflict: the name belongs to another pod by now, whose own events follow.
        with suppress(NotFound, Conflict):
            await writer.send(asked)

    # -- both -------------------------------------------------------------------------------------

    async def _follow(self, upper: CachedPod, lower: CachedPod) -> float | None:
        refusal = self._left_out(upper) or self._hidden(lower)
        if refusal:
            self._patches.tell(upper, refusal)
            return RETRY_SECONDS if upper.kept is Kept.TOO_MANY else None
        above, below = await self._whole(upper), lower.object
        if above is None:
            return None
        made = partial(pods.down, above, self._profile, self._nodes.lower)
        tokens, changed = self._settled.compared(upper, lower, below, self._profile, made)
        again, failure = None, None
        try:
            again = await self._provide(upper, lower, tokens)
        except ApiError as error:
            # A ServiceAccount that is gone must not hide what the pod does.
            failure = error
        node = part(below, "spec").get("nodeName")
        # The event of a binding wakes this key again; until then the upper pod is not the one to write a status of.
        shown: float | None = None
        if not node or not await self._bind(upper, lower, node):
            shown = await self._show(upper, above, below, is_current=changed.is_current)
        retry = await self._patches.send(upper, lower, changed)
        if failure is not None:
            raise failure
        return min((each for each in (again, shown, retry) if each is not None), default=None)

    async def _lose(self, upper: CachedPod) -> float | None:
        """End a bound upper pod whose lower pod is gone; return in how many seconds to look again.

        Raises:
            RetryableError: The lower pod is there, and only its labels hide it: the upper one must not be replaced.
        """
        namespace, _, name = self._profile.lower_key(PODS.kind, upper.key).partition("/")
        data = await self._lower.cluster.live.find(PODS, namespace, name)
        found = cachedpods.decode(msgspec.Raw(data), self._profile.prefix) if data is not None else None
        if found is not None and found.mark(self._profile, "uid") == upper.uid:
            raise RetryableError(f"pod {name!r} is there, but its labels are not those that it was given")
        return await self._fail(upper, self._lower.lost_reason, self._lower.lost_message)

    async def _show(self, upper: CachedPod, above: Json, below: Json, *, is_current: bool) -> float | None:
        """Write the status of a lower pod to its upper one, if it differs; return in how many seconds to look again."""
        status = podstatus.up(above, self._nodes.shown(below), self._profile, is_current=is_current)
        if status is None:
            return None
        fails = status.get("phase") == podstatus.FAILED and upper.status.get("phase") not in podstatus.ENDED
        left = self._left(upper) if fails and self._profile.node and not upper.is_deleting else 0.0
        if left:
            return left
        try:
            await self._write_status(upper, status)
        except (Invalid, BadRequest) as error:
            if not self._profile.node:
                raise
            # What another cluster reports may be anything.
            words = f"the status that the other cluster reports is refused: {cause(error)}"
            self._upper.recorder.say(named(upper), EventKind.WARNING, self._lower.reason, words)
            return self._later(upper)
        self._refused.pop(upper.key, None)
        return None

    async def _provide(self, upper: CachedPod, lower: CachedPod, tokens: Sequence[Token]) -> float | None:
        """Keep the tokens that a pod needs; return the seconds until the next renewal."""
        # The containers of an adopted pod mount what they have mounted before.
        if upper.is_deleting or lower.mark(self._profile, ADOPTED):
            return None
        return await self._tokens.bring(upper, lower, tokens)

    async def _bind(self, upper: CachedPod, lower: CachedPod, node: str) -> bool:
        """Bind an upper pod unless it is bound or ends; return whether it was bound now."""
        is_settled = upper.spec.get("nodeName") or upper.is_deleting
        if is_settled:
            self._bound.pop(upper.key, None)
        elif self._bound.get(upper.key) == upper.uid:
            return True
        if is_settled and not self._nodes.name(node):
            return False  # The lower node is gone; what its pods report is not.
        # Before the binding: Kubernetes' garbage collector of pods deletes those of missing nodes.
        name = await self._nodes.bring(node)
        if is_settled:
            return False
        meta = upper.meta
        mark = {self._profile.mark(decision.LOWER): lower.uid}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "uid": upper.uid, "annotations": mark},
            "target": {"apiVersion": "v1", "kind": "Node", "name": name},
        }
        asked = ApiRequest(
            verb=Verb.CREATE,
            resource=PODS,
            namespace=meta["namespace"],
            name=meta["name"],
            subresource="binding",
            body=body,
        )
        # The pod is gone, or was bound by the reconcile before, whose watch event is on its way.
        with suppress(NotFound, Conflict):
            await self._upper.writer.send(asked)
            self._bound[upper.key] = upper.uid
        return True

    async def _write_status(self, upper: CachedPod, status: Json) -> None:
        meta = upper.meta
        # At its version: conditions are one list, in which other controllers write theirs. And the answer of a write
        # would hide what users changed before it.
        about: Json = {"uid": upper.uid, "resourceVersion": str(upper.version)}
        patch: Json = {"metadata": about, "status": merge_patch(upper.status, status)}
        asked = request.patch(PODS, meta["namespace"], meta["name"], patch, subresource="status")
        # Conflict: another pod has the name by now, or the pod has changed. Its event wakes this key.
        with suppress(NotFound, Conflict):
            await self._upper.writer.own(asked, quiet=True)

"""Tokens of the upper side for lower pods: a Secret for each pod, renewed before its tokens expire.

A token is bound to the upper pod: the upper API server refuses it as soon as the pod is gone. The Secret belongs to the
lower pod, with which Kubernetes deletes it.

A profile with limits sends no token that the upper API server itself accepts, whatever its audience is: that API server
is asked about each one, because it may have been configured with another audience since the limits were set.

Source: Kubernetes, "Managing Service Accounts" (TokenRequest API, bound objects).
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.model import Json, Resource
from tenantry.engine import request
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind
from tenantry.mirror import names, things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.podpatches import named
from tenantry.mirror.pods import Token
from tenantry.mirror.profile import Profile
from tenantry.mirror.refusals import retry_seconds, upper_words
from tenantry.mirror.shapes import NotTranslated, part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import COPIED, Copy

RENEW = "renew"
"""The mark of the Secret: when its tokens are renewed, as RFC 3339; kubelet renews at four fifths, too."""

_RENEW_PART = 0.8
_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_SECRETS = COPIED["Secret"]


def is_tokens(profile: Profile, found: Copy) -> bool:
    """Return whether a lower Secret has tokens of a pod."""
    return profile.mark(RENEW) in found.annotations


def next_renewal(secrets: Iterable[Copy], lower: Iterable[CachedPod], profile: Profile) -> dt.datetime | None:
    """Return when the first token Secret of pods that run is renewed; None if none has one.

    Args:
        secrets: The Secrets of the lower side.
        lower: The lower pods.
        profile: The configuration.
    """
    running = {each.mark(profile, "uid") for each in lower if each.status.get("phase") not in ("Succeeded", "Failed")}
    due: list[dt.datetime] = []
    for each in secrets:
        mark = each.annotations.get(profile.mark(RENEW), "")
        if not mark or not things.is_of(profile, each.key, each.labels):
            continue
        if each.annotations.get(profile.mark("uid")) in running:
            with suppress(ValueError):
                due.append(dt.datetime.fromisoformat(mark))
    return min((each for each in due if each.tzinfo is not None), default=None)


class PodTokens:
    """The token Secrets of one mirror.

    Args:
        profile: The configuration.
        upper: The cluster whose API server issues the tokens.
        lower: The side of the Secrets.
    """

    def __init__(self, profile: Profile, upper: Cluster, lower: LowerSide) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        # By key of an upper pod whose Secret is refused: how often in a row, and when it is tried again.
        self._refused: dict[str, tuple[int, float]] = {}

    def forget(self, key: str) -> None:
        """Forget an upper pod that is gone."""
        self._refused.pop(key, None)

    async def bring(self, upper: CachedPod, lower: CachedPod, tokens: Sequence[Token]) -> float | None:
        """Create or renew the Secret of a pod; return the seconds until the next look at it, None for never.

        A Secret that the lower side refuses is reported in an event of the pod.

        Raises:
            ApiError: The upper side refuses, or one side does not answer.
        """
        if not tokens:
            return None
        now = self._upper.clock.now()
        name = self._profile.lower_name(names.TOKEN, upper.meta["namespace"], upper.meta["name"])
        found = self._lower.cluster.cache(_SECRETS).get(self._profile.lower_key(names.TOKEN, upper.key))
        if found is not None and found.annotations.get(self._profile.mark("uid")) == upper.uid:
            left = (self._due(found, now) - now).total_seconds()
            # A mark that users of the lower side have changed must not put the renewal off.
            if 0 < left <= _RENEW_PART * min(each.seconds for each in tokens):
                return left
        times, due = self._refused.get(upper.key, (0, 0.0))
        wait = due - self._upper.clock.monotonic()
        if times and wait > 0:
            return wait
        try:
            self._check_name(found)
            data = {each.key: await self._requested(upper, each) for each in tokens}
        except NotTranslated as refused:
            return self._refuse(upper, str(refused), times)
        seconds = _RENEW_PART * min(each.seconds for each in tokens)
        wanted = self._secret(name, upper, lower, data, now + dt.timedelta(seconds=seconds))
        asked = (request.create_json if found is None else request.replace_json)(_SECRETS, wanted)
        try:
            await self._lower.writer.own(asked, quiet=True)
        except (Forbidden, Invalid) as error:
            # Usually its quota has no room for another Secret.
            meta = upper.meta
            words = upper_words(error, self._profile, names.TOKEN, meta["namespace"], meta["name"])
            return self._refuse(upper, str(words), times)
        self._refused.pop(upper.key, None)
        return seconds

    def _refuse(self, upper: CachedPod, words: str, times: int) -> float:
        """Report a refusal; return in how many seconds to try again."""
        wait = retry_seconds(times)
        self._refused[upper.key] = (times + 1, self._upper.clock.monotonic() + wait)
        message = f"the tokens of its ServiceAccount, which take a Secret: {words}"
        self._upper.recorder.say(named(upper), EventKind.WARNING, self._lower.reason, message)
        return wait

    def _due(self, found: Copy, now: dt.datetime) -> dt.datetime:
        """Return when the tokens of a Secret are renewed: now, unless its mark is a time."""
        try:
            due = dt.datetime.fromisoformat(found.annotations.get(self._profile.mark(RENEW), ""))
        except ValueError:
            return now
        return due if due.tzinfo is not None else now

    def _check_name(self, found: Copy | None) -> None:
        """Refuse to replace the copy of a Secret, which may have the name of one with tokens, if users choose names.

        Raises:
            NotTranslated: Such a copy is there.
        """
        if found is not None and not self._profile.computed and not is_tokens(self._profile, found):
            name = found.key.partition("/")[2]
            raise NotTranslated(f"the copy of Secret {name!r} has the name of theirs: give that Secret another name")

    async def _requested(self, upper: CachedPod, token: Token) -> str:
        """Return a token of the upper pod's ServiceAccount, as the data of a Secret.

        Raises:
            NotTranslated: The upper API server accepts it itself, and it must not leave the upper side then.
        """
        asked = request.token(
            _ACCOUNTS,
            upper.meta["namespace"],
            upper.spec.get("serviceAccountName") or "default",
            seconds=token.seconds,
            audience=token.audience,
            pod=(upper.meta["name"], upper.uid),
        )
        found: str = msgspec.json.decode(await self._upper.writer.send(asked))["status"]["token"]
        if self._profile.limits is not None and await self._is_accepted_above(found):
            raise NotTranslated(
                f"the API server of this cluster accepts the audience {token.audience!r}, so that they stay here"
            )
        return base64.b64encode(found.encode()).decode()

    async def _is_accepted_above(self, token: str) -> bool:
        """Return whether the upper API server accepts a token itself."""
        answer: Json = msgspec.json.decode(await self._upper.writer.send(request.token_review(token)))
        # Left out if it is false.
        return bool(part(answer, "status").get("authenticated"))

    def _secret(self, name: str, upper: CachedPod, lower: CachedPod, data: dict[str, str], due: dt.datetime) -> Json:
        profile = self._profile
        marks = {"uid": upper.uid, RENEW: rfc3339(due)}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": lower.meta["namespace"],
                "labels": profile.labels(upper.meta["namespace"]),
                "annotations": {profile.mark(key): value for key, value in marks.items()},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": lower.meta["name"], "uid": lower.uid}],
            },
            "type": "Opaque",
            "data": data,
        }

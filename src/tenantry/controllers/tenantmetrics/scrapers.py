"""Clients that may read the series of tenants: the API server knows their token, and grants them `get` on /metrics.

    GET /metrics, Authorization: Bearer … ─► TokenReview ─► SubjectAccessReview get /metrics ─► 200, 401 or 403

The page lists the tenants and their usage, and every pod of a tenant may reach the port. Kubernetes' own components
decide in the same way.

Source: Kubernetes, "Authenticating", TokenReview, SubjectAccessReview; controller-runtime, pkg/metrics/filters.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.model import Json
from tenantry.engine import request
from tenantry.engine.clock import Clock
from tenantry.engine.request import ApiRequest

Send = Callable[[ApiRequest], Awaitable[bytes]]

VALID_SECONDS = 60.0
"""How long an answer counts: a scrape every 15 seconds costs two requests a minute."""

_MOST_ANSWERS = 64
"""Of each kind: tokens that may read, and tokens that may not, so that wrong ones push out no right one."""

_MOST_TOKEN = 16 * 1024
_AT_ONCE = 2
_MOST_WAITING = 64
_MOST_WAITING_OF_ONE = 4
"""Of one address. Any pod may send tokens: reviews take turns, and further requests are refused at once."""

_REVIEW_SECONDS = 5.0
"""Less than a scraper waits."""

log = logging.getLogger(__name__)


class _Verdicts:
    """The last verdicts on tokens, by the digests of these."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, HTTPStatus]] = OrderedDict()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._kept

    def valid(self, digest: bytes) -> HTTPStatus | None:
        """Return the verdict on a token; None if there is none, or it is too old."""
        until, found = self._kept.get(digest, (0.0, None))
        return found if until > self._clock.monotonic() else None

    def put(self, digest: bytes, found: HTTPStatus) -> None:
        """Keep a verdict, and forget the oldest if there are too many."""
        self._kept[digest] = (self._clock.monotonic() + VALID_SECONDS, found)
        self._kept.move_to_end(digest)
        while len(self._kept) > _MOST_ANSWERS:
            self._kept.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        """Forget the verdict on a token."""
        self._kept.pop(digest, None)


class Scrapers:
    """Remembers for a time which tokens may read.

    Args:
        send: Sends a review to the API server, and returns the response.
        clock: The time.
    """

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._readers = _Verdicts(clock)
        self._others = _Verdicts(clock)
        self._turns = asyncio.Semaphore(_AT_ONCE)
        # A scraper that may read waits behind none of the others when its verdict is renewed.
        self._renewals = asyncio.Semaphore(_AT_ONCE)
        self._waiting: Counter[str] = Counter()

    async def verdict(self, authorization: str, source: str) -> HTTPStatus:
        """Return the status of the response to a client: OK, UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE.

        Args:
            authorization: The header of its request; "" without one.
            source: Its IP address.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MOST_TOKEN:
            return HTTPStatus.UNAUTHORIZED
        # Not the token: a dump of the process must not have it.
        digest = hashlib.sha256(token.encode()).digest()
        known = self._readers.valid(digest) or self._others.valid(digest)
        if known is not None:
            return known
        if digest in self._readers:
            return await self._renewed(digest, token, self._renewals)
        if self._waiting[source] >= _MOST_WAITING_OF_ONE or self._waiting.total() >= _MOST_WAITING:
            return HTTPStatus.SERVICE_UNAVAILABLE
        self._waiting[source] += 1
        try:
            return await self._renewed(digest, token, self._turns)
        finally:
            self._waiting[source] -= 1
            if not self._waiting[source]:
                del self._waiting[source]

    async def _renewed(self, digest: bytes, token: str, turns: asyncio.Semaphore) -> HTTPStatus:
        try:
            async with turns, asyncio.timeout(_REVIEW_SECONDS):
                found = await self._review(token)
        except (ApiError, TimeoutError) as error:
            log.warning("a client of /metrics cannot be reviewed", extra={"error": str(error) or "no answer in time"})
            return HTTPStatus.SERVICE_UNAVAILABLE
        kept, other = (self._readers, self._others) if found is HTTPStatus.OK else (self._others, self._readers)
        other.forget(digest)
        kept.put(digest, found)
        return found

    async def _review(self, token: str) -> HTTPStatus:
        user = whose(await self._answer(request.token_review(token)))
        if user is None:
            return HTTPStatus.UNAUTHORIZED
        review = await self._answer(request.access_review(user, "/metrics"))
        status: Json = review.get("status") or {}
        return HTTPStatus.OK if status.get("allowed") is True else HTTPStatus.FORBIDDEN

    async def _answer(self, asked: ApiRequest) -> Json:
        return msgspec.json.decode(await self._send(asked), type=Json)


def whose(review: Json) -> Json | None:
    """Return the user of a token as a SubjectAccessReview names it; None if the token is not valid.

    Args:
        review: The TokenReview that the API server has answered.
    """
    status: Json = review.get("status") or {}
    user: Json = status.get("user") or {}
    if status.get("authenticated") is not True or not user.get("username"):
        return None
    return {
        "user": user["username"],
        "uid": user.get("uid", ""),
        "groups": user.get("groups") or [],
        "extra": user.get("extra") or {},
    }

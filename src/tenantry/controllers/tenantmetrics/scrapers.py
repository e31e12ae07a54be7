"""Who may read the series of tenants: clients whose token the API server knows, and that may get /metrics.

    GET /metrics, Authorization: Bearer … ─► TokenReview ─► SubjectAccessReview get /metrics ─► 200, 401 or 403

The page tells which tenants there are, and what they use: every pod of a tenant may reach the port. Kubernetes' own
components decide in the same way.

Source: Kubernetes, "Authenticating", TokenReview, SubjectAccessReview; controller-runtime, pkg/metrics/filters.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
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
_MOST_TOKEN = 16 * 1024
_AT_ONCE = 2
"""Any pod may send tokens: reviews take turns, so that they cost the API server little."""

log = logging.getLogger(__name__)


class Scrapers:
    """Remembers for a time which tokens may read.

    Args:
        send: Sends a review to the API server, and returns the response.
        clock: The time.
    """

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[float, HTTPStatus]] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def verdict(self, authorization: str) -> HTTPStatus:
        """Return the status of the response to a client: OK, UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE.

        Args:
            authorization: The header of its request; "" without one.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MOST_TOKEN:
            return HTTPStatus.UNAUTHORIZED
        # Not the token: a dump of the process must not have it.
        digest = hashlib.sha256(token.encode()).digest()
        known = self._answers.get(digest)
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        try:
            async with self._turns:
                found = await self._review(token)
        except ApiError as error:
            log.warning("a client of /metrics cannot be reviewed", extra={"error": str(error)})
            return HTTPStatus.SERVICE_UNAVAILABLE
        self._answers[digest] = (self._clock.monotonic() + VALID_SECONDS, found)
        self._answers.move_to_end(digest)
        while len(self._answers) > _MOST_ANSWERS:
            self._answers.popitem(last=False)
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

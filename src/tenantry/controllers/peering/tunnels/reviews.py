"""What the API server of a home says about the token with which a peer opens its tunnel: pure.

    authenticated          ─► the PeerCluster whose account has the token, if it is for tunnels
    refused                ─► no tunnel
    could not be checked   ─► no verdict: the peer tries again, and a tunnel that is open stays

TokenReview has one text, `status.error`, both for why a token is refused and for why it could not be checked, as in

    [invalid bearer token, serviceaccounts "berlin-tunnel" not found]
    [invalid bearer token, etcdserver: request timed out]

The second kind is known by its words. A text that is not known refuses the token.

Source: Kubernetes, TokenReview v1; k8s.io/kubernetes, pkg/serviceaccount (the errors of its reads are passed on).
"""

from __future__ import annotations

import re

from tenantry.api.errors import RetryableError
from tenantry.api.model import Json
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_SUFFIX
from tenantry.engine.request import ApiRequest, token_review

_USER = re.compile(rf"system:serviceaccount:{PEERS_NAMESPACE}:(.+){TUNNEL_SUFFIX}", re.ASCII)
_PASSING = re.compile(
    r"time ?out|timed out|time allotted|deadline exceeded|context canceled|too many requests|connection refused"
    r"|connection reset|broken pipe|unexpected EOF|unavailable|internal error|leader changed|no leader",
    re.ASCII | re.IGNORECASE,
)


def asked(token: str) -> ApiRequest:
    """Return the question whether a token is valid for tunnels."""
    return token_review(token, [TUNNEL_AUDIENCE])


def peer_of(review: Json) -> str | None:
    """Return the name of the peer whose account has a token; None if the token opens no tunnel.

    Args:
        review: The answer of the API server.

    Raises:
        RetryableError: The API server could not check the token.
    """
    status: Json = review.get("status") or {}
    if not status.get("authenticated"):
        problem = str(status.get("error") or "")
        if _PASSING.search(problem):
            raise RetryableError(f"the API server of the home could not check the token: {problem}")
        return None
    # An authenticator that ignores audiences returns none.
    if TUNNEL_AUDIENCE not in (status.get("audiences") or ()):
        return None
    user: Json = status.get("user") or {}
    found = _USER.fullmatch(str(user.get("username", "")))
    return found[1] if found is not None else None

"""When the token of a home at a peer is replaced: at a seventh of its life, also after a restart. Pure.

    issued ──── 1/7 ────► renewed                                   expires
    a token from before this process: its age is what it says itself
    a token that this process has stored: its age is by our own clock, so that clocks that differ do not matter

Each token is valid until it expires, because Kubernetes cannot revoke one alone. So a link that begins again must not
request another one. What a token says of itself is not verified: a peer that lies only harms its own tokens.

Source: RFC 7519, section 4.1.
"""

from __future__ import annotations

import base64
import datetime as dt

import msgspec

RENEW_SECONDS = 24 * 3600.0
"""The longest time until a token is replaced, and the time if its life is not known: it has seven days."""

_PART = 7
_SKEW_SECONDS = 600.0
"""A token that was issued later than so far in the future says nothing about its age."""


class TokenLife(msgspec.Struct, frozen=True):
    """The life of a token, as it says itself, in seconds since 1970.

    Args:
        iat: When it was issued.
        exp: When it expires.
    """

    iat: float
    exp: float


def read(token: str) -> TokenLife | None:
    """Return the life of a JSON Web Token; None if it does not say.

    Args:
        token: Untrusted.
    """
    parts = token.split(".")
    payload = parts[1] if len(parts) == 3 else ""  # noqa: PLR2004 - header, payload, signature
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=TokenLife)
    except (ValueError, msgspec.MsgspecError):
        return None
    return found if found.iat < found.exp else None


def seconds_left(token: str, now: dt.datetime, held: float | None = None) -> float:
    """Return in how many seconds a token is to be replaced; 0 for at once, also if its age is not known.

    Args:
        token: The token.
        now: The time.
        held: For how many seconds this process has had it since its issue; None for a token from before.
    """
    life = read(token)
    period = min(RENEW_SECONDS, (life.exp - life.iat) / _PART) if life is not None else RENEW_SECONDS
    if held is not None:
        return max(0.0, period - held)
    if life is None:
        return 0.0
    age = now.timestamp() - life.iat
    return max(0.0, period - age) if age >= -_SKEW_SECONDS else 0.0

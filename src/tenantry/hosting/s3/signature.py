"""AWS Signature Version 4, as S3-compatible stores ask for it: pure.

    method, path, query, headers ─► canonical request ─► string to sign ─► Authorization
                                                     ▲ key of the day, region and service

Only a signature leaves this machine, never the secret key: a store that is not the right one learns nothing that it can
use. The hash of the body is signed, too, so that neither a request nor its body can be changed on its way.

Source: AWS Identity and Access Management User Guide, "Create a signed AWS API request"; Amazon S3 API Reference,
"Signature Calculations for the Authorization Header".
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

EMPTY = hashlib.sha256(b"").hexdigest()
"""The hash of a request without a body."""

CONTENT_HASH = "x-amz-content-sha256"
DATE = "x-amz-date"
_ALGORITHM = "AWS4-HMAC-SHA256"


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of a user of a store.

    Args:
        identifier: The access key ID, which each request has.
        secret: The secret access key.
    """

    identifier: str
    secret: str

    # Messages and logs show it.
    def __repr__(self) -> str:
        """Return everything but the secret."""
        return f"AccessKey({self.identifier!r})"


class SigningScope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a signature is valid, besides its day.

    Args:
        region: As in "us-east-1".
        service: As in "s3".
    """

    region: str
    service: str = "s3"


def escaped(text: str, *, safe: str = "") -> str:
    """Return a text as signed paths and queries have it: everything but A-Z a-z 0-9 - . _ ~ is escaped.

    Args:
        text: The text.
        safe: Further characters that stay, as the slash of a path.
    """
    return quote(text, safe=f"-._~{safe}")


def query_text(query: Mapping[str, str]) -> str:
    """Return a query in the order in which it is signed; send it as it is."""
    return "&".join(sorted(f"{escaped(name)}={escaped(value)}" for name, value in query.items()))


def canonical(method: str, path: str, query: str, headers: Mapping[str, str], content: str) -> tuple[str, str]:
    """Return the canonical request, and the names of the headers that it has.

    Args:
        method: As in "GET".
        path: The escaped path.
        query: As `query_text` returns it.
        headers: All headers that are signed, names in lower case.
        content: The hash of the body.
    """
    # Values with several blanks in a row are signed with one.
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)]
    names = ";".join(sorted(headers))
    return "\n".join([method, path, query, *lines, "", names, content]), names


def authorization(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    *,
    key: AccessKey,
    scope: SigningScope,
    content: str = EMPTY,
) -> str:
    """Return the header Authorization of a request.

    Args:
        method: As in "GET".
        path: The escaped path.
        query: As `query_text` returns it.
        headers: All headers that are signed, names in lower case: `host` and `x-amz-date` at least.
        key: The credentials.
        scope: Where the signature is valid.
        content: The hash of the body.
    """
    request, names = canonical(method, path, query, headers, content)
    stamp = headers[DATE]
    within = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join([_ALGORITHM, stamp, within, hashlib.sha256(request.encode()).hexdigest()])
    signing = f"AWS4{key.secret}".encode()
    for part in within.split("/"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = hmac.digest(signing, text.encode(), "sha256").hex()
    return f"{_ALGORITHM} Credential={key.identifier}/{within},SignedHeaders={names},Signature={signature}"


def stamp(now: dt.datetime) -> str:
    """Return a time as the header x-amz-date has it.

    Args:
        now: The time, in UTC.
    """
    return now.strftime("%Y%m%dT%H%M%SZ")

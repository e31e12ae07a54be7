"""What an S3-compatible store answers: its lists, and its refusals in one sentence each. Pure.

The store is another party: its texts are bounded, and only codes of the protocol are repeated in messages.

Source: Amazon S3 API Reference, "Error responses" and "ListObjectsV2".
"""

from __future__ import annotations

import re

# Documents with declarations, which could name entities, are refused before they are parsed.
import xml.etree.ElementTree as ET

import msgspec

from tenantry.api.errors import StoreError

MOST_BYTES = 4 * 2**20
"""How long an answer that is not an object may be."""

_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_PASSING = frozenset({429, 500, 502, 503, 504})
_CLOCK = "the clock of the operator's machine differs from that of the store: correct the time"
_KEYS = "it does not accept the access key: check the keys accessKey and secretKey of the Secret"
_BUCKET = "the bucket does not exist, or belongs to another region: create it, or correct bucket and region"
_REGION = "the bucket is in another region: correct region"
_RIGHTS = "the access key has no right to {doing}: it needs s3:ListBucket, GetObject, PutObject and DeleteObject"
_SENTENCES = {
    "AccessDenied": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "AuthorizationHeaderMalformed": _REGION,
    "BadDigest": "the snapshot was changed on its way to the store: try again",
    "EntityTooLarge": "the snapshot is larger than the store accepts",
    "ExpiredToken": _KEYS,
    "IllegalLocationConstraintException": _REGION,
    "InvalidAccessKeyId": _KEYS,
    "NoSuchBucket": _BUCKET,
    "NoSuchKey": "there is no such snapshot of this control plane: status.snapshots lists those that there are",
    "PermanentRedirect": _REGION,
    "QuotaExceeded": "the bucket is full: delete objects, or raise its quota",
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "SignatureDoesNotMatch": _KEYS,
    "TemporaryRedirect": _REGION,
    # Of versitygw.
    "XAdminUserNotFound": _KEYS,
    "XAmzContentSHA256Mismatch": "the snapshot was changed on its way to the store: try again",
}


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a bucket.

    Args:
        key: Its whole key.
        size: In bytes.
    """

    key: str
    size: int


class ObjectPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list of objects.

    Args:
        objects: Those of this page.
        following: The token of the next page; "" for the last one.
    """

    objects: tuple[StoredObject, ...]
    following: str = ""


def refusal(status: int, body: bytes, doing: str, name: str) -> StoreError:
    """Return what a refusal of a store means.

    Args:
        status: The HTTP status.
        body: The beginning of the answer.
        doing: What was requested, as in "list objects".
        name: The name of the destination.
    """
    found = _CODE.search(body)
    code = found[1].decode() if found else ""
    said = f"HTTP {status}{f', {code}' if code else ''}"
    if sentence := _SENTENCES.get(code, ""):
        why = sentence.format(doing=doing)
    elif status in {301, 302, 307, 308}:
        why = _REGION
    elif status in {401, 403}:
        why = _RIGHTS.format(doing=doing)
    elif status == 404:  # noqa: PLR2004 - an HTTP status
        why = "it has no such bucket or object: check endpoint, bucket and prefix"
    elif status == 507:  # noqa: PLR2004 - an HTTP status
        why = "the store is full"
    elif status in _PASSING:
        why = f"the store cannot {doing} now: try again later"
    else:
        why = f"the store refuses to {doing}: check that endpoint is that of an S3-compatible store"
    return StoreError(f"{told(name)}: {why} ({said})", is_passing=status in _PASSING)


def damaged(name: str, why: str) -> StoreError:
    """Return the error about a snapshot that does not arrive as it was sent.

    Args:
        name: The name of the destination.
        why: What is wrong.
    """
    return StoreError(f"{told(name)}: {why}")


def page(body: bytes, name: str) -> ObjectPage:
    """Return a page of a list.

    Args:
        body: The whole answer.
        name: The name of the destination.

    Raises:
        StoreError: It is not one.
    """
    strange = StoreError(f"{told(name)}: the store does not answer as S3 does: check endpoint")
    if b"<!" in body:
        raise strange
    try:
        root = ET.fromstring(body)  # noqa: S314 - without declarations, XML has no entities but its own five
        objects = [
            StoredObject(key=_text(each, "Key"), size=int(_text(each, "Size")))
            for each in root
            if _local(each.tag) == "Contents"
        ]
    except (ET.ParseError, ValueError) as error:
        raise strange from error
    if _local(root.tag) != "ListBucketResult":
        raise strange
    following = _text(root, "NextContinuationToken") if _text(root, "IsTruncated") == "true" else ""
    return ObjectPage(objects=tuple(objects), following=following)


def _text(parent: ET.Element, name: str) -> str:
    return next((each.text or "" for each in parent if _local(each.tag) == name), "")


def _local(tag: str) -> str:
    """Return a name without its namespace, which some stores leave out."""
    return tag.rpartition("}")[2]


def told(name: str) -> str:
    """Return a destination as messages begin."""
    return f'destination "{name}"'

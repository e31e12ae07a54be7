"""The names of lower objects: pure.

A lower name is `<first 40 characters of the upper name>-<16 hexadecimal digits>`. The digits are the first of the
SHA-256 of the owner's uid, the kind, the namespace and the name. Users of the upper side cannot choose the uid, and 64
bits are too many to search, so they cannot find a name that collides with the lower object of another owner.

    lower_name("7f3a…", "Secret", "shop", "password")  ->  "password-5c1b0e0f4d0a92be"
"""

from __future__ import annotations

import re
from hashlib import sha256

TOKEN = "Token"  # noqa: S105 - a word in a name
"""In the place of a kind: the Secret with the tokens of a pod, which has no upper object."""

KEPT = 40
DIGITS = 16
LABEL_LENGTH = 63
"""The longest value of a label (Kubernetes: "Labels and selectors", syntax)."""


def lower_name(owner_uid: str, kind: str, namespace: str, name: str) -> str:
    """Return the name of the lower object: a DNS-1123 subdomain, and a DNS-1123 label unless the upper name has a dot.

    Args:
        owner_uid: The uid that all lower objects of one upper side have in common.
        kind: The kind of the upper object, or another word for a lower object that has no upper one.
        namespace: The namespace of the upper object.
        name: The name of the upper object.
    """
    # Valid names are only cut and trimmed; the replacements keep the result valid for any other input.
    legible = re.sub(r"-*\.[-.]*", ".", re.sub(r"[^a-z0-9.-]", "-", name[:KEPT])).strip("-.")
    digits = _digest(owner_uid, kind, namespace, name)
    return f"{legible}-{digits}" if legible else digits


def label_value(text: str) -> str:
    """Return a text as the value of a label: unchanged up to 63 characters, else its beginning and its hash."""
    if len(text) <= LABEL_LENGTH:
        return text
    return f"{text[: LABEL_LENGTH - DIGITS - 1]}-{_digest(text)}"


def _digest(*parts: str) -> str:
    encoded = [part.encode(errors="surrogatepass") for part in parts]
    # With its length before it, no part can continue into the next: ("a", "bc") and ("ab", "c") differ.
    return sha256(b"".join(b"%d:%b" % (len(part), part) for part in encoded)).hexdigest()[:DIGITS]

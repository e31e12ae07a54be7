"""The serving certificates of the webhook, in one Secret, and when they are replaced: pure.

    serving ─── two thirds of its life ─► following is made, and trusted ─► following serves, the former stays trusted

All replicas serve the same certificate, which signs itself. The API server trusts the next one before a replica serves
it, and the last one until all replicas have taken the change in. The path of the webhook has a secret part, because
every pod may reach its port, and responses have labels of namespaces.
"""

from __future__ import annotations

import base64
import datetime as dt

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from tenantry.api.marks import MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Json, Resource
from tenantry.controllers.webhook.mutations import KEYS_OBJECT

MARK = "tenantry.dev/webhook"
"""The label of the Secret, by which it is cached apart from all others."""

SECRETS = Resource("", "v1", "secrets", "Secret", selected=MARK)
LIFE = dt.timedelta(days=90)
OVERLAP = dt.timedelta(seconds=10)
"""How long the API server has to take in that it trusts a certificate before that is served."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


class WebhookKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What the Secret has.

    Args:
        token: The secret part of the path.
        serving: What replicas serve.
        following: What they serve next; None if nothing is due.
        former: The certificate that they served before; b"" for none.
    """

    token: str
    serving: KeyPair
    following: KeyPair | None = None
    former: bytes = b""

    @property
    def authorities(self) -> bytes:
        """Return the certificates that the API server trusts, PEM."""
        following = self.following.certificate if self.following is not None else b""
        return b"".join((self.serving.certificate, following, self.former))


_FIELDS = ("token", "serving.crt", "serving.key")


def read(secret: Json | None) -> WebhookKeys | None:
    """Return what a Secret has; None if it is missing, or if a field is missing or cannot be read."""
    data: Json = (secret or {}).get("data") or {}
    try:
        values = {key: base64.b64decode(text, validate=True) for key, text in data.items()}
        if not all(values.get(field) for field in _FIELDS):
            return None
        token = values["token"].decode("ascii")
        if not token.isalnum():
            return None
        serving = _pair(values["serving.crt"], values["serving.key"])
        has_next = "following.crt" in values and "following.key" in values
        following = _pair(values["following.crt"], values["following.key"]) if has_next else None
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return None
    return WebhookKeys(
        token=token,
        serving=serving,
        following=following,
        former=values.get("former.crt", b""),
    )


def _pair(certificate: bytes, key: bytes) -> KeyPair:
    """Return a certificate and its key.

    Raises:
        ValueError: They cannot be read, or do not belong together.
    """
    own = serialization.load_pem_private_key(key, None).public_key()
    if own != x509.load_pem_x509_certificate(certificate).public_key():
        raise ValueError("the key is not that of the certificate")
    return KeyPair(certificate, key)


def written(keys: WebhookKeys) -> Json:
    """Return the Secret of keys."""
    values = {"token": keys.token.encode(), "serving.crt": keys.serving.certificate, "serving.key": keys.serving.key}
    if keys.following is not None:
        values |= {"following.crt": keys.following.certificate, "following.key": keys.following.key}
    if keys.former:
        values["former.crt"] = keys.former
    return {
        "metadata": {
            "name": KEYS_OBJECT,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {MANAGED_BY: MANAGER, MARK: "keys"},
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in values.items()},
    }


def renewal(pair: KeyPair) -> dt.datetime:
    """Return when a certificate is replaced: at two thirds of its life."""
    found = x509.load_pem_x509_certificate(pair.certificate)
    start, end = found.not_valid_before_utc, found.not_valid_after_utc
    return start + (end - start) * 2 / 3


def is_due(keys: WebhookKeys, now: dt.datetime) -> bool:
    """Return whether the next certificate must be made."""
    return keys.following is None and now >= renewal(keys.serving)


def promoted(keys: WebhookKeys) -> WebhookKeys:
    """Return the keys after the next certificate has taken the place of the present one."""
    if keys.following is None:
        return keys
    return WebhookKeys(token=keys.token, serving=keys.following, former=keys.serving.certificate)

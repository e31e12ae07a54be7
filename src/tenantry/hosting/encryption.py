"""The keys with which a hosted API server encrypts Secrets and ConfigMaps in its datastore: pure.

    PlaneKeys ─► `configuration` ─► a file of mode 0600, or a key of a Secret ─► kube-apiserver
                                 ─► go/hosted: everything that is stored under another key is encrypted again
    a file that was written so   ─► `parse` ─► PlaneKeys

The first key encrypts; all of them decrypt. A process reads the file once, at its start, before its API server serves.

Source: Kubernetes, "Encrypting Confidential Data at Rest" (EncryptionConfiguration, the provider secretbox).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Annotated

import msgspec

FILE = "encryption.json"
"""The name of the file, and of the key of the Secret with the same content."""

RESOURCES = ("secrets", "configmaps")
"""What is encrypted: programs keep passwords in ConfigMaps, too."""

KEY_BYTES = 32
"""Of a key of secretbox (XSalsa20 and Poly1305)."""

_DIGEST = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class EncryptionKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key.

    Args:
        name: What stored values name it by.
        secret: `KEY_BYTES` bytes.
    """

    name: str
    secret: bytes

    # Messages and logs show it.
    def __repr__(self) -> str:
        """Return the name alone."""
        return f"EncryptionKey({self.name!r})"

    @property
    def digest(self) -> str:
        """Return what a status has of it, by which a key that was edited is found."""
        return hashlib.sha256(b"tenantry encryption key\0" + self.secret).hexdigest()[:_DIGEST]


class PlaneKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one control plane.

    Args:
        keys: At least one; the first one encrypts.
        reads_plain: Whether values that are not encrypted are read, too: those of an earlier version.
    """

    keys: tuple[EncryptionKey, ...]
    reads_plain: bool = False

    @property
    def is_mixed(self) -> bool:
        """Return whether anything may be stored in another way than under the first key."""
        return self.reads_plain or len(self.keys) > 1


class _Named(msgspec.Struct):
    name: str
    secret: str


class _Secretbox(msgspec.Struct):
    keys: Annotated[list[_Named], msgspec.Meta(min_length=1)]


class _Provider(msgspec.Struct, omit_defaults=True):
    secretbox: _Secretbox | None = None
    identity: dict[str, str] | None = None


class _Rule(msgspec.Struct):
    resources: list[str]
    providers: list[_Provider]


class _Configuration(msgspec.Struct):
    kind: str
    api_version: str = msgspec.field(name="apiVersion")
    resources: list[_Rule]


def configuration(keys: PlaneKeys) -> bytes:
    """Return the EncryptionConfiguration."""
    named = [_Named(name=each.name, secret=base64.b64encode(each.secret).decode()) for each in keys.keys]
    plain = [_Provider(identity={})] if keys.reads_plain else []
    providers = [_Provider(secretbox=_Secretbox(keys=named)), *plain]
    found = _Configuration(
        kind="EncryptionConfiguration",
        api_version="apiserver.config.k8s.io/v1",
        resources=[_Rule(resources=list(RESOURCES), providers=providers)],
    )
    return msgspec.json.encode(found)


def parse(content: bytes) -> PlaneKeys | None:
    """Return the keys of a file that `configuration` has written; None for anything else."""
    try:
        found = msgspec.json.decode(content, type=_Configuration)
        (rule,) = found.resources
        box = rule.providers[0].secretbox
        if box is None:
            return None
        keys = tuple(
            EncryptionKey(name=each.name, secret=base64.b64decode(each.secret, validate=True)) for each in box.keys
        )
    except (ValueError, IndexError, binascii.Error, msgspec.MsgspecError):
        return None
    is_whole = all(_NAME.fullmatch(each.name) and len(each.secret) == KEY_BYTES for each in keys)
    if not is_whole or len({each.name for each in keys}) != len(keys):
        return None
    kept = PlaneKeys(keys=keys, reads_plain=len(rule.providers) > 1)
    # The rest is as it should be, too.
    return kept if configuration(kept) == content else None

"""The authorities of hosted control planes as files, so that a copy of them is kept elsewhere: pure.

files that a place has ─► `of`: authorities, the key of tokens, and the record of both ─► the operator keeps a copy
the place has lost them ─► the copy is put back ─► every certificate is issued again, by the same authorities
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from tenantry.hosting.certificates import IssuedCertificate
from tenantry.hosting.stores import StoreKind

INDEX = "index.json"
"""The file with what was issued in a folder."""

TOKENS = "service-account"
"""The key pair of the tokens of ServiceAccounts: `.pub` and `.key`."""

ETCD = "etcd-ca"
"""The authority of an etcd that a control plane has to itself; both sides of it are issued anew if it is lost."""

KINDS = {
    "ca": ("ca.crt", "ca.key"),
    "users-ca": ("users-ca.crt", "users-ca.key"),
    "front-proxy-ca": ("front-proxy-ca.crt", "front-proxy-ca.key"),
    TOKENS: (f"{TOKENS}.pub", f"{TOKENS}.key"),
}
"""The names of the authorities of a control plane, and their two files."""

NEEDED = ("ca", "users-ca", "front-proxy-ca", TOKENS)


class AuthorityFiles(Protocol):
    """The authorities of the control planes of one place."""

    async def read(self, uid: str) -> dict[str, bytes]:
        """Return the files of `of`, and the two of `ETCD` if there are any; {} for a control plane without.

        Raises:
            TenantryError: They cannot be read.
        """
        ...

    async def put_back(self, uid: str, files: Mapping[str, bytes], kind: StoreKind) -> None:
        """Give a control plane the authorities of a copy, if it has none; the next start issues the rest.

        Args:
            uid: The uid of the control plane.
            files: As `of` returns them.
            kind: Of its datastore.

        Raises:
            TenantryError: They cannot be written.
        """
        ...


def of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of the authorities among those of a control plane, with their record; {} if one is missing.

    Args:
        files: The contents by their names.
    """
    issued = record(files)
    kept = {name: issued[name] for name in NEEDED if name in issued and all(each in files for each in KINDS[name])}
    if set(kept) != set(NEEDED):
        return {}
    return {INDEX: msgspec.json.encode(kept), **{each: files[each] for name in kept for each in KINDS[name]}}


def record(files: Mapping[str, bytes]) -> dict[str, IssuedCertificate]:
    """Return what was issued, by name; {} if that cannot be read."""
    try:
        return msgspec.json.decode(files.get(INDEX, b"{}"), type=dict[str, IssuedCertificate])
    except msgspec.MsgspecError:
        return {}

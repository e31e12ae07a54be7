"""The datastore of a VirtualControlPlane: pure.

spec.datastore ─► HostedStore ◄─ Secret in the operator's namespace, which only administrators write and name
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError, TerminalError
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import DatastoreKind, VirtualControlPlane
from tenantry.hosting.stores import HostedStore, SqlServer, StoreKind, remote

_KINDS = {
    DatastoreKind.SQLITE: StoreKind.SQLITE,
    DatastoreKind.SHARED_ETCD: StoreKind.SHARED_ETCD,
    DatastoreKind.OWN_ETCD: StoreKind.OWN_ETCD,
    DatastoreKind.EXTERNAL: StoreKind.SQL,
}
# PostgreSQL folds other names.
_DATABASE = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def kind_of(found: VirtualControlPlane) -> StoreKind:
    """Return the kind of the datastore of a VirtualControlPlane, as the place of processes calls it."""
    return _KINDS[found.spec.datastore.kind]


def secret_of(found: VirtualControlPlane) -> str:
    """Return the name of the Secret that a datastore needs; "" for none."""
    reference = found.spec.datastore.secret_ref
    return reference.name if found.spec.datastore.kind is DatastoreKind.EXTERNAL and reference else ""


def store_of(found: VirtualControlPlane, secret: Json | None) -> HostedStore:
    """Return the datastore of a VirtualControlPlane.

    Args:
        found: The VirtualControlPlane.
        secret: The Secret that `secret_of` names; None if there is none.

    Raises:
        TerminalError: The Secret is missing, or is not one of a SQL server.
    """
    kind = kind_of(found)
    name = secret_of(found)
    if not name:
        return HostedStore(kind=kind)
    told = f"Secret {name!r} in namespace {SYSTEM_NAMESPACE!r}"
    if secret is None:
        raise TerminalError(reasons.INVALID_SPEC, f"{told} does not exist: an administrator creates it")
    try:
        data = msgspec.convert(secret.get("data") or {}, dict[str, str])
        values = {key: base64.b64decode(value).decode() for key, value in data.items()}
        server = msgspec.convert(values, SqlServer)
    except (binascii.Error, UnicodeDecodeError, msgspec.ValidationError) as error:
        # The error has names of fields and not their values.
        told = f"{told} must have the keys driver, address, database, user and password: {error}"
        raise TerminalError(reasons.INVALID_SPEC, told) from None
    if not _DATABASE.fullmatch(server.database):
        message = f"{told}: database must be lower-case letters, digits and _, and begin with no digit"
        raise TerminalError(reasons.INVALID_SPEC, message)
    try:
        remote(server.address)
        _check_cidrs(server.allowed)
    except InputError as error:
        raise TerminalError(reasons.INVALID_SPEC, f"{told}: {error}") from error
    return HostedStore(kind=kind, sql=server)


def _check_cidrs(given: str) -> None:
    for each in filter(None, (each.strip() for each in given.split(","))):
        try:
            ipaddress.ip_network(each)
            is_cidr = "/" in each
        except ValueError:
            is_cidr = False
        if not is_cidr:
            raise InputError(f"allowed must be CIDRs, separated by commas, not {each!r}")

"""The destination of the snapshots of a VirtualControlPlane: pure.

spec.snapshots.destination ─► TenancyDefaults, which only administrators write ─► SnapshotPlace
                              Secret in the operator's namespace, which it names ─► credentials

Owners choose a name and nothing else: an address of theirs would make the operator send requests inside of the cluster.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Set as AbstractSet

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import TerminalError
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.api.snapshotdestinations import SnapshotDestination
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.engine.plan import Blocked
from tenantry.hosting import snapshotplaces
from tenantry.hosting.s3.signature import AccessKey
from tenantry.hosting.snapshotplaces import S3Bucket, SnapshotPlace, SnapshotPlaceKind

_FIELD = "spec.virtualControlPlanes.snapshotDestinations"


class _Keys(msgspec.Struct, frozen=True, rename="camel"):
    access_key: str
    secret_key: str
    ca: str = ""


def names(defaults: TenancyDefaults | None) -> tuple[str, ...]:
    """Return the names of all destinations, in their order."""
    return tuple(each.name for each in _listed(defaults))


def find(defaults: TenancyDefaults | None, name: str) -> SnapshotDestination:
    """Return the destination of a name.

    Args:
        defaults: Those named default; None if there are none.
        name: Of the destination.

    Raises:
        TerminalError: There is none of this name.
    """
    found = next((each for each in _listed(defaults) if each.name == name), None)
    if found is None:
        known = ", ".join(f'"{each}"' for each in names(defaults)[:3]) or "none"
        raise TerminalError(
            reasons.INVALID_SPEC,
            f'spec.snapshots.destination: there is no destination "{name}" in {_FIELD} of TenancyDefaults'
            f" (known: {known}): choose another one, or an administrator adds it",
        )
    return found


def secret_of(destination: SnapshotDestination) -> str:
    """Return the name of the Secret that a destination needs; "" for none."""
    return destination.s3.secret_ref.name if destination.s3 else ""


def place_of(destination: SnapshotDestination, secret: Json | None) -> SnapshotPlace:
    """Return a destination as placements take it.

    Args:
        destination: The destination.
        secret: The Secret that `secret_of` names; None if there is none.

    Raises:
        TerminalError: The Secret is missing, or has not the keys of a store.
    """
    kind = _kind(destination)
    if destination.folder:
        return SnapshotPlace(name=destination.name, kind=kind, folder=destination.folder.path)
    if destination.claim:
        return SnapshotPlace(name=destination.name, kind=kind, claim=destination.claim.name)
    if not destination.s3:
        raise TerminalError(reasons.INVALID_SPEC, f'destination "{destination.name}" is neither folder, s3 nor claim')
    store = destination.s3
    told = f'destination "{destination.name}": its Secret in namespace {SYSTEM_NAMESPACE!r}'
    if secret is None:
        raise TerminalError(reasons.INVALID_SPEC, f"{told} does not exist: an administrator creates it")
    try:
        data = msgspec.convert(secret.get("data") or {}, dict[str, str])
        keys = msgspec.convert({name: base64.b64decode(value).decode() for name, value in data.items()}, _Keys)
    except (binascii.Error, UnicodeDecodeError, msgspec.ValidationError) as error:
        # The error has names of fields and not their values.
        told = f"{told} must have the keys accessKey and secretKey: {error}"
        raise TerminalError(reasons.INVALID_SPEC, told) from None
    if not (_is_visible(keys.access_key) and _is_visible(keys.secret_key)):
        message = f"{told} must have an accessKey and a secretKey of visible characters, without a line break"
        raise TerminalError(reasons.INVALID_SPEC, message)
    bucket = S3Bucket(
        endpoint=store.endpoint,
        bucket=store.bucket,
        prefix=store.prefix,
        region=store.region,
        key=AccessKey(identifier=keys.access_key, secret=keys.secret_key),
        ca=keys.ca,
    )
    return SnapshotPlace(name=destination.name, kind=kind, s3=bucket)


def problem(defaults: TenancyDefaults | None, name: str, kinds: AbstractSet[SnapshotPlaceKind]) -> Blocked | None:
    """Return why a destination cannot be used, None if it can; its Secret is not looked at.

    Args:
        defaults: As in `find`.
        name: Of the destination.
        kinds: Those that the placement supports.
    """
    try:
        found = find(defaults, name)
    except TerminalError as error:
        return Blocked(reason=error.reason, message=str(error))
    kind = _kind(found)
    if kind in kinds:
        return None
    message = str(snapshotplaces.refusal(SnapshotPlace(name=name, kind=kind), kinds))
    return Blocked(reason=reasons.INVALID_SPEC, message=f"spec.snapshots.destination: {message}")


def _listed(defaults: TenancyDefaults | None) -> tuple[SnapshotDestination, ...]:
    return defaults.spec.virtual_control_planes.snapshot_destinations if defaults is not None else ()


def _kind(destination: SnapshotDestination) -> SnapshotPlaceKind:
    if destination.folder:
        return SnapshotPlaceKind.FOLDER
    return SnapshotPlaceKind.CLAIM if destination.claim else SnapshotPlaceKind.S3


def _is_visible(text: str) -> bool:
    """Return whether a text may be in a header: not with the line break at the end of a file."""
    return text.isascii() and text.isprintable() and " " not in text and text != ""

"""The destinations of snapshots, which administrators choose: pure.

    FOLDER   on the machine of the operator: its own, or another one
    S3       a bucket of an S3-compatible store
    CLAIM    a volume of the cluster, which only control planes in Pods reach

A placement names the kinds that it supports: `Placement.snapshot_kinds`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from tenantry.api.errors import InputError
from tenantry.hosting.s3.signature import AccessKey


class SnapshotPlaceKind(enum.StrEnum):
    """What a destination is."""

    FOLDER = "folder"
    S3 = "s3"
    CLAIM = "claim"


class S3Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket of an S3-compatible store.

    Args:
        endpoint: The URL of the store, as in "https://s3.example.com".
        bucket: Its name.
        prefix: What all keys begin with, before a slash; "" for nothing.
        region: As in "us-east-1".
        key: The credentials.
        ca: The authority of the store's certificate, in PEM; "" for those of the machine.
    """

    endpoint: str
    bucket: str
    prefix: str
    region: str
    key: AccessKey
    ca: str = ""


class SnapshotPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A destination of snapshots.

    Args:
        name: Its name in messages.
        kind: What it is.
        folder: The absolute path of a folder of this machine, for `SnapshotPlaceKind.FOLDER`.
        s3: The bucket, for `SnapshotPlaceKind.S3`.
        claim: The name of the PersistentVolumeClaim, for `SnapshotPlaceKind.CLAIM`.
    """

    name: str
    kind: SnapshotPlaceKind
    folder: str = ""
    s3: S3Bucket | None = None
    claim: str = ""


def refusal(place: SnapshotPlace, known: Iterable[SnapshotPlaceKind]) -> InputError:
    """Return the error about a destination of a kind that the control planes of a placement cannot have.

    Args:
        place: The destination.
        known: The kinds that they can have.
    """
    offered = " or ".join(sorted(known)) or "none but that of the operator"
    return InputError(
        f'destination "{place.name}" is a {place.kind}, which control planes here cannot have: choose one that is'
        f" {offered}"
    )

"""Decides with which keys a control plane stores its Secrets and ConfigMaps: pure.

    first start                      ─► one key
    first start of an earlier version ─► one key; what is stored unencrypted is read, too
    credentials.encryption + 1       ─► a new first key; former ones are read, too
    the process started with it      ─► everything is stored under the first key: `until` of the others
    no snapshot from before `until`  ─► the former key is dropped: nothing can read a copy that is under it

The Secret has the keys, the status has their digests and times. The Secret is written first, then the status, then the
process starts. So after a crash, the status has no key that the Secret has not, and each step can be repeated.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import Json, Resource
from tenantry.api.planecredentials import MOST_KEYS, EncryptionKeyRecord, PlaneEncryption
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import authorityobjects, desired
from tenantry.engine.clock import rfc3339
from tenantry.engine.plan import Blocked
from tenantry.hosting import encryption
from tenantry.hosting.encryption import EncryptionKey, PlaneKeys
from tenantry.mirror.shapes import part

_SLACK = dt.timedelta(minutes=5)
"""How much the clock of the place that takes a snapshot may differ from that of the operator."""


class EncryptionStep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about the keys of a control plane.

    Args:
        keys: What the Secret and the process should have; None if that is lost.
        record: What the status should have.
        problem: What is wrong, and what to do; None if nothing is.
    """

    keys: PlaneKeys | None
    record: PlaneEncryption
    problem: Blocked | None = None


class KeyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the keys of a control plane.

    Args:
        secret: Those of the Secret; None if it has none, or not in the form in which they were written.
        placed: Those that the process was started with last; None if that is not known.
        in_force: Those of the process that runs and is ready; None if none is.
        is_first: Whether it has never started, so that nothing is stored.
        snapshots: When its snapshots were taken; None if that is not known.
    """

    secret: PlaneKeys | None = None
    placed: PlaneKeys | None = None
    in_force: PlaneKeys | None = None
    is_first: bool = False
    snapshots: tuple[dt.datetime, ...] | None = None


def secret_name(found: VirtualControlPlane) -> str:
    """Return the name of the Secret with the keys; its namespace is `authorityobjects.place`."""
    return f"{found.metadata.name}-encryption"


def secret(found: VirtualControlPlane, keys: PlaneKeys) -> tuple[Resource, Json]:
    """Return the Secret with the keys."""
    content = base64.b64encode(encryption.configuration(keys)).decode()
    return desired.SECRETS, {
        "metadata": {
            "name": secret_name(found),
            "namespace": authorityobjects.place(found.metadata.uid),
            "labels": desired.labels(found),
        },
        "type": "Opaque",
        "data": {encryption.FILE: content},
    }


def keys_of(found: Json | None) -> PlaneKeys | None:
    """Return the keys of a Secret; None if it has none."""
    try:
        return encryption.parse(base64.b64decode(part(found or {}, "data").get(encryption.FILE, ""), validate=True))
    except (TypeError, ValueError, binascii.Error):
        return None


def step(found: VirtualControlPlane, facts: KeyFacts, make: Callable[[], bytes], now: dt.datetime) -> EncryptionStep:
    """Return what is to be done about the keys of a control plane.

    Args:
        found: The control plane.
        facts: What is known of its keys.
        make: Returns `encryption.KEY_BYTES` random bytes.
        now: The time.
    """
    record = found.status.encryption
    known, record = _known(found, record, facts, make, now)
    if known is None:
        return EncryptionStep(keys=None, record=record, problem=_lost(found))
    record = _settled(record, facts.in_force, now)
    record = _without_unneeded(record, facts.snapshots)
    problem = None
    wanted = found.status.credentials.encryption
    if wanted > record.generation:
        if len(record.keys) >= MOST_KEYS:
            problem = Blocked(
                reason=reasons.ENCRYPTION_KEYS_KEPT,
                message=f"the encryption key is not replaced: {len(record.keys)} keys are kept for its snapshots:"
                " delete older snapshots, or have unreachable destinations removed from TenancyDefaults",
            )
        else:
            added = _added(record, facts.secret) or _made(make, wanted)
            known = {**known, added.name: added}
            record = replace(record, keys=(_recorded(added, rfc3339(now)), *record.keys), generation=wanted)
    keys = tuple(known[each.name] for each in record.keys)
    return EncryptionStep(keys=PlaneKeys(keys=keys, reads_plain=record.reads_plain), record=record, problem=problem)


def needs_snapshots(record: PlaneEncryption) -> bool:
    """Return whether the times of all snapshots decide if a key is dropped."""
    return any(each.until for each in record.keys) or (record.reads_plain and bool(record.plain_until))


def _known(
    found: VirtualControlPlane,
    record: PlaneEncryption,
    facts: KeyFacts,
    make: Callable[[], bytes],
    now: dt.datetime,
) -> tuple[dict[str, EncryptionKey] | None, PlaneEncryption]:
    """Return all keys that the record names, and the record; None for keys that are lost."""
    wanted = found.status.credentials.encryption
    if record.keys:
        # An edit that leaves these keys as they are changes nothing; what it has added is taken away.
        return _complete(record, facts.secret) or _complete(record, facts.placed), record
    source = facts.secret or facts.placed
    if source is None:
        key = _made(make, wanted)
        made = PlaneEncryption(keys=(_recorded(key, rfc3339(now)),), generation=wanted, reads_plain=not facts.is_first)
        return {key.name: key}, made
    # A crash came before the status was written.
    since = found.metadata.creation_timestamp or rfc3339(now)
    taken = PlaneEncryption(
        keys=tuple(_recorded(each, since) for each in source.keys),
        generation=wanted,
        reads_plain=source.reads_plain,
    )
    return {each.name: each for each in source.keys}, taken


def _complete(record: PlaneEncryption, keys: PlaneKeys | None) -> dict[str, EncryptionKey] | None:
    """Return the keys that a record names from some keys; None if one is missing or another one."""
    there = {each.name: each for each in (keys.keys if keys is not None else ())}
    is_whole = all(each.name in there and there[each.name].digest == each.digest for each in record.keys)
    return {each.name: there[each.name] for each in record.keys} if is_whole else None


def _added(record: PlaneEncryption, keys: PlaneKeys | None) -> EncryptionKey | None:
    """Return the new key that was written before a crash; None if there was none."""
    if keys is None or keys.keys[0].name in {each.name for each in record.keys}:
        return None
    return keys.keys[0]


def _made(make: Callable[[], bytes], generation: int) -> EncryptionKey:
    key = EncryptionKey(name="", secret=make())
    return replace(key, name=f"key-{generation}-{key.digest[:8]}")


def _recorded(key: EncryptionKey, created: str) -> EncryptionKeyRecord:
    return EncryptionKeyRecord(name=key.name, digest=key.digest, created=created)


def _settled(record: PlaneEncryption, in_force: PlaneKeys | None, now: dt.datetime) -> PlaneEncryption:
    """Return the record after a process has started with its first key: it has stored everything under it."""
    if in_force is None or in_force.keys[0].name != record.keys[0].name:
        return record
    moment = rfc3339(now)
    keys = (record.keys[0], *(replace(each, until=each.until or moment) for each in record.keys[1:]))
    plain = record.plain_until or (moment if record.reads_plain and in_force.reads_plain else "")
    return replace(record, keys=keys, plain_until=plain)


def _without_unneeded(record: PlaneEncryption, snapshots: tuple[dt.datetime, ...] | None) -> PlaneEncryption:
    if snapshots is None:
        return record
    kept = tuple(each for each in record.keys if not each.until or _is_needed(each.created, each.until, snapshots))
    plain = record.reads_plain and (not record.plain_until or _is_needed("", record.plain_until, snapshots))
    return replace(record, keys=kept, reads_plain=plain)


def _is_needed(since: str, until: str, snapshots: Iterable[dt.datetime]) -> bool:
    first = dt.datetime.fromisoformat(since) - _SLACK if since else None
    last = dt.datetime.fromisoformat(until) + _SLACK
    return any(each <= last and (first is None or each >= first) for each in snapshots)


def _lost(found: VirtualControlPlane) -> Blocked:
    place = authorityobjects.place(found.metadata.uid)
    message = (
        f'the key of its Secrets and ConfigMaps is lost: Secret "{place}/{secret_name(found)}" was deleted or edited,'
        " and the place of its process has no copy: bring the Secret back from a backup of the host; without the key,"
        " they cannot be read, and the control plane has to be deleted and made anew"
    )
    return Blocked(reason=reasons.ENCRYPTION_KEY_LOST, message=message)

"""With which keys control planes store their Secrets (E20)."""

from __future__ import annotations

import datetime as dt
import hashlib
from itertools import count

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import ObjectMeta
from tenantry.api.planecredentials import MOST_KEYS, PlaneCredentials
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.virtualcontrolplane import encryption as decision
from tenantry.controllers.virtualcontrolplane.encryption import EncryptionStep, KeyFacts
from tenantry.hosting import encryption
from tenantry.hosting.encryption import EncryptionKey, PlaneKeys

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(days=1)
WEB = VirtualControlPlane(
    metadata=ObjectMeta(name="web", namespace="acme", uid="u1", creation_timestamp="2026-01-01T00:00:00Z")
)
NUMBERS = count()


def make() -> bytes:
    """Return a key that is not used yet."""
    return hashlib.sha256(str(next(NUMBERS)).encode()).digest()


def step(found: VirtualControlPlane, facts: KeyFacts, now: dt.datetime = NOW) -> EncryptionStep:
    """Decide."""
    return decision.step(found, facts, make, now)


def after(found: VirtualControlPlane, todo: EncryptionStep, generation: int = 0) -> VirtualControlPlane:
    """Return a control plane whose status was written."""
    credentials = PlaneCredentials(encryption=generation)
    return replace(found, status=VirtualControlPlaneStatus(encryption=todo.record, credentials=credentials))


def started() -> tuple[VirtualControlPlane, PlaneKeys]:
    """Return a control plane that has its first key."""
    todo = step(WEB, KeyFacts(is_first=True))
    assert todo.keys is not None
    return after(WEB, todo), todo.keys


def test_a_new_one_reads_nothing_unencrypted_and_the_next_step_changes_nothing() -> None:
    """E20: nothing is stored yet."""
    found, keys = started()
    assert not keys.reads_plain
    again = step(found, KeyFacts(secret=keys, in_force=keys, snapshots=()), LATER)
    assert (again.keys, again.record) == (keys, found.status.encryption)


def test_one_of_an_earlier_version_is_read_until_its_process_has_stored_all_again() -> None:
    """E20: and while a snapshot from before is kept."""
    todo = step(WEB, KeyFacts())
    assert todo.keys is not None
    assert todo.keys.reads_plain
    found = after(WEB, todo)
    # It has not started.
    assert step(found, KeyFacts(secret=todo.keys, snapshots=())).keys == todo.keys
    running = KeyFacts(secret=todo.keys, in_force=todo.keys)
    kept = step(found, replace(running, snapshots=(NOW,)), LATER)
    assert kept.keys is not None
    assert kept.keys.reads_plain
    done = step(after(WEB, kept), replace(running, snapshots=()), LATER)
    assert done.keys is not None
    assert not done.keys.reads_plain


def test_a_former_key_is_kept_until_no_snapshot_needs_it() -> None:
    """E20: nor before the process has started with the new one."""
    found, keys = started()
    found = after(found, EncryptionStep(keys=keys, record=found.status.encryption), generation=1)
    todo = step(found, KeyFacts(secret=keys, in_force=keys, snapshots=()))
    assert todo.keys is not None
    assert todo.keys.keys[1:] == keys.keys
    found = after(found, todo, generation=1)
    # After a crash, too.
    assert step(found, KeyFacts(secret=todo.keys, placed=keys, snapshots=())).keys == todo.keys
    running = KeyFacts(secret=todo.keys, in_force=todo.keys)
    assert step(found, replace(running, snapshots=(NOW,)), LATER).keys == todo.keys
    done = step(found, replace(running, snapshots=()), LATER)
    assert done.keys == PlaneKeys(keys=todo.keys.keys[:1])


def test_a_key_too_many_is_not_made_and_reported() -> None:
    """E20: keys that snapshots need are not dropped for it, and the control plane goes on with those that it has."""
    found, keys = started()
    facts = KeyFacts(secret=keys, in_force=keys)
    for number in range(1, MOST_KEYS):
        found = after(found, EncryptionStep(keys=keys, record=found.status.encryption), generation=number)
        todo = step(found, facts)
        assert todo.keys is not None
        assert todo.problem is None
        found, facts = after(found, todo, number), KeyFacts(secret=todo.keys, in_force=todo.keys, snapshots=(NOW,))
    last = step(after(found, EncryptionStep(keys=keys, record=found.status.encryption), MOST_KEYS), facts)
    assert last.keys == facts.secret
    assert last.problem is not None
    assert last.problem.reason == reasons.ENCRYPTION_KEYS_KEPT
    assert "delete older snapshots" in last.problem.message


def test_a_crash_before_the_status_makes_no_second_key() -> None:
    """E20: the Secret is written first."""
    _, keys = started()
    assert step(WEB, KeyFacts(secret=keys)).keys == keys
    found, _ = started()
    first = step(found, KeyFacts(secret=keys))
    assert first.keys is None
    found = after(WEB, step(WEB, KeyFacts(secret=keys)), generation=1)
    todo = step(found, KeyFacts(secret=keys))
    assert step(found, KeyFacts(secret=todo.keys)).keys == todo.keys


def test_an_edited_secret_is_replaced_by_the_copy_and_otherwise_reported() -> None:
    """E20: no new key is made, with which nothing could be read."""
    found, keys = started()
    edited = PlaneKeys(keys=(EncryptionKey(name=keys.keys[0].name, secret=make()),))
    assert step(found, KeyFacts(secret=edited, placed=keys)).keys == keys
    assert step(found, KeyFacts(placed=keys)).keys == keys
    more = PlaneKeys(keys=(EncryptionKey(name="added", secret=make()), *keys.keys))
    assert step(found, KeyFacts(secret=more)).keys == keys
    lost = step(found, KeyFacts(secret=edited, placed=edited))
    assert lost.keys is None
    assert lost.problem is not None
    assert "backup of the host" in lost.problem.message
    assert lost.problem.reason == reasons.ENCRYPTION_KEY_LOST


def test_a_file_of_keys_is_read_back_and_nothing_else() -> None:
    """E20: and no message shows a key."""
    _, keys = started()
    content = encryption.configuration(keys)
    assert encryption.parse(content) == keys
    assert encryption.parse(content + b" ") is None
    assert encryption.parse(b"{}") is None
    assert repr(keys.keys[0].secret) not in repr(keys)

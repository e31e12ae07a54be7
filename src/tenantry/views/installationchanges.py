"""What `tenantry install` would change in a cluster: the second half of `tenantry install --check`.

shipped ─┬─ there is none ───────────────────────────────────────────► created
         ├─ installed as it is shipped ─► compared as the audit does ─┬► changed, with the fields
         └─ others may have fields ─────► server-side apply, dry run ─┘
objects that only older versions, or older API servers, need ─► there ─► deleted
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from tenantry import __version__
from tenantry.api import marks
from tenantry.api.model import Json, object_key
from tenantry.controllers.installation.comparison import fields, marks_of
from tenantry.engine.tasks import all_of
from tenantry.install import clusterinventory, fallback
from tenantry.install.apply import require_upgradable, retired
from tenantry.install.upgrade import SELECTED, ParameterMap
from tenantry.install.waves import resource_of
from tenantry.kube.client import Client
from tenantry.views.installation import Difference, difference, outcome, read

_VERSION = f"metadata.labels[{marks.INSTALLED_VERSION}]"


class ChangeKind(StrEnum):
    """What happens to an object."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class ObjectChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What happens to one object.

    Args:
        change: Whether it is created, changed or deleted.
        kind: The kind of the object.
        namespace: Its namespace; "" for a cluster-scoped one.
        name: Its name.
        fields: What changes in it, as JSON paths.
        problem: Why the API server refuses the change; "" if it does not.
    """

    change: ChangeKind
    kind: str
    namespace: str
    name: str
    fields: tuple[str, ...] = ()
    problem: str = ""

    @property
    def full_name(self) -> str:
        """Return the name of the object in messages, as in `ClusterRole tenantry-admin`."""
        return f"{self.kind} {object_key(self.namespace, self.name)}"


class InstallationChanges(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an installation changes.

    Args:
        installed: The version in the cluster; "" for none.
        version: The version of this program.
        changes: The changes of objects, without those of which only the label with the version changes.
        unchanged: The number of shipped objects that are not in `changes`.
    """

    installed: str
    version: str
    changes: tuple[ObjectChange, ...]
    unchanged: int

    @property
    def is_upgrade(self) -> bool:
        """Return whether something is installed."""
        return bool(self.installed) or any(each.change is not ChangeKind.CREATED for each in self.changes)

    @property
    def counts(self) -> str:
        """Return the numbers of objects in words."""
        numbers = Counter(each.change for each in self.changes)
        return ", ".join([*(f"{numbers[each]} {each}" for each in ChangeKind), f"{self.unchanged} unchanged"])


async def changes(client: Client, shipped: Sequence[Json]) -> InstallationChanges:
    """Return what applying manifests would change; nothing is written.

    Args:
        client: An administrator's.
        shipped: All manifests, as `tenantry install` applies them.

    Raises:
        ConfigError, InputError: This version cannot follow what is installed; see `require_upgradable`.
        Forbidden: The caller may not read what is installed.
    """
    installed = await require_upgradable(client)
    found = await all_of(_change(client, each) for each in shipped)
    others = await all_of(_provided(client, each) for each in clusterinventory.definitions())
    gone = await _deleted(client, shipped)
    listed = (*filter(None, found), *filter(None, others), *gone)
    return InstallationChanges(
        installed=installed,
        version=__version__,
        changes=listed,
        unchanged=found.count(None),
    )


async def _change(client: Client, shipped: Json) -> ObjectChange | None:
    is_repaired = marks.INSTALLED_VERSION in shipped["metadata"].get("labels", {})
    found = await (difference(client, shipped) if is_repaired else _applied(client, shipped))
    changed = tuple(each for each in found.fields if each != _VERSION)
    if not (found.is_missing or changed or found.problem):
        return None
    kind = ChangeKind.CREATED if found.is_missing else ChangeKind.CHANGED
    return _change_of(kind, shipped, changed=changed, problem=found.problem)


async def _applied(client: Client, shipped: Json) -> Difference:
    """Return what a server-side apply would change: fields of other clients stay."""
    live = await read(client, shipped)
    if live is None:
        return Difference(is_missing=True)
    meta = shipped["metadata"]
    applied = client.apply(resource_of(shipped), meta.get("namespace", ""), meta["name"], shipped, dry_run=True)
    return await outcome(applied, live, _differing)


def _differing(after: Json, live: Json) -> Iterator[str]:
    """Yield the fields in which two answers of the API server differ, apart from statuses and its own metadata."""
    for part in sorted({*after, *live} - {"apiVersion", "kind", "metadata", "status"}):
        yield from fields(part, after.get(part), live.get(part))
    for key in ("labels", "annotations"):
        yield from fields(f"metadata.{key}", marks_of(after["metadata"], key), marks_of(live["metadata"], key))


async def _provided(client: Client, definition: Json) -> ObjectChange | None:
    """Return the creation of a kind of another project; None if the cluster has the kind."""
    return _change_of(ChangeKind.CREATED, definition) if await read(client, definition) is None else None


async def _deleted(client: Client, shipped: Sequence[Json]) -> list[ObjectChange]:
    """Return what the installation deletes once its policies are in force."""
    old = [*retired()]
    if any(fallback.is_mutating(each) for each in shipped):
        old += fallback.leftovers()
    live = await all_of(read(client, each) for each in old)
    there = [each for each, found in zip(old, live, strict=True) if found is not None]
    return [_change_of(ChangeKind.DELETED, each) for each in there] + [
        ObjectChange(
            change=ChangeKind.DELETED,
            kind=each.resource.kind,
            namespace=each.metadata.namespace,
            name=each.metadata.name,
        )
        for each in await client.list(ParameterMap, selectors=SELECTED)
    ]


def _change_of(kind: ChangeKind, value: Json, *, changed: tuple[str, ...] = (), problem: str = "") -> ObjectChange:
    meta = value["metadata"]
    return ObjectChange(
        change=kind,
        kind=value["kind"],
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        fields=changed,
        problem=problem,
    )

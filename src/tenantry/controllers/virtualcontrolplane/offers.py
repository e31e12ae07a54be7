"""The kinds of the host that administrators offer in TenancyDefaults, as the mirror takes them."""

from __future__ import annotations

from tenantry.api.model import Resource
from tenantry.api.tenancydefaults import NAME, OfferedKind, TenancyDefaults
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster
from tenantry.mirror.kinds.offered import Offered, OfferedPlace, PlaceUse
from tenantry.mirror.kinds.table import KINDS


def of(home: Cluster) -> tuple[Offered, ...]:
    """Return the kinds that are offered now, without those that are mirrored anyway.

    Args:
        home: Has the cache of TenancyDefaults.
    """
    defaults: TenancyDefaults | None = home.cache(TenancyDefaults.resource).get(NAME)
    built_in = {each.resource.full_name for each in KINDS}
    found = map(_offered, defaults.spec.offered_kinds if defaults is not None else ())
    return tuple(each for each in found if each.resource.full_name not in built_in)


def has_changed(change: Change[TenancyDefaults]) -> bool:
    """Return whether what control planes follow has changed.

    That is also the destinations of snapshots: conditions report those that do not exist.

    Args:
        change: Of TenancyDefaults.
    """
    before, after = (
        (each.spec.offered_kinds, each.spec.virtual_control_planes) if each else ()
        for each in (change.before, change.after)
    )
    return before != after


def _offered(kind: OfferedKind) -> Offered:
    places = tuple(OfferedPlace(each.path, PlaceUse(each.use)) for each in kind.fields)
    return Offered(Resource(kind.group, kind.version, kind.plural, kind.kind), places)

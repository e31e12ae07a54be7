"""The lower object of an upper one, of any kind of `kinds/`: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenantry.api.model import Json
from tenantry.engine.plan import merge_patch
from tenantry.mirror import marking
from tenantry.mirror.endpoints import WrittenSlice
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part
from tenantry.mirror.things import Thing


def none(_selector: Json) -> Sequence[str]:
    """Return the namespaces that a selector of a kind without selectors selects."""
    return ()


def down(
    mirrored: MirroredKind,
    profile: Profile,
    upper: Json,
    lower: Thing | None = None,
    *,
    namespaces: Callable[[Json], Sequence[str]] = none,
    slices: Callable[[], Sequence[WrittenSlice]] = tuple,
) -> Json:
    """Return the lower object of an upper one.

    Args:
        mirrored: The kind.
        profile: The configuration.
        upper: The upper object.
        lower: The lower object as it is; None if there is none.
        namespaces: See `Origin`.
        slices: See `Origin`.

    Raises:
        NotTranslated: The object is not mirrored.
    """
    resource, own = mirrored.resource, part(upper, "metadata")
    meta = marking.metadata(resource.kind, upper, profile)
    spec = mirrored.spec(part(upper, "spec"), "spec")
    origin = Origin(
        profile=profile,
        namespace=own["namespace"],
        upper=upper,
        lower=lower.spec if lower is not None else {},
        status=lower.status if lower is not None else {},
        namespaces=namespaces,
        slices=slices,
    )
    mirrored.translate(spec, origin)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


def patch(mirrored: MirroredKind, profile: Profile, lower: Thing, wanted: Json) -> Json:
    """Return the merge patch that brings a lower object to what it should be; {} if it is."""
    meta = marking.changed(lower.meta, wanted["metadata"], profile)
    live = _filled(mirrored.spec(lower.spec, "spec"))
    spec = merge_patch(live, _filled(wanted["spec"]))
    return ({"metadata": meta} if meta else {}) | ({"spec": spec} if spec else {})


def _filled(spec: Json) -> Json:
    """Return a spec without empty lists and objects, which the API server does not store."""
    return {key: value for key, value in spec.items() if value not in ([], {})}

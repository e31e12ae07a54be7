"""What a mirror has to know of one kind of object: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tenantry.api.model import Json, Resource
from tenantry.mirror.endpoints import WrittenSlice
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import Shape


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a spec comes from, for its translation.

    Args:
        profile: The configuration.
        namespace: The upper namespace.
        upper: The upper object, whole.
        lower: The spec of the lower object; {} if there is none. What the lower API server has chosen stays.
        status: The status of the lower object; {} if there is none.
        namespaces: Returns the names of the upper namespaces that a label selector selects, one of those that
            `MirroredKind.selectors` returns; `selections.check` has bounded them.
        slices: Returns the EndpointSlices that users have written for an upper Service.
    """

    profile: Profile
    namespace: str
    upper: Json
    lower: Json
    status: Json
    namespaces: Callable[[Json], Sequence[str]]
    slices: Callable[[], Sequence[WrittenSlice]] = tuple


class Readdressing(msgspec.Struct, frozen=True, kw_only=True):
    """How a stored upper object gets what the lower API server chooses, when that cannot be what it has.

    Args:
        mark: The name of the mark of an upper object between the steps.
        freed: Returns an upper object without what the lower API server chooses.
        differs: Returns whether an upper and a lower spec have other addresses.
        is_replaceable: Returns whether a lower object of such a spec has to be created again instead.
        emptied: Returns the merge patch of the first step; its arguments are the upper object and the key of the mark.
        is_emptied: Returns whether an upper object is between the steps.
        filled: Returns the merge patch of the second step; {} for an upper object that is not between the steps.
    """

    mark: str
    freed: Callable[[Json], Json]
    differs: Callable[[Json, Json], bool]
    is_replaceable: Callable[[Json, Json], bool]
    emptied: Callable[[Json, str], Json]
    is_emptied: Callable[[Json, str], bool]
    filled: Callable[[Json, str], Json]


def _none(_namespace: str, _name: str) -> bool:
    return False


class MirroredKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind.

    Args:
        resource: The kind, the same on both sides.
        spec: The allow-list of its spec, on both sides.
        translate: Changes a spec that `spec` has built; see `Origin`.
        status: Builds the upper status from a lower object; None if the upper side finds it out itself.
        is_left: Whether the mirror leaves alone an upper object of a namespace and a name, and what has the name of its
            lower one, also while there is no upper object.
        selectors: Returns the label selectors of upper namespaces in a spec of any content, on which its translation
            depends; None for a kind without them.
        chosen: Returns an upper object with what the lower API server has chosen for the lower one: the lower object is
            made before the upper one is stored. None for kinds whose lower object is made after it.
        readdressing: How a stored upper object gets what the lower API server chooses; None for kinds that can take it
            by an update.
        reads_slices: Whether the translation of a spec depends on EndpointSlices.
        is_optional: Whether a side need not have the kind, which is a custom one. Its definition goes up.
    """

    resource: Resource
    spec: Shape
    translate: Callable[[Json, Origin], None]
    status: Callable[[Json], Json] | None = None
    is_left: Callable[[str, str], bool] = _none
    selectors: Callable[[Json], Iterable[Json]] | None = None
    chosen: Callable[[Json, Json], Json] | None = None
    readdressing: Readdressing | None = None
    reads_slices: bool = False
    is_optional: bool = False

    def apart(self) -> MirroredKind:
        """Return the kind for a lower side that is another cluster: what its API server chooses does not go up."""
        return replace(self, status=None, chosen=None, readdressing=None, reads_slices=False)

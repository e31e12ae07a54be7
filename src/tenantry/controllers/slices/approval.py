"""The nodes of a Manual claim that an administrator has approved. Pure."""

from __future__ import annotations

import msgspec

from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.slice import ApprovedNodes, ClaimMode, Slice, SliceClaim, approval_of


def is_dynamic(found: Slice) -> bool:
    """Return whether the operator created a Slice, for a Dynamic claim."""
    return found.metadata.labels.get(MANAGED_BY) == MANAGER


def is_manual(claim: SliceClaim, found: Slice | None, *, restricted: bool) -> bool:
    """Return whether an administrator gives a claim its nodes.

    Args:
        claim: The claim.
        found: Its Slice; None if there is none.
        restricted: The standard of the claim's namespace is Restricted.
    """
    # No administrator has approved a Slice that the operator created: the claim is charged as long as that lives,
    # whatever its mode or the standard of its namespace become.
    if found is not None and is_dynamic(found):
        return False
    return restricted if claim.spec.mode is msgspec.UNSET else claim.spec.mode is ClaimMode.MANUAL


def as_approved(claim: SliceClaim, found: Slice | None) -> tuple[SliceClaim, tuple[str, ...]]:
    """Return a Manual claim that requests what its Slice approves, and the paths of the fields that request more.

    Args:
        claim: The claim.
        found: Its Slice; None if there is none.
    """
    if found is None or found.spec.approved is msgspec.UNSET:
        return claim, ()
    asked, approved = approval_of(claim.spec), found.spec.approved
    names = [each for each in ApprovedNodes.__struct_fields__ if getattr(asked, each) != getattr(approved, each)]
    spec = msgspec.structs.replace(claim.spec, **{each: getattr(approved, each) for each in names})
    on_wire = {each.name: each.encode_name for each in msgspec.structs.fields(ApprovedNodes)}
    unapproved = tuple(sorted(f"spec.{on_wire[each]}" for each in names))
    return msgspec.structs.replace(claim, spec=spec), unapproved

"""What an import records until it is committed, so that it can be undone."""

from __future__ import annotations

import msgspec

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Model, OwnerReference
from tenantry.api.tenant import Tenant


class ImportRecord(Model, frozen=True, kw_only=True):
    """The annotation of an adopted namespace.

    Args:
        source: The name of the other tool.
        tenant: The Tenant that got the namespace.
        owner_references: The owner references that the import took off. With them, the garbage collector would delete
            the namespace when the other tool's objects are deleted.
    """

    source: str
    tenant: str
    owner_references: tuple[OwnerReference, ...] = ()


def record_of(namespace: Namespace) -> ImportRecord | None:
    """Return the record of a namespace; None if no import adopted it, or its import was committed.

    Raises:
        InputError: The annotation is not what an import writes.
    """
    text = namespace.metadata.annotations.get(marks.IMPORTED)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=ImportRecord)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(
            f"the annotation {marks.IMPORTED} of the namespace {namespace.metadata.name!r} cannot be read: {error};"
            " remove it, and the import of this namespace counts as committed"
        ) from error


def written(record: ImportRecord) -> str:
    """Return a record as the annotation has it."""
    return msgspec.json.encode(record).decode()


def source_of(tenant: Tenant) -> str:
    """Return the tool whose import of a tenant is not committed yet; "" for none."""
    return tenant.metadata.annotations.get(marks.IMPORTED, "")

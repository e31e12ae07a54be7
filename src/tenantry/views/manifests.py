"""Tenants and Subnamespaces as files have them."""

from __future__ import annotations

import msgspec

from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant


class Manifests(msgspec.Struct, frozen=True):
    """The objects of files."""

    tenants: list[Tenant]
    subnamespaces: list[Subnamespace]

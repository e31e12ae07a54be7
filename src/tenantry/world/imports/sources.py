"""The tools that namespaces can be imported from: a new one is a module with a `Source`, and a line here. Pure."""

from __future__ import annotations

from tenantry.world.imports import capsule, edgenet, kiosk, rancher
from tenantry.world.imports.objects import ImportSource

SOURCES: tuple[ImportSource, ...] = (capsule.SOURCE, kiosk.SOURCE, rancher.SOURCE, edgenet.SOURCE)

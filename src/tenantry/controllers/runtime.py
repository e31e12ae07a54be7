"""What the controllers know of the cluster's sandbox."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.runtime import RuntimeClass
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.engine.cache import Change
from tenantry.world.sandbox import Sandbox, choose


def asked_of(defaults: TenancyDefaults | None) -> str:
    """Return the RuntimeClass that an administrator has named; "" for none."""
    return defaults.spec.sandbox.runtime_class_name if defaults is not None else ""


def sandbox_of(defaults: TenancyDefaults | None, classes: Iterable[RuntimeClass]) -> Sandbox:
    """Return what the cluster has of sandboxes.

    Args:
        defaults: What holds for all tenants; None where nothing does.
        classes: All of the cluster's.
    """
    return choose(asked_of(defaults), classes)


def is_news(change: Change[RuntimeClass]) -> bool:
    """Tell whether another class may be the sandbox now."""
    before, after = change.before, change.after
    return before is None or after is None or _decides(before) != _decides(after)


def _decides(found: RuntimeClass) -> object:
    return found.handler, found.metadata.labels, found.metadata.deletion_timestamp

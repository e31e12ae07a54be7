"""The cluster's sandbox, and the condition that reports it: pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from tenantry.api import reasons
from tenantry.api.runtime import RuntimeChoice, RuntimeClass
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.engine.cache import Change
from tenantry.engine.conditions import Wanted
from tenantry.world.rules import MISSING
from tenantry.world.sandbox import Sandbox, choose


def asked_of(defaults: TenancyDefaults | None) -> str:
    """Return the RuntimeClass that TenancyDefaults name; "" for none."""
    return defaults.spec.sandbox.runtime_class_name if defaults is not None else ""


def sandbox_of(defaults: TenancyDefaults | None, classes: Iterable[RuntimeClass]) -> Sandbox:
    """Return the cluster's sandbox.

    Args:
        defaults: The TenancyDefaults; None if there are none.
        classes: The RuntimeClasses of the cluster.
    """
    return choose(asked_of(defaults), classes)


def is_news(change: Change[RuntimeClass]) -> bool:
    """Return whether another class may be the sandbox now."""
    before, after = change.before, change.after
    return before is None or after is None or _decides(before) != _decides(after)


def _decides(found: RuntimeClass) -> object:
    return found.handler, found.metadata.labels, found.metadata.deletion_timestamp


def sandboxed(runtime: RuntimeChoice | UnsetType, sandbox: Sandbox, refuser: str) -> Wanted | None:
    """Return the condition that reports whether pods run in a sandbox; None if `runtime` is Shared.

    Args:
        runtime: The runtime that the object sets.
        sandbox: The cluster's sandbox.
        refuser: The level whose rule refuses pods if there is no sandbox; "" if they may run.
    """
    if runtime is RuntimeChoice.SHARED:
        return None
    if sandbox.name:
        message = f"new pods run in the RuntimeClass {sandbox.name!r}; older pods are unchanged until they end"
        return Wanted(reasons.SANDBOXED, True, reasons.RUNTIME_CLASS_IN_FORCE, message)
    lacks = "the cluster has no RuntimeClass of a sandbox"
    if sandbox.asked:
        lacks = f"the RuntimeClass {sandbox.asked!r}, spec.sandbox of TenancyDefaults 'default', does not exist"
    if runtime is UNSET:
        then = "pods share the kernel of their node; create one, or set spec.isolation.runtime"
        return Wanted(reasons.SANDBOXED, False, reasons.KERNEL_SHARED, f"{lacks}: {then}")
    if refuser:
        then = f"pods are refused (rule {MISSING} of {refuser}); create one, or set spec.isolation.runtime to Shared"
    else:
        then = f"pods share the kernel of their node, as the rule {MISSING} allows"
    return Wanted(reasons.SANDBOXED, False, reasons.NO_RUNTIME_CLASS, f"{lacks}: {then}")

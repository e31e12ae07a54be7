"""Which RuntimeClass is the cluster's sandbox, and which namespaces run in it: pure.

Source: Kubernetes, "Runtime Class"; the names of handlers are from the installation guides of gVisor and of Kata
Containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api import marks
from tenantry.api.runtime import RuntimeChoice, RuntimeClass

HANDLERS = ("gvisor", "kata", "runsc")
"""A handler with one of these names, or with one of them and a hyphen as its prefix, is a sandbox."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox of the cluster.

    Args:
        name: The RuntimeClass of sandboxed pods; "" if there is none.
        asked: The RuntimeClass that TenancyDefaults name; "" to detect one.
    """

    name: str = ""
    asked: str = ""


NO_SANDBOX = Sandbox()


def choose(asked: str, classes: Iterable[RuntimeClass]) -> Sandbox:
    """Return the cluster's sandbox.

    The named one and no other; else one with the label; else one whose handler is known. If several match, the first by
    name is used, so that two replicas choose the same.

    Args:
        asked: `spec.sandbox.runtimeClassName` of TenancyDefaults; "" for none.
        classes: All RuntimeClasses of the cluster.
    """
    there = {each.metadata.name: each for each in classes if not each.metadata.deletion_timestamp}
    if asked:
        return Sandbox(name=asked if asked in there else "", asked=asked)
    labelled = [name for name, each in there.items() if each.metadata.labels.get(marks.SANDBOX) == "true"]
    known = [name for name, each in there.items() if is_sandbox(each.handler, each.metadata.labels)]
    return Sandbox(name=min(labelled or known, default=""))


def is_sandbox(handler: str, labels: Mapping[str, str]) -> bool:
    """Return whether a RuntimeClass is a sandbox: by its label, else by the name of its handler."""
    said = labels.get(marks.SANDBOX)
    return said == "true" or (said != "false" and is_known(handler))


def is_known(handler: str) -> bool:
    """Return whether a handler is a sandbox by its name."""
    return handler in HANDLERS or handler.startswith(tuple(f"{each}-" for each in HANDLERS))


def mark(tenant: RuntimeChoice | None, below: Iterable[RuntimeChoice | None], sandbox: Sandbox) -> str:
    """Return the value of `marks.RUNTIME` on a namespace; "" if its pods share the kernel of their node.

    Args:
        tenant: `spec.isolation.runtime` of the Tenant; None if it is not set.
        below: The same of the Subnamespaces down to that of the namespace, which can only tighten it.
        sandbox: Of the cluster.
    """
    if tenant is RuntimeChoice.SANDBOXED or RuntimeChoice.SANDBOXED in below:
        return marks.RUNTIME_SANDBOXED
    return marks.RUNTIME_PREFERRED if tenant is None and sandbox.name else ""

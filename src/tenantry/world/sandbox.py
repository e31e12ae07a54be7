"""Which RuntimeClass is the cluster's sandbox, and who runs in it: pure.

Source: Kubernetes, "Runtime Class"; the names of handlers are those of the installation guides of gVisor and of Kata
Containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api import marks
from tenantry.api.runtime import Runtime, RuntimeClass

HANDLERS = ("gvisor", "kata", "runsc")
"""A handler of this name, or one that begins so with a hyphen behind, is a sandbox."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster has of sandboxes.

    Args:
        name: The RuntimeClass in which sandboxed pods run; "" where there is none.
        asked: The one that an administrator has named; "" where that is left to what is found.
    """

    name: str = ""
    asked: str = ""


NO_SANDBOX = Sandbox()


def choose(asked: str, classes: Iterable[RuntimeClass]) -> Sandbox:
    """Return the cluster's sandbox.

    The one that is named, and no other; else the one with the label; else one whose handler is known. Of several the
    first by name counts, so that two operators choose the same.

    Args:
        asked: `spec.sandbox.runtimeClassName` of TenancyDefaults; "" for none.
        classes: All of the cluster's.
    """
    there = {each.metadata.name: each for each in classes if not each.metadata.deletion_timestamp}
    if asked:
        return Sandbox(name=asked if asked in there else "", asked=asked)
    labelled = [name for name, each in there.items() if each.metadata.labels.get(marks.SANDBOX) == "true"]
    known = [name for name, each in there.items() if is_sandbox(each.handler, each.metadata.labels)]
    return Sandbox(name=min(labelled or known, default=""))


def is_sandbox(handler: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a RuntimeClass is a sandbox: by its label, else by the name of its handler."""
    said = labels.get(marks.SANDBOX)
    return said == "true" or (said != "false" and is_known(handler))


def is_known(handler: str) -> bool:
    """Tell whether a handler is a sandbox by its name."""
    return handler in HANDLERS or handler.startswith(tuple(f"{each}-" for each in HANDLERS))


def mark(tenant: Runtime | None, below: Iterable[Runtime | None], sandbox: Sandbox) -> str:
    """Return the value of `marks.RUNTIME` on a namespace; "" for one whose pods share their node's kernel.

    Args:
        tenant: What the Tenant says; None for nothing.
        below: What the Subnamespaces down to the namespace's own say: they only tighten.
        sandbox: What the cluster has.
    """
    if tenant is Runtime.SANDBOXED or Runtime.SANDBOXED in below:
        return marks.RUNTIME_SANDBOXED
    return marks.RUNTIME_PREFERRED if tenant is None and sandbox.name else ""

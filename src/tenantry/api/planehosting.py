"""Where the process of a control plane runs, and whether its Pods use the sandbox RuntimeClass."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tenantry.api.runtime import RuntimeChoice


class PlaneHosting(StrEnum):
    """Where the process of a control plane runs."""

    AUTO = "Auto"
    PODS = "Pods"
    MACHINE = "Machine"


HostedIn = Annotated[
    PlaneHosting,
    Meta(
        description="Pods: it runs in Pods of the host. Machine: it is a process of a local cluster. It is not started"
        " elsewhere. Auto, the default: as the host runs control planes."
    ),
]

PlaneRuntime = Annotated[
    RuntimeChoice,
    Meta(
        description="Shared, the default: its Pods share the kernel of their node. Sandboxed: its Pods have the"
        " RuntimeClass of the host's sandbox. It is not started if there is none, as a process of a local cluster, or"
        " with the datastore SQLite."
    ),
]

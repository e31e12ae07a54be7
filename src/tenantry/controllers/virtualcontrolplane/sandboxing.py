"""The sandbox of control planes: which RuntimeClass of the host their Pods have.

spec.runtime: Sandboxed ─► RuntimeClass that TenancyDefaults name, or that is known as a sandbox ─► HostedPlane
none, or processes of this machine ─► the place refuses to start it, and says what to do
"""

from __future__ import annotations

from msgspec.structs import replace

from tenantry.api.runtime import RuntimeChoice, RuntimeClass
from tenantry.api.tenancydefaults import NAME, TenancyDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.runtime import sandbox_of
from tenantry.engine.cluster import Cluster
from tenantry.hosting.plane import HostedPlane


def placed(home: Cluster, found: VirtualControlPlane, plane: HostedPlane, before: str = "") -> HostedPlane:
    """Return a control plane with the place and the sandbox that its spec requires.

    Args:
        home: Has the caches of RuntimeClasses and TenancyDefaults.
        found: The VirtualControlPlane.
        plane: What its process is started with.
        before: The RuntimeClass that its process has, which stays while the host has none; "" for none.
    """
    plane = replace(plane, hosting=found.spec.hosting)
    if found.spec.runtime is not RuntimeChoice.SANDBOXED:
        return plane
    defaults: TenancyDefaults | None = home.cache(TenancyDefaults.resource).get(NAME)
    sandbox = sandbox_of(defaults, home.cache_of(RuntimeClass.resource) or ())
    return replace(plane, is_sandboxed=True, runtime_class=sandbox.name or before)

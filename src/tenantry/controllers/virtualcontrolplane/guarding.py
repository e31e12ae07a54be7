"""Whether the guards of a control plane are in force: pure.

Source: hosting/guards.py; design "Dedicated clusters", sections 3 and 17.
"""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.clusterguards import Guards
from tenantry.api.virtualcontrolplane import PlaneNodes, VirtualControlPlane
from tenantry.engine.conditions import Wanted
from tenantry.hosting import guards, versions


def condition(found: VirtualControlPlane, running: Guards | None) -> list[Wanted]:
    """Return the condition about the guards; none for a control plane that has none, or no version yet.

    Args:
        found: The control plane.
        running: The guards with which its process was started; None if none is known to run.
    """
    given, version, last = found.spec.guards, found.status.version, found.status.last_upgrade
    if not given or not version:
        return []
    named = ", ".join(sorted(given))
    why = guards.obstacle(version, versions.minor(last.before) if last.soaks else "")
    if found.spec.nodes is not PlaneNodes.OWN:
        why = "spec.nodes is not Own"
    if why:
        message = f"{named} are not in force: {why}; other protections do not depend on them"
        return [Wanted(reasons.GUARDS_ENFORCED, False, reasons.GUARDS_UNSUPPORTED, message)]
    if running is None or set(running) != set(given):
        state = "its process is not known to run" if running is None else "its process does not have them yet"
        message = f"{named}: {state}; they are in force before the control plane is Ready with them"
        unknown = running is None
        return [Wanted(reasons.GUARDS_ENFORCED, False, reasons.PROGRESSING, message, unknown=unknown)]
    return [Wanted(reasons.GUARDS_ENFORCED, True, reasons.ESTABLISHED, f"in force while it runs: {named}")]

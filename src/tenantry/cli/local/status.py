"""The components of a local cluster, for `tenantry status`, and how these last ended unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenantry.cli import output

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.local.state import ComponentState
    from tenantry.views.clusters import LocalClusterView

HEADERS = ("COMPONENT", "STATUS", "PID", "PORT", "RESTARTS", "LAST UNPLANNED END")


def lines(view: LocalClusterView, *, wide: bool) -> list[Part]:
    """Return a cluster's line, its problems, the table of its components, and the last lines of those that ended."""
    rows = [
        (
            each.name,
            each.phase,
            str(each.pid or "-"),
            str(each.port),
            str(each.restarts),
            f"{each.last_exit} at {each.last_exit.at}" if each.last_exit else "",
        )
        for each in view.components
    ]
    data = f"{view.data} ({'throwaway' if view.throwaway else 'kept'})"
    places = [output.indented(output.pairs([("kubeconfig", view.kubeconfig), ("data", data)]))]
    return [
        f'cluster "{view.name}": {view.phase}, {view.server}',
        *(f"  {problem}" for problem in view.problems),
        *(places if wide else []),
        output.indented(output.table(HEADERS, rows)),
        *(line for each in view.components for line in _crash(each)),
    ]


def _crash(component: ComponentState) -> list[str]:
    found = component.last_exit.lines if component.last_exit else ()
    return [f"  last lines of {component.name} before it ended:", *(f"    {line}" for line in found)] if found else []

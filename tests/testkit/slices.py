"""An auditor of slices: it inspects nodes at every resourceVersion, and finds nodes with two slices."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from tenantry.kube.client import Client
from testkit.nodeauditor import NodeAuditor

Json = dict[str, Any]
KEY = "tenantry.dev/slice"


class SliceAuditor(NodeAuditor):
    """The changes of nodes, in order."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._now: dict[str, str] = {}
        self.seen = 0

    @property
    def taken(self) -> dict[str, str]:
        """Return the current slice of each node that has one."""
        return {name: owner for name, owner in self._now.items() if owner}

    @override
    def note(self, node: Json) -> None:
        """Inspect one node at one version: all its marks name one slice, and between two slices it has none."""
        meta = node["metadata"]
        labels: dict[str, str] = meta.get("labels", {})
        named = {labels[key] for key in (KEY, f"{KEY}-reserved") if key in labels}
        named |= {taint.get("value", "") for taint in node["spec"].get("taints", []) if taint["key"] == KEY}
        notes: dict[str, str] = meta.get("annotations", {})
        where = f"{meta['name']} at {meta['resourceVersion']}"
        if len(named) > 1:
            self.problems.append(f"{where} has {sorted(named)}")
        owner = next(iter(named), "")
        if owner and not labels.get(f"{KEY}-reserved"):
            self.problems.append(f"{where} has a part of the marks of {owner}")
        if bool(owner) != bool(notes.get(f"{KEY}-claim")):
            self.problems.append(f"{where} does not say whose claim it is")
        before = self._now.get(meta["name"], "")
        if before and owner and before != owner:
            self.problems.append(f"{where} went from {before} to {owner}")
        self._now[meta["name"]] = owner
        self.seen += 1

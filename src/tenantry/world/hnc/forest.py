"""The forest of namespaces that HNC's objects describe, and which of its trees can be imported: pure."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from tenantry.api import marks
from tenantry.world.hnc.objects import SUBNAMESPACE_OF, TREE_SUFFIX, HncObjects
from tenantry.world.imports.findings import FindingWeight, ImportFindings


class HncForest(msgspec.Struct, frozen=True):
    """The trees that can be imported.

    Args:
        parent: By child, both by name.
        children: By parent, sorted.
        roots: Sorted.
        full: Children that HNC would not delete with their parent, because no anchor made them.
    """

    parent: dict[str, str]
    children: dict[str, list[str]]
    roots: list[str]
    full: frozenset[str]

    def below(self, root: str) -> list[str]:
        """Return everything below a namespace, parents before their children."""
        found: list[str] = []
        queue = [root]
        for name in queue:
            inner = self.children.get(name, [])
            found += inner
            queue += inner
        return found

    def line(self, name: str) -> list[str]:
        """Return a namespace's ancestors from the root down, and itself."""
        found = [name]
        while found[-1] in self.parent:
            found.append(self.parent[found[-1]])
        return found[::-1]


def grow(world: HncObjects, findings: ImportFindings) -> HncForest:
    """Return the forest; the findings report the namespaces that are left out."""
    parent, full = _parents(world, findings)
    known = {*world.namespaces, *parent, *parent.values(), *(quota.metadata.namespace for quota in world.quotas)}
    if "kube-system" in world.namespaces:  # the list of namespaces is complete
        known = set(world.namespaces)
    for name in _left_out(parent, known, findings):
        parent.pop(name, None)
        known.discard(name)
    children = _children(parent)
    limited = {quota.metadata.namespace for quota in world.quotas}
    roots = sorted(name for name in known - set(parent) if name in children or name in limited)
    forest = HncForest(parent, children, roots, full & set(parent))
    _tell_conditions(world, forest, findings)
    return forest


def _children(parent: dict[str, str]) -> dict[str, list[str]]:
    children: defaultdict[str, list[str]] = defaultdict(list)
    for child in sorted(parent):
        children[parent[child]].append(child)
    return dict(children)


def _parents(world: HncObjects, findings: ImportFindings) -> tuple[dict[str, str], frozenset[str]]:
    """Return each child's parent, and which children are full namespaces, as HNC calls those without an anchor."""
    by_label: dict[str, str] = {}
    by_annotation: dict[str, str] = {}
    for name, namespace in world.namespaces.items():
        for key, depth in namespace.metadata.labels.items():
            if key.endswith(TREE_SUFFIX) and depth == "1":
                by_label[name] = key.removesuffix(TREE_SUFFIX)
        if namespace.metadata.annotations.get(SUBNAMESPACE_OF):
            by_annotation[name] = namespace.metadata.annotations[SUBNAMESPACE_OF]
    by_anchor = {anchor.metadata.name: anchor.metadata.namespace for anchor in world.anchors}
    by_spec = {name: found.spec.parent for name, found in world.hierarchies.items() if found.spec.parent}
    # The last entry wins, as in HNC: a subnamespace's annotation, then a spec, then an anchor, then a label.
    parent = {**by_label, **by_anchor, **by_spec, **by_annotation}
    for anchor in world.anchors:
        child = anchor.metadata.name
        if parent[child] != anchor.metadata.namespace:
            findings.add(
                FindingWeight.LOST,
                f"SubnamespaceAnchor {anchor.metadata.namespace}/{child}",
                f"not followed: the namespace {child!r} is below {parent[child]!r}; delete the anchor",
            )
    return parent, frozenset(parent) - set(by_annotation) - set(by_anchor)


def _left_out(parent: dict[str, str], known: set[str], findings: ImportFindings) -> list[str]:
    """Return what cannot be imported, with everything below it."""
    why = {
        child: f"left out: its parent {above!r} does not exist; set another parent, or none, with `kubectl hns set`"
        for child, above in parent.items()
        if above not in known
    }
    for child in set(parent) - known:
        why[child] = "left out: HNC has not created this namespace; wait for HNC, or delete the anchor"
    for name in {*parent, *parent.values()}:
        if marks.is_reserved(name) and name in known:
            why[name] = (
                "left out: default, kube-… and tenantry-… are reserved names; move its content to another namespace"
            )
    for cycle in _cycles(parent):
        text = f"left out: a cycle ({' below '.join([*cycle, cycle[0]])}); break it with `kubectl hns set`"
        why |= dict.fromkeys(cycle, text)
    for name, text in why.items():
        findings.add(FindingWeight.LOST, name, text)
    children = _children(parent)
    queue = sorted(why)
    for above in queue:
        for child in children.get(above, []):
            if child not in why:
                why[child] = ""
                queue.append(child)
                findings.add(FindingWeight.LOST, child, f"left out, because its ancestor {above!r} is")
    return queue


def _cycles(parent: dict[str, str]) -> list[list[str]]:
    seen: set[str] = set()
    found: list[list[str]] = []
    for start in sorted(parent):
        path: dict[str, None] = {}
        name = start
        while name in parent and name not in seen:
            seen.add(name)
            path[name] = None
            name = parent[name]
        if name in path:
            walked = list(path)
            found.append(walked[walked.index(name) :])
    return found


def _tell_conditions(world: HncObjects, forest: HncForest, findings: ImportFindings) -> None:
    inside = {*forest.roots, *forest.parent}
    for name, hierarchy in sorted(world.hierarchies.items()):
        for condition in hierarchy.status.conditions:
            follows = condition.reason in {"AncestorHaltActivities", "ANCESTOR_HALT_ACTIVITIES"}
            if name not in inside or condition.status != "True" or follows:
                continue
            halted = "; copies of HNC here and below may be out of date" if condition.type == "ActivitiesHalted" else ""
            said = f"{condition.reason}: {condition.message}".strip(": ")
            findings.add(FindingWeight.NOTE, name, f"HNC reports {said}{halted}; fix it in HNC first")

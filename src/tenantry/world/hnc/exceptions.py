"""Translates HNC's exceptions from propagation into `tenantry.dev/inherit`: pure.

Source: HNC's user guide, "Limit the propagation of objects" and the mode AllowPropagate. HNC matches a selector against
every descendant; Tenantry copies from parent to child only.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.api import marks
from tenantry.world.hnc.forest import HncForest
from tenantry.world.hnc.objects import (
    PROPAGATE,
    TREE_SUFFIX,
    HncConfiguration,
    HncObjects,
)
from tenantry.world.hnc.objects import is_never_propagated as is_kept
from tenantry.world.imports.findings import FindingWeight, ImportFindings
from tenantry.world.imports.form import InheritException, MarkedObject
from tenantry.world.inheritance import is_valid, selects

RBAC = "rbac.authorization.k8s.io"
_FALSE = ("", "0", "f", "F", "false", "FALSE", "False")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")


def exceptions(
    world: HncObjects, forest: HncForest, chosen: set[str], findings: ImportFindings
) -> list[InheritException]:
    """Return the objects of the chosen namespaces to be marked, sorted."""
    found: list[InheritException] = []
    modes = _modes(world.configuration)
    for marked in sorted(world.marked, key=lambda each: each.told):
        place = marked.metadata.namespace
        mode = _mode_of(marked, modes)
        if place not in chosen or place not in forest.children or mode is None:
            continue
        inherit = inherit_of(marked, only_marked=mode == "AllowPropagate")
        if inherit is None:
            continue
        found.append(InheritException(marked, inherit))
        if not is_valid(inherit):
            text = f"{inherit!r} is not a valid selector in Tenantry and selects nothing; rewrite it"
            findings.add(FindingWeight.LOST, marked.told, text)
        _tell_unreached(world, forest, marked, inherit, findings)
    return found


def inherit_of(marked: MarkedObject, *, only_marked: bool) -> str | None:
    """Return the value of `tenantry.dev/inherit` for HNC's annotations: all, none or a selector; None to leave it out.

    Args:
        marked: The object.
        only_marked: HNC propagates only annotated objects of this kind (AllowPropagate).
    """
    said = marked.metadata.annotations
    # What HNC cannot read as true or false it does not propagate.
    if is_kept(marked.kind, marked.metadata) or said.get(f"{PROPAGATE}none", "") not in _FALSE:
        return None if only_marked else "none"
    parts: list[str] = []
    select = said.get(f"{PROPAGATE}select", "").strip()
    if select:
        parts.append(select.replace(TREE_SUFFIX, marks.TREE_SUFFIX))
    names = [name.strip() for name in said.get(f"{PROPAGATE}treeSelect", "").split(",")]
    parts += [f"{name}{marks.TREE_SUFFIX}" for name in names if name]
    if parts:
        return ",".join(parts)
    return "all" if only_marked and said.get(f"{PROPAGATE}all", "") in _TRUE else None


def _modes(configuration: HncConfiguration | None) -> dict[tuple[str, str], str]:
    """Return, by group and plural, whether a kind is propagated: Propagate or AllowPropagate."""
    modes = {(RBAC, "roles"): "Propagate", (RBAC, "rolebindings"): "Propagate"}
    for each in configuration.spec.resources if configuration is not None else ():
        if each.mode in {"", "Propagate", "AllowPropagate"}:
            modes.setdefault((each.group, each.resource), each.mode or "Propagate")
    return modes


def _mode_of(marked: MarkedObject, modes: Mapping[tuple[str, str], str]) -> str | None:
    """Return the mode of a kind, None if HNC does not propagate it: then an annotation must not either."""
    group = marked.api_version.rpartition("/")[0]
    kind = marked.kind.lower()
    # A file has the kind and not the plural.
    plurals = [marked.plural] if marked.plural else [f"{kind}s", f"{kind}es", f"{kind[:-1]}ies", kind]
    return next((modes[group, plural] for plural in plurals if (group, plural) in modes), None)


def _tell_unreached(
    world: HncObjects, forest: HncForest, marked: MarkedObject, inherit: str, findings: ImportFindings
) -> None:
    """Report the namespaces that are selected although one between them and the object is not."""
    reached = {marked.metadata.namespace}
    for name in forest.below(marked.metadata.namespace):
        if not selects(inherit, lambda name=name: _labels(world, forest, name)):
            continue
        if forest.parent[name] in reached:
            reached.add(name)
        else:
            text = (
                f"does not reach {name!r}: objects are copied from parent to child, and {forest.parent[name]!r} is not"
                " selected; select it too, or copy the object yourself"
            )
            findings.add(FindingWeight.LOST, marked.told, text)


def _labels(world: HncObjects, forest: HncForest, name: str) -> dict[str, str]:
    """Return the future labels of a namespace that are known."""
    namespace = world.namespaces.get(name)
    line = forest.line(name)
    depths = {f"{each}{marks.TREE_SUFFIX}": str(len(line) - 1 - level) for level, each in enumerate(line)}
    pairs = {
        pair.key: pair.value
        for each in line
        if (hierarchy := world.hierarchies.get(each)) is not None
        for pair in hierarchy.spec.labels
    }
    own = namespace.metadata.labels if namespace is not None else {}
    return {"kubernetes.io/metadata.name": name, **pairs, **own, **depths}

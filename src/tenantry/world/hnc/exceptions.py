"""HNC's exceptions from propagation, as Tenantry's `tenantry.dev/inherit`: pure.

Source: HNC's user guide, "Limit the propagation of objects" and the mode AllowPropagate. Of an object that may go to
some namespaces, HNC asks every namespace below; Tenantry hands it down from parent to child.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenantry.api import marks
from tenantry.world.hnc.forest import Forest
from tenantry.world.hnc.objects import PROPAGATE, TREE_SUFFIX, Findings, HncConfiguration, Marked, Weight, World
from tenantry.world.hnc.objects import is_never_propagated as is_kept
from tenantry.world.inheritance import is_valid, selects

RBAC = "rbac.authorization.k8s.io"
_FALSE = ("", "0", "f", "F", "false", "FALSE", "False")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")


class Exempt(msgspec.Struct, frozen=True):
    """An object that is not handed down as its kind is, and its `tenantry.dev/inherit`."""

    source: Marked
    inherit: str


def exceptions(world: World, forest: Forest, chosen: set[str], findings: Findings) -> list[Exempt]:
    """Return the objects of the chosen namespaces to be marked, sorted."""
    found: list[Exempt] = []
    modes = _modes(world.configuration)
    for marked in sorted(world.marked, key=lambda each: each.told):
        place = marked.metadata.namespace
        mode = _mode_of(marked, modes)
        if place not in chosen or place not in forest.children or mode is None:
            continue
        inherit = inherit_of(marked, only_marked=mode == "AllowPropagate")
        if inherit is None:
            continue
        found.append(Exempt(marked, inherit))
        if not is_valid(inherit):
            text = f"{inherit!r} is no selector that Tenantry knows: handed down to nobody; write it in another way"
            findings.add(Weight.LOST, marked.told, text)
        _tell_unreached(world, forest, marked, inherit, findings)
    return found


def inherit_of(marked: Marked, *, only_marked: bool) -> str | None:
    """Return what HNC's annotations mean: all, none or a selector; None where it is as without them.

    Args:
        marked: The object.
        only_marked: HNC propagates of its kind only what is marked (AllowPropagate).
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


def _mode_of(marked: Marked, modes: Mapping[tuple[str, str], str]) -> str | None:
    """Return a kind's mode, None where it is not propagated: then a mark must not make it so."""
    group = marked.api_version.rpartition("/")[0]
    kind = marked.kind.lower()
    # A file has the kind and not the plural.
    plurals = [marked.plural] if marked.plural else [f"{kind}s", f"{kind}es", f"{kind[:-1]}ies", kind]
    return next((modes[group, plural] for plural in plurals if (group, plural) in modes), None)


def _tell_unreached(world: World, forest: Forest, marked: Marked, inherit: str, findings: Findings) -> None:
    """Tell which namespaces are selected, while one between them and the object is not."""
    reached = {marked.metadata.namespace}
    for name in forest.below(marked.metadata.namespace):
        if not selects(inherit, lambda name=name: _labels(world, forest, name)):
            continue
        if forest.parent[name] in reached:
            reached.add(name)
        else:
            text = (
                f"does not reach {name!r}: objects go from parent to child, and {forest.parent[name]!r} is not"
                " selected; select that too, or copy the object by hand"
            )
            findings.add(Weight.LOST, marked.told, text)


def _labels(world: World, forest: Forest, name: str) -> dict[str, str]:
    """Return a namespace's labels as they will be, as far as they are known."""
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

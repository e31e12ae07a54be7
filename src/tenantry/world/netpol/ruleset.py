"""An nftables table as data, and the nft commands that load it or change it into another: pure.

Source: nft(8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

FAMILY = "inet"


class ElementSet(msgspec.Struct, frozen=True):
    """A set or a verdict map.

    Args:
        type: The type of its elements, as in `ipv4_addr`.
        elements: From an element to its verdict; "" in a set.
        is_interval: Whether elements are ranges.
    """

    type: str
    elements: Mapping[str, str]
    is_interval: bool = False

    @property
    def is_map(self) -> bool:
        """Return whether it is a verdict map."""
        return self.type.endswith(": verdict")


class Chain(msgspec.Struct, frozen=True):
    """A chain.

    Args:
        rules: Its rules in nft syntax.
        header: The hook and policy of a base chain; "" for a chain that others jump to.
    """

    rules: tuple[str, ...]
    header: str = ""


class Ruleset(msgspec.Struct, frozen=True):
    """A table: its sets and maps, and its chains, by name."""

    table: str
    sets: Mapping[str, ElementSet]
    chains: Mapping[str, Chain]


def render(rules: Ruleset) -> str:
    """Return the commands that replace the table as a whole, as one transaction of `nft -f`."""
    name = f"{FAMILY} {rules.table}"
    # `delete` fails if there is no table, so the first command creates it.
    lines = [f"table {name}", f"delete table {name}", f"table {name} {{"]
    for set_name, found in sorted(rules.sets.items()):
        lines += [f"\t{'map' if found.is_map else 'set'} {set_name} {{ {_properties(found)} }}"]
    for chain_name, chain in sorted(rules.chains.items()):
        lines += [f"\tchain {chain_name} {{", *(f"\t\t{each}" for each in _body(chain)), "\t}"]
    lines.append("}")
    for set_name, found in sorted(rules.sets.items()):
        lines += _elements("add", rules.table, set_name, found.elements)
    return "\n".join(lines) + "\n"


def difference(before: Ruleset, after: Ruleset) -> str:
    """Return the commands that change one table into another, "" if they are equal, as one transaction of `nft -f`.

    Sets and chains are added before the rules that refer to them, and deleted after them.
    """
    table = f"{FAMILY} {after.table}"
    kept = {name for name, found in after.sets.items() if name in before.sets and _is_kind(before.sets[name], found)}
    new_sets = [name for name in sorted(after.sets) if name not in before.sets]
    gone_sets = [name for name in sorted(before.sets) if name not in after.sets]
    # The type of a set and the hook of a chain cannot be changed.
    if kept | set(new_sets) != set(after.sets) or _bases(before) != _bases(after):
        return render(after)
    lines = [
        f"add {'map' if after.sets[name].is_map else 'set'} {table} {name} {{ {_properties(after.sets[name])} }}"
        for name in new_sets
    ]
    lines += [f"add chain {table} {name}" for name in sorted(after.chains) if name not in before.chains]
    changed = [name for name in sorted(after.chains) if before.chains.get(name) != after.chains[name]]
    for name in changed:
        lines += [f"flush chain {table} {name}"] if name in before.chains else []
        lines += [f"add rule {table} {name} {rule}" for rule in after.chains[name].rules]
    for name in sorted(after.sets):
        lines += _changes(after.table, name, before.sets.get(name), after.sets[name])
    # Flushed first: gone chains may jump to each other, and a chain that is referred to cannot be deleted.
    gone_chains = [name for name in sorted(before.chains) if name not in after.chains]
    lines += [f"flush chain {table} {name}" for name in gone_chains]
    lines += [f"delete chain {table} {name}" for name in gone_chains]
    lines += [f"delete {'map' if before.sets[name].is_map else 'set'} {table} {name}" for name in gone_sets]
    return "\n".join(lines) + "\n" if lines else ""


def _changes(table: str, name: str, before: ElementSet | None, after: ElementSet) -> list[str]:
    if before is None:
        return _elements("add", table, name, after.elements)
    if before.elements == after.elements:
        return []
    if after.is_interval:
        # nft rejects new ranges that overlap old ones.
        return [f"flush set {FAMILY} {table} {name}", *_elements("add", table, name, after.elements)]
    # An element with another verdict is deleted and added, because nft updates no map in place.
    gone = [key for key, verdict in before.elements.items() if after.elements.get(key) != verdict]
    new = {key: verdict for key, verdict in after.elements.items() if before.elements.get(key) != verdict}
    return [*_elements("delete", table, name, dict.fromkeys(gone, "")), *_elements("add", table, name, new)]


def _elements(verb: str, table: str, name: str, elements: Mapping[str, str]) -> list[str]:
    if not elements:
        return []
    texts: Iterable[str] = (f"{key} : {verdict}" if verdict else key for key, verdict in sorted(elements.items()))
    return [f"{verb} element {FAMILY} {table} {name} {{ {', '.join(texts)} }}"]


def _properties(found: ElementSet) -> str:
    return f"type {found.type};" + (" flags interval;" if found.is_interval else "")


def _body(chain: Chain) -> tuple[str, ...]:
    return (chain.header, *chain.rules) if chain.header else chain.rules


def _is_kind(one: ElementSet, other: ElementSet) -> bool:
    return (one.type, one.is_interval) == (other.type, other.is_interval)


def _bases(rules: Ruleset) -> dict[str, Chain]:
    return {name: chain for name, chain in rules.chains.items() if chain.header}

"""Which server blocks of a Corefile show names of all tenants to every pod. Pure.

Source: CoreDNS, "Corefile Explained" (server blocks, snippets, import).
"""

from __future__ import annotations

CLUSTER = "kubernetes"
"""The plugin that answers the names of the cluster."""

OURS = "tenantry"
"""The plugin that keeps names of one tenant from another (docs/concepts/dns.md)."""


def unguarded(corefile: str) -> list[str]:
    """Return the server blocks that answer names of the cluster to any client, as their first lines name them."""
    blocks = _blocks(corefile)
    snippets = {name.strip("()"): lines for name, lines in blocks if name.startswith("(")}
    found: list[str] = []
    for name, lines in blocks:
        if name.startswith("("):
            continue
        imported = [line for each in lines if each[0] == "import" for line in snippets.get(each[-1], [])]
        plugins = {line[0] for line in (*lines, *imported)}
        if CLUSTER in plugins and OURS not in plugins:
            found.append(name)
    return found


def _blocks(corefile: str) -> list[tuple[str, list[list[str]]]]:
    """Return each block: its name, and the words of the lines that are directly in it."""
    blocks: list[tuple[str, list[list[str]]]] = []
    depth = 0
    for line in corefile.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words == ["}"]:
            depth -= 1
            continue
        if depth == 0:
            blocks.append((" ".join(word for word in words if word != "{"), []))
        elif depth == 1:
            blocks[-1][1].append([word for word in words if word != "{"])
        depth += words[-1] == "{"
    return blocks

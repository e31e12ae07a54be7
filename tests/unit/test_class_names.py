"""Names of classes: one name, one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import tenantry

SOURCE = Path(tenantry.__file__).parent


def test_public_class_names_are_unique() -> None:
    """STYLE 1: a person who searches for a class finds one definition."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}

"""The import contract of pure modules lists exactly the modules whose docstring says that they are pure."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
CONTRACT = "pure modules do no I/O and read no clock"


def listed() -> set[str]:
    """Return the modules and packages of the contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each["name"] == CONTRACT]
    return set(contract["source_modules"])


def modules() -> dict[str, str]:
    """Return the docstring of every module and package of Tenantry, by its dotted name."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.get_docstring(ast.parse(path.read_text())) or ""
    return found


def says_pure(docstring: str) -> bool:
    """Return whether a docstring has the word."""
    return re.search(r"\bpure\b", docstring, re.IGNORECASE) is not None


def covering(module: str, entries: set[str]) -> set[str]:
    """Return the entries that cover a module: itself, or a package around it."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts) + 1)} & entries


def test_every_module_that_says_so_is_in_the_contract() -> None:
    """STYLE 15: a docstring that claims purity is checked by import-linter."""
    entries = listed()
    assert [name for name, text in modules().items() if says_pure(text) and not covering(name, entries)] == []


def test_every_entry_of_the_contract_says_so() -> None:
    """STYLE 15: the docstring of each module, or package, in the contract has the word."""
    docstrings = modules()
    assert [entry for entry in sorted(listed()) if not says_pure(docstrings.get(entry, ""))] == []


def test_no_entry_repeats_another() -> None:
    """A package covers its modules."""
    entries = listed()
    assert [entry for entry in sorted(entries) if len(covering(entry, entries)) > 1] == []

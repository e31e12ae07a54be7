"""The programs of tools/, which are no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
_TOOLS = ROOT / "tools"


def load(name: str) -> ModuleType:
    """Return a program as a module; it may import the others."""
    spec = importlib.util.spec_from_file_location(name, _TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up by this name.
    sys.modules[name] = module
    sys.path.insert(0, str(_TOOLS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_TOOLS))
    return module

"""Write the software bill of materials of a release: `python3 tools/sbom.py > sbom.json` (CycloneDX 1.6).

    requirements/run.txt   ─► Python packages, with the hashes that pip checks
    go/*/go*.mod           ─► Go modules of the programs that Tenantry builds, each with the programs that need it

Both files are exact: pip installs these versions, and Go builds with these modules. Source: CycloneDX 1.6; package-url.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Component = dict[str, Any]

_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_MODULE = re.compile(r"^(?:require\s+)?\t?([a-z0-9][^\s]*)\s+(v[^\s]+)(?:\s+//.*)?$")


def python_components(requirements: str) -> Iterator[Component]:
    """Yield the packages of a file of pinned requirements."""
    for block in re.split(r"\n(?=[A-Za-z0-9])", requirements):
        found = _PACKAGE.match(block)
        if found is None:
            continue
        name, version = found[1].lower(), found[2]
        purl = f"pkg:pypi/{name}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "properties": [{"name": "tenantry:sha256", "value": each} for each in _HASH.findall(block)],
        }


def go_modules(mod: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the version of each module that a go.mod requires, indirect ones included."""
    inside = False
    for line in mod.splitlines():
        if line.startswith("require ("):
            inside = True
        elif line == ")":
            inside = False
        elif inside or line.startswith("require "):
            found = _MODULE.match(line)
            if found is not None:
                yield found[1], found[2]


def go_components(folder: Path) -> Iterator[Component]:
    """Yield the modules of all programs below a folder, each once."""
    users: dict[tuple[str, str], set[str]] = {}
    # Some programs have a go.mod for each version of Kubernetes, as go-1.35.mod.
    for file in sorted(folder.glob("*/go*.mod")):
        for module in go_modules(file.read_text()):
            users.setdefault(module, set()).add(file.parent.name)
    for (path, version), programs in sorted(users.items()):
        purl = f"pkg:golang/{path}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": path,
            "version": version,
            "purl": purl,
            "properties": [{"name": "tenantry:program", "value": each} for each in sorted(programs)],
        }


def document(version: str) -> dict[str, Any]:
    """Return the bill of a version of Tenantry; the same sources give the same bill."""
    components = [
        *python_components((ROOT / "requirements" / "run.txt").read_text()),
        *go_components(ROOT / "go"),
    ]
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True) + version)
    purl = f"pkg:pypi/tenantry@{version}"
    product = {"type": "application", "bom-ref": purl, "name": "tenantry", "version": version, "purl": purl}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [each["bom-ref"] for each in components]}],
    }


def current_version() -> str:
    """Return the version in the package."""
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "src/tenantry/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("src/tenantry/__init__.py has no __version__")
    return found[1]


if __name__ == "__main__":
    json.dump(document(current_version()), sys.stdout, indent=2)
    print()

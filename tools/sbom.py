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
from collections.abc import Collection, Iterator
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


def go_components(folder: Path, programs: Collection[str] | None = None) -> Iterator[Component]:
    """Yield the modules of programs below a folder, each once.

    Args:
        folder: It has a folder with a go.mod for each program.
        programs: The names of these folders; None for all.
    """
    users: dict[tuple[str, str], set[str]] = {}
    # Some programs have a go.mod for each version of Kubernetes, as go-1.35.mod.
    for file in sorted(folder.glob("*/go*.mod")):
        if programs is not None and file.parent.name not in programs:
            continue
        for module in go_modules(file.read_text()):
            users.setdefault(module, set()).add(file.parent.name)
    for (path, version), found in sorted(users.items()):
        purl = f"pkg:golang/{path}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": path,
            "version": version,
            "purl": purl,
            "properties": [{"name": "tenantry:program", "value": each} for each in sorted(found)],
        }


def document(version: str) -> dict[str, Any]:
    """Return the bill of a version of Tenantry; the same sources give the same bill."""
    components = [
        *python_components((ROOT / "requirements" / "run.txt").read_text()),
        *go_components(ROOT / "go"),
    ]
    return bill("tenantry", version, f"pkg:pypi/tenantry@{version}", components)


def bill(name: str, version: str, purl: str, components: list[Component]) -> dict[str, Any]:
    """Return the bill of one artefact; the same components give the same bill.

    Args:
        name: The artefact.
        version: Its version.
        purl: Its package-url.
        components: What it is made of.
    """
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True) + version)
    product = {"type": "application", "bom-ref": purl, "name": name, "version": version, "purl": purl}
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

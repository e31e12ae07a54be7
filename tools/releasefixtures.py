"""Write the schemas and stored objects of this version, by which later versions test their upgrade from it.

    schemas of the kinds, without descriptions ─┐
    objects of the examples, with the defaults ─┴─► tests/fixtures/releases/VERSION/

A release makes the folder once, and no later version changes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import yaml

from tenantry import __version__
from tenantry.api import crd
from tenantry.api.kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "fixtures" / "releases"

Json = dict[str, Any]


def schema_of(kind: Any) -> Json:  # noqa: ANN401 - one of KINDS
    """Return the schema of a kind as a CRD has it, without descriptions."""
    (version,) = crd.custom_resource_definition(kind)["spec"]["versions"]
    kept = {key: version[key] for key in ("name", "served", "storage")}
    return {**kept, "schema": _bare(version["schema"]["openAPIV3Schema"])}


def _bare(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        found = cast("Json", value)
        # A field may have the name "description": its value is a schema.
        kept: Json = {key: inner for key, inner in found.items() if key != "description" or isinstance(inner, dict)}
        return {key: _bare(inner) for key, inner in kept.items()}
    return [_bare(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def defaulted(schema: Json, value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value with the defaults of a schema, as the API server stores it."""
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = dict(cast("Json", value))
    properties: Json = schema.get("properties", {})
    for name, inner in properties.items():
        if name not in found and "default" in inner:
            found[name] = inner["default"]
        if name in found:
            found[name] = defaulted(inner, found[name])
    more: object = schema.get("additionalProperties")
    if isinstance(more, dict):
        found = {key: defaulted(cast("Json", more), inner) for key, inner in found.items()}
    return found


def objects() -> list[Json]:
    """Return the objects of Tenantry's kinds in the examples, as the API server stores them."""
    schemas: dict[str, Json] = {kind.resource.kind: schema_of(kind)["schema"] for kind in KINDS}
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    documents: list[Any] = [each for file in files for each in yaml.safe_load_all(file.read_text())]
    maps = [cast("Json", each) for each in documents if isinstance(each, dict)]
    return [defaulted(schemas[each["kind"]], each) for each in maps if each.get("kind") in schemas]


def main() -> None:
    """Write the folder of this version, unless it exists."""
    folder = FOLDER / __version__
    if folder.exists():
        sys.exit(f"{folder.relative_to(ROOT)} exists: a release keeps what it stored")
    folder.mkdir(parents=True)
    schemas = {kind.resource.full_name: schema_of(kind) for kind in KINDS}
    (folder / "schemas.json").write_text(json.dumps(schemas, separators=(",", ":"), sort_keys=True) + "\n")
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects(), sort_keys=True))


if __name__ == "__main__":
    main()

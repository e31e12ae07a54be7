"""Rules as text for parameters of policies: no value ends its line, and begins another rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.tenancyrules import Bound, Listed, Section
from tenantry.policy.text import encoded

Json = dict[str, Any]

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
HOSTILE = st.text("a\n\t\r\x00\x1e\x1f\x7f", min_size=1, max_size=8)
BOUNDS = st.builds(Bound, source=HOSTILE, value=HOSTILE)
LISTS = st.builds(Listed, source=HOSTILE, values=st.lists(HOSTILE, max_size=3).map(tuple))
FIELDS = {"refused": 2, "required": 2, "maxima": 3, "chosen": 3, "allowed": 3, "patterns": 2}


@given(
    st.builds(
        Section,
        refused=st.dictionaries(HOSTILE, HOSTILE, max_size=3),
        allowed=st.dictionaries(HOSTILE, LISTS, max_size=3),
        patterns=st.dictionaries(HOSTILE, st.lists(LISTS, min_size=1, max_size=2).map(tuple), max_size=3),
        maxima=st.dictionaries(HOSTILE, BOUNDS, max_size=3),
        required=st.dictionaries(HOSTILE, HOSTILE, max_size=3),
        chosen=st.dictionaries(HOSTILE, BOUNDS, max_size=3),
    )
)
def test_each_entry_is_one_line_with_its_fields(section: Section) -> None:
    """E14, H03: also of objects that were stored before the schema refused control characters."""
    texts = encoded(section)
    for form, text in texts.items():
        lines = text.split("\n")
        assert len(lines) == len(getattr(section, form))
        assert {len(line.split("\t")) for line in lines} == {FIELDS[form]}
    units = sorted(len(line.split("\t")[2].split("\x1f")) for line in texts.get("allowed", "").split("\n") if line)
    assert units == sorted(max(1, len(listed.values)) for listed in section.allowed.values())


def _free_strings(schema: Json, path: str) -> Iterator[str]:
    if schema.get("type") == "string" and not {"pattern", "enum", "format"} & schema.keys():
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from _free_strings(inner, f"{path}.{name}")
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from _free_strings(cast("Json", inner), f"{path}[]")


@pytest.mark.parametrize("kind", ["tenants", "subnamespaces", "tenancydefaults"])
def test_the_schema_of_rules_refuses_control_characters(kind: str) -> None:
    """E14, H03: a line feed in a value would begin another rule."""
    crd: Json = yaml.safe_load((CRDS / f"{kind}.tenantry.dev.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    rules = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["rules"]
    assert list(_free_strings(rules, "spec.rules")) == []

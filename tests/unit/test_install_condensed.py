"""Policies that are installed have fewer expressions, and decide the same."""

from __future__ import annotations

import re
from typing import Any

from tenantry.install import manifests
from tenantry.install.condensed import LOOPS, condensed, loops
from tenantry.install.policy import says, validating

SOME = [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"]}]


def spec(*validations: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as `validating` has them
    (made,) = condensed([validating("p", SOME, validations, **more)])
    return made["spec"]


def test_conditions_become_one() -> None:
    found = spec(says("true", "m"), conditions={"a": "x || y", "b": "z"})
    assert found["matchConditions"] == [{"name": "a-and-b", "expression": "(x || y) && (z)"}]


def test_the_name_of_a_condition_stays_short_enough() -> None:
    found = spec(says("true", "m"), conditions={"a" * 40: "x", "b" * 40: "y"})
    assert found["matchConditions"][0]["name"] == "a" * 40


def test_a_variable_is_written_where_it_is_used_also_through_another_one() -> None:
    variables = {"was": "has(oldObject.x) ? 1 : 2", "is": "3", "changes": "variables.was != variables.is"}
    found = spec(says("!variables.changes", "m"), variables=variables)
    assert found["validations"][0]["expression"] == "!((has(oldObject.x) ? 1 : 2) != (3))"
    assert "variables" not in found


def test_a_variable_stays_if_it_would_be_evaluated_more_often() -> None:
    """Once for each element, or a loop in several places."""
    variables = {"mine": "object.metadata.name", "many": "object.items.filter(i, i > 1)"}
    validations = [
        says("object.items.all(i, i != variables.mine)", "m"),
        says("size(variables.many) < 3", "m"),
        says("!(4 in variables.many)", "m"),
    ]
    found = spec(*validations, variables=variables)
    assert [each["name"] for each in found["variables"]] == ["mine", "many"]


def test_a_loop_that_validations_and_messages_use_once_each_is_no_variable() -> None:
    """They are evaluated apart, so a variable would be evaluated twice as well."""
    found = spec(says("variables.p == ''", "variables.p", told=True), variables={"p": "object.i.filter(i, i > 1)[0]"})
    assert found["validations"][0]["expression"] == "(object.i.filter(i, i > 1)[0]) == ''"
    assert found["validations"][0]["messageExpression"] == "(object.i.filter(i, i > 1)[0])"


def test_a_long_variable_with_several_uses_stays() -> None:
    long = " + ".join(["object.metadata.name"] * 30)
    found = spec(says("variables.x == 'a'", "m"), says("variables.x == 'b'", "m"), variables={"x": long})
    assert [each["name"] for each in found["variables"]] == ["x"]


def test_parentheses_in_texts_end_no_loop() -> None:
    cel = "object.items.all(i, i != ')' && variables.x) || variables.x"
    ((start, end),) = loops(cel)
    assert cel[start:end] == "i, i != ')' && variables.x"


def test_every_macro_of_the_policies_is_known_as_a_loop() -> None:
    """A variable that is written into an unknown macro would be evaluated for each element."""
    found = {name for each in manifests.everything() for name in re.findall(r"\.(\w+)\([a-z]\w*, ", _cel(each))}
    assert {"all", "exists", "filter", "map", "transformMap"} <= found <= set(LOOPS)
    assert all(len(loops(f"object.items.{name}(i, i > variables.x)")) == 1 for name in LOOPS)


def _cel(value: dict[str, Any]) -> str:
    return str(value["spec"]) if value["kind"].endswith("AdmissionPolicy") else ""


def test_every_variable_that_is_used_is_defined_before() -> None:
    """The API server compiles them in this order."""
    for value in manifests.everything():
        if value["kind"].endswith("AdmissionPolicy"):
            rest = str({**value["spec"], "variables": []})
            names: list[str] = []
            for each in value["spec"].get("variables", ()):
                assert not [other for other in _used(each["expression"]) if other not in names], value["metadata"]
                names.append(each["name"])
            assert set(_used(rest)) <= set(names), value["metadata"]


def _used(cel: str) -> list[str]:
    return re.findall(r"\bvariables\.(\w+)", cel)

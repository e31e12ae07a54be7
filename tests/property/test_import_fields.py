"""X10: no field of another tool is dropped in silence, and no import makes a quota larger.

The inputs are drawn from the schemas of the kinds, which the integration tests install. A field counts as mapped if
another value of it, or its absence, changes what the import returns.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenantry.api.errors import InputError
from tenantry.world import quantity, quota
from tenantry.world.imports.form import ImportOptions, ImportPlan
from tenantry.world.imports.objects import ImportSource, read
from testkit.imports import STORIES, ImportStory, documents

Json = dict[str, Any]

KINDS = Path(__file__).parent.parent / "integration" / "imports"
AMOUNTS = ("hard", "resourcelist", "resourceallocation")
FOLLOWS = {
    "apiGroup": "the kind of a subject decides it",
    "scope": "it says nothing without quotas",
    "namespace": "only a ServiceAccount has one",
}
"""Fields that say nothing of their own, and why."""
KEPT = {"account", "projectName", "displayName", "email"}
"""Fields by which objects name each other; the tests of each tool change them."""


def _schemas() -> dict[tuple[str, str], Json]:
    found: dict[tuple[str, str], Json] = {}
    for file in KINDS.glob("*.yaml"):
        for kind in yaml.safe_load_all(file.read_text()):
            spec = kind["spec"]
            properties = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
            found[spec["group"], spec["names"]["kind"]] = {
                "type": "object",
                "properties": {key: value for key, value in properties.items() if key != "status"},
                "required": ["spec"] if "spec" in properties else ["projectName", "roleTemplateName"],
            }
    return found


SCHEMAS = _schemas()


WORDS = ["alpha", "beta", "view", "admin", "docker.io", "project-owner", "system:masters"]
PATTERNS = ["^ssd-.*$", "a|b", "(?=x)", "[.]example[.]com$"]


def _values(schema: Json, name: str = "") -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "quantity":
        return st.sampled_from(["1", "2", "1500m", "4Gi"])
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return st.fixed_dictionaries({"policyTypes": st.lists(st.sampled_from(["Ingress", "Egress"]), min_size=1)})
    if schema.get("format") == "date-time":
        return st.just("2040-01-01T00:00:00Z")
    words = PATTERNS if "egex" in name else WORDS
    drawn = {
        "array": lambda: st.lists(_values(schema["items"], name), max_size=2, unique_by=repr),
        "object": lambda: _maps(schema, name),
        "string": lambda: st.sampled_from(words),
        "boolean": st.booleans,
        "integer": lambda: st.integers(1, 9),
    }
    return drawn[schema["type"]]()


def _maps(schema: Json, name: str) -> st.SearchStrategy[Any]:
    if "additionalProperties" in schema:
        keys = (
            ["pods", "requests.cpu", "limits.memory", "cpu"]
            if name in AMOUNTS
            else ["team", "example.com/cost", "tier"]
        )
        if name in AMOUNTS:
            keys = keys[:3]
        return st.dictionaries(st.sampled_from(keys), _values(schema["additionalProperties"], name), max_size=2)
    required = schema.get("required", [])
    properties = {key: _values(value, key) for key, value in schema.get("properties", {}).items()}
    return st.fixed_dictionaries(
        {key: value for key, value in properties.items() if key in required},
        optional={key: value for key, value in properties.items() if key not in required},
    )


def _outcome(source: ImportSource, found: list[tuple[str, object]]) -> ImportPlan | str:
    try:
        return source.plan(read(source, found), ImportOptions())
    except InputError as error:
        return str(error)


def _printed(outcome: ImportPlan | str) -> str:
    if isinstance(outcome, str):
        return outcome
    objects = [
        (tree.tenant, [child.subnamespace for child in tree.children], [each.document for each in tree.objects])
        for tree in outcome.trees
    ]
    return msgspec.json.encode([objects, outcome.findings]).decode()


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each value that says something, with its container and key."""
    pairs: Any = cast("Json", value).items() if isinstance(value, dict) else enumerate(cast("list[Any]", value))
    for key, inner in pairs:
        here = f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}" if path else str(key)
        if isinstance(inner, dict | list):
            if inner:
                yield from _leaves(cast("object", inner), here)
        elif inner not in (None, "", False):
            yield here, value, key


def _other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return "3" if re.fullmatch(r"[0-9].*", str(value)) and "T" not in str(value) else "other"


def _is_named(path: str, texts: list[str]) -> bool:
    plain = re.sub(r"\[[0-9]+\]", "", path)
    for text in texts:
        above = re.sub(r"\[[0-9]+\]", "", text.partition(": ")[0]).split("[")[0]
        if plain == above or plain.startswith(f"{above}."):
            return True
    return False


def _is_mapped(story: ImportStory, found: list[tuple[str, object]], index: int, path: str, before: str) -> bool:
    """Return whether another value, or none, changes what the import returns."""
    for change in ("other", "absent"):
        changed = copy.deepcopy(found)
        where, key = next((box, key) for at, box, key in _leaves(changed[index][1]) if at == path)
        if change == "other":
            where[key] = _other(where[key])
        else:
            del where[key]
        if _printed(_outcome(story.source, changed)) != before:
            return True
    return False


def _content(document: object) -> Json:
    whole = cast("Json", document)
    return {key: value for key, value in whole.items() if key not in {"apiVersion", "kind", "metadata", "status"}}


def _keep(drawn: Json, original: Json) -> None:
    """Put back the fields by which objects of the story name each other."""
    for key, value in original.items():
        if key in KEPT:
            drawn[key] = value
        elif isinstance(value, dict) and isinstance(drawn.get(key), dict):
            _keep(drawn[key], cast("Json", value))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.source.name)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_field_is_mapped_or_named(story: ImportStory, data: st.DataObject) -> None:
    """X10: for any object of the tool that its kind allows."""
    found = documents(story)
    index = data.draw(st.integers(0, len(story.objects) - 1))
    where, document = found[index]
    whole = cast("Json", document)
    group = whole["apiVersion"].rpartition("/")[0]
    drawn = data.draw(_values(SCHEMAS[group, whole["kind"]]))
    _keep(drawn, whole)
    if whole["kind"] == "Project":
        drawn["spec"].setdefault("displayName", "Web Shop")
    if whole["kind"] == "SubNamespace" and not {"workspace", "subtenant"} & set(drawn["spec"]):
        drawn["spec"]["workspace"] = {"scope": "local"}
    if drawn.get("spec", {}).get("drop"):
        # More than all drops take: where nothing is left, one drop more or less changes nothing.
        dropped = {key for each in drawn["spec"]["drop"].values() for key in each.get("resourcelist", {})}
        drawn["spec"].setdefault("claim", {})["most"] = {"resourcelist": dict.fromkeys(sorted(dropped), "64Gi")}
    found[index] = (where, {**whole, **dict.fromkeys(_content(whole)), **drawn})
    outcome = _outcome(story.source, found)
    if isinstance(outcome, str):
        return
    before, texts = _printed(outcome), [finding.text for finding in outcome.findings]
    for path, _, key in _leaves(drawn):
        if key in FOLLOWS or key in KEPT:
            continue
        assert _is_named(path, texts) or _is_mapped(story, found, index, path, before), path


AMOUNT = st.sampled_from(["0", "1", "3", "500m", "7", "12"])


@pytest.mark.parametrize("fit", [False, True])
@settings(max_examples=100, deadline=None)
@given(
    whole=st.dictionaries(st.sampled_from(["pods", "requests.cpu", "limits.cpu"]), AMOUNT, min_size=1),
    scope=st.sampled_from(["Tenant", "Namespace"]),
    used=st.lists(st.dictionaries(st.sampled_from(["pods", "requests.cpu"]), AMOUNT), min_size=3, max_size=3),
)
def test_the_sum_of_shares_is_never_more_than_the_whole(
    whole: dict[str, str], scope: str, used: list[dict[str, str]], *, fit: bool
) -> None:
    """X10, E09: and the whole is never more than what the other tool allows."""
    story = STORIES[0]
    found = documents(story)
    tenant = copy.deepcopy(cast("Json", found[0][1]))
    tenant["spec"]["resourceQuotas"] = {"scope": scope, "items": [{"hard": whole}]}
    names = list(story.namespaces)
    quotas: list[tuple[str, object]] = [
        (
            "quota",
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "capsule-oil-0", "namespace": name},
                "status": {"used": use},
            },
        )
        for name, use in zip(names, used, strict=False)
    ]
    world = read(story.source, [("t", tenant), *found[1:], *quotas])
    (tree,) = story.source.plan(world, ImportOptions(fit=fit)).trees
    many = 1 if scope == "Tenant" else len(names)
    hard = quota.normal(tree.tenant.spec.quota.hard)
    for key, amount in hard.items():
        assert quantity.parse(amount) <= many * quantity.parse(whole[key])
        shares = [quantity.parse(each.subnamespace.spec.quota.hard.get(key, "0")) for each in tree.children]
        assert sum(shares) <= quantity.parse(amount)
    assert set(hard) == set(whole)

"""By what an installation sees that the API server goes by the policies that were just written: pure.

It takes up to two seconds until it does, and until then lets pass what they refuse. It takes policies in together, so
one that is written last and seen to refuse says that all others are in force. What it refuses, nobody wants.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tenantry.api import marks
from tenantry.api.model import Resource
from tenantry.install.policy import binding, rule, says, validating

Json = dict[str, Any]

NAME = "tenantry-canary"
PROBED = Resource("", "v1", "configmaps", "ConfigMap")


def canary(objects: Sequence[Json]) -> list[Json]:
    """Return the policies and their bindings; which objects the first stands for is in its message.

    The others have parameters of our own kinds, which the API server may come to know later than the policies: it looks
    for new kinds every ten seconds only, and until then refuses what a policy with such parameters is about.

    Args:
        objects: Everything else that is installed.
    """
    policies = [value for value in objects if is_policy(value)]
    digest = hashlib.sha256(json.dumps(policies, sort_keys=True).encode()).hexdigest()[:16]
    given = [value["spec"]["paramKind"] for value in policies if "paramKind" in value["spec"]]
    kinds = {kind["kind"]: kind for kind in given if kind["apiVersion"].startswith(f"{marks.GROUP}/")}
    made = [_policy(NAME, f"the policies {digest} of Tenantry are in force"), binding(NAME)]
    for kind in sorted(kinds):
        name = f"{NAME}-{kind.lower()}"
        reference: Json = {"selector": {}, "parameterNotFoundAction": "Deny"}
        made += [_policy(name, f"{kind} is known", paramKind=kinds[kind]), binding(name, paramRef=reference)]
    return made


def _policy(name: str, told: str, **more: Any) -> Json:  # noqa: ANN401 - as JSON
    return validating(
        name,
        # Where parameters fail, conditions are not asked: other ConfigMaps would be refused.
        [{**rule("", ["configmaps"], "CREATE"), "resourceNames": [name]}],
        [says("false", told)],
        where={"matchLabels": {"kubernetes.io/metadata.name": marks.SYSTEM_NAMESPACE}},
        **more,
    )


def is_policy(value: Json) -> bool:
    """Tell whether an object is one that the API server has to take in."""
    return str(value["kind"]).startswith("ValidatingAdmissionPolicy")


def is_canary(value: Json) -> bool:
    """Tell whether an object is part of the canary."""
    return str(value["metadata"]["name"]).startswith(NAME)


def probe(name: str) -> Json:
    """Return what the policy of that name refuses."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def told_by(objects: Sequence[Json]) -> dict[str, str]:
    """Return what the API server says once it goes by the policies: the canary's name to a part of the message."""
    told: dict[str, str] = {}
    for value in objects:
        name = value["metadata"]["name"]
        if is_canary(value) and value["kind"] == "ValidatingAdmissionPolicy":
            has_parameters = "paramKind" in value["spec"]
            # It is refused by the binding, too, while there are no parameters.
            words = f"with binding '{name}' denied" if has_parameters else value["spec"]["validations"][0]["message"]
            told[name] = words
    return told

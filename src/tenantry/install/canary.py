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
from tenantry.install.policy import bound, rule, says, validating

Json = dict[str, Any]

NAME = "tenantry-canary"
PROBED = Resource("", "v1", "configmaps", "ConfigMap")


def canary(objects: Sequence[Json]) -> list[Json]:
    """Return the policy and its binding; which objects it stands for is in its message.

    Args:
        objects: Everything else that is installed.
    """
    policies = [value for value in objects if is_policy(value)]
    digest = hashlib.sha256(json.dumps(policies, sort_keys=True).encode()).hexdigest()[:16]
    policy = validating(
        NAME,
        [{**rule("", ["configmaps"], "CREATE"), "resourceNames": [NAME]}],
        [says("false", f"the policies {digest} of Tenantry are in force")],
        where={"matchLabels": {"kubernetes.io/metadata.name": marks.SYSTEM_NAMESPACE}},
    )
    return bound(policy)


def is_policy(value: Json) -> bool:
    """Tell whether an object is one that the API server has to take in."""
    return str(value["kind"]).startswith("ValidatingAdmissionPolicy")


def is_canary(value: Json) -> bool:
    """Tell whether an object is part of the canary."""
    return value["metadata"]["name"] == NAME


def probe() -> Json:
    """Return what it refuses."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}}


def told_by(objects: Sequence[Json]) -> str:
    """Return what the API server says once it goes by the policies; "" where no canary is among the objects."""
    policies = [value for value in objects if is_canary(value) and value["kind"] == "ValidatingAdmissionPolicy"]
    return policies[0]["spec"]["validations"][0]["message"] if policies else ""

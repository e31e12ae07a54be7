"""X10: the usage of a namespace is the largest amount that one of its ResourceQuotas counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tenantry.world.imports import capsule
from tenantry.world.imports.form import ImportOptions
from tenantry.world.imports.objects import read
from testkit.imports import STORIES, documents

Json = dict[str, Any]
STORY = next(story for story in STORIES if story.source is capsule.SOURCE)


def counted(name: str, used: Json, **spec: object) -> tuple[str, object]:
    metadata = {"name": name, "namespace": "oil-dev"}
    return name, {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": spec,
        "status": {"used": used},
    }


@pytest.mark.parametrize("order", [1, -1])
def test_an_old_amount_does_not_replace_a_larger_one(order: int) -> None:
    """X10: in the order of the files or the other, and if the two spell a key differently."""
    quotas = [counted("new", {"requests.cpu": "6500m", "pods": 3}), counted("old", {"cpu": "1", "pods": "12"})]
    usage = read(STORY.source, [*documents(STORY), *quotas[::order]]).usage
    assert usage == {"oil-dev": {"requests.cpu": Fraction(13, 2), "pods": 12}}


def test_a_share_is_not_below_the_use() -> None:
    """X10: with 8 CPUs of which one namespace uses 6, the two get 7 and 1."""
    quotas = [counted("new", {"requests.cpu": "6"}), counted("old", {"requests.cpu": "1"})]
    (tree,) = STORY.source.plan(read(STORY.source, [*documents(STORY), *quotas]), ImportOptions()).trees
    shares = {child.namespace: child.subnamespace.spec.quota.hard["requests.cpu"] for child in tree.children}
    assert shares == {"oil-dev": "7", "oil-production": "1"}


def test_amounts_that_are_no_quantities_and_quotas_of_some_pods_do_not_count() -> None:
    """X10: files are untrusted, and a scope selects a part of the pods."""
    quotas = [counted("wrong", {"pods": "many", "": "1"}), counted("best-effort", {"pods": "9"}, scopes=["BestEffort"])]
    assert read(STORY.source, [*documents(STORY), *quotas]).usage == {"oil-dev": {}}

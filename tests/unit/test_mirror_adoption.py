"""Lower objects that were there before their upper ones, and keep their names (H01): pure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.mirror import adoption
from tenantry.mirror.kinds import claims, networkpolicies, services
from tenantry.mirror.kinds.kind import MirroredKind
from testkit.mirroring import PROFILE
from testkit.mirrorobjects import ObjectStory, upper_object

Json = dict[str, Any]


def story() -> ObjectStory:
    """Two worlds, with mirrors that adopt."""
    made: list[ObjectStory] = []
    names = adoption.adopted_names(PROFILE, lambda resource: made[0].below.cache_of(resource) if made else None)
    made.append(ObjectStory(profile=replace(PROFILE, is_adopted=names)))
    return made[0]


def put_lower(made: ObjectStory, kind: MirroredKind, marks: Json) -> Json:
    """Create a lower object that is to be adopted as "web" of namespace "shop"."""
    value = upper_object(kind, "web", 1)
    value["metadata"] = {"name": "web", "namespace": PROFILE.namespace, "labels": {"number": "1"}}
    value["metadata"]["labels"] |= marks["labels"]
    value["metadata"]["annotations"] = dict(marks["annotations"])
    made.lower.put_in(kind.resource, value)
    return made.lower.get(kind.resource, f"{PROFILE.namespace}/web")


def marks_of(kind: MirroredKind) -> Json:
    return adoption.marks(kind.resource.kind, "shop", "web", PROFILE)


ADOPTED = [services.KIND, claims.KIND, networkpolicies.KIND]


@pytest.mark.parametrize("kind", ADOPTED, ids=lambda each: each.resource.kind)
def test_an_adopted_object_stays_with_its_name(kind: MirroredKind) -> None:
    made = story()
    before = put_lower(made, kind, marks_of(kind))
    made.settle()
    assert made.lower.get(kind.resource, f"{PROFILE.namespace}/web")["metadata"]["uid"] == before["metadata"]["uid"]
    # As a Service that is made on the lower side first.
    made.upper.chosen = lambda: str(before["spec"].get("clusterIP", ""))
    made.create(kind, "web", 1)
    made.settle()
    after = made.lower.get(kind.resource, f"{PROFILE.namespace}/web")
    upper = made.upper.get(kind.resource, "shop/web")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"][PROFILE.mark("uid")] == upper["metadata"]["uid"]
    assert made.below_of(kind, "web") is None
    made.upper.delete(kind.resource, "shop/web")
    made.settle()
    assert all(each["metadata"]["name"] != "web" for each in made.lower.list(kind.resource))


@pytest.mark.parametrize("kind", ADOPTED, ids=lambda each: each.resource.kind)
def test_marks_of_another_owner_adopt_nothing(kind: MirroredKind) -> None:
    made = story()
    marks = marks_of(kind)
    marks["labels"] = {**marks["labels"], PROFILE.mark("owner"): "u-other"}
    put_lower(made, kind, marks)
    made.create(kind, "web", 1)
    made.settle()
    assert (
        PROFILE.mark("uid") not in made.lower.get(kind.resource, f"{PROFILE.namespace}/web")["metadata"]["annotations"]
    )
    assert made.below_of(kind, "web") is not None


def test_a_kind_that_is_not_mirrored_is_not_adopted() -> None:
    with pytest.raises(ValueError, match="Deployment"):
        adoption.marks("Deployment", "shop", "web", PROFILE)

"""Kinds that administrators offer: what goes down, what stays, and what comes up."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.model import Resource
from tenantry.mirror import things
from tenantry.mirror.kinds.kind import Origin
from tenantry.mirror.kinds.offered import Offered, OfferedPlace, PlaceUse, copied, kind_of, written
from tenantry.mirror.shapes import NotTranslated
from testkit.mirroring import PROFILE

Json = dict[str, Any]

OFFERED = Offered(
    Resource("offered.example.com", "v1", "gadgets", "Gadget"),
    (
        OfferedPlace("spec.secretName", PlaceUse.SECRET),
        OfferedPlace("spec.rules[].service.name", PlaceUse.SERVICE),
        OfferedPlace("spec.rules[].selector", PlaceUse.SELECTOR),
        OfferedPlace("spec.anywhere", PlaceUse.OMITTED),
        OfferedPlace("status.parts[].handle", PlaceUse.OMITTED),
    ),
)
KIND = kind_of(OFFERED, PROFILE)


def lowered(spec: object) -> Json:
    """Return the lower spec of an object in namespace shop."""
    found = KIND.spec(spec, "spec")
    origin = Origin(
        profile=PROFILE, namespace="shop", upper={}, lower={}, status={}, namespaces=lambda _: pytest.fail("not asked")
    )
    KIND.translate(found, origin)
    return found


def test_a_written_secret_has_a_name_that_no_copied_one_has() -> None:
    """VCP-53: the same name inside is another Secret; what is no name of a Secret is refused, and not looked for."""
    offered = Offered(OFFERED.resource, (OfferedPlace("spec.issued", PlaceUse.WRITTEN), *OFFERED.places))
    kind, names = kind_of(offered, PROFILE), written(offered)

    def down(value: str) -> Json:
        found = kind.spec({"issued": value, "secretName": value}, "spec")
        origin = Origin(profile=PROFILE, namespace="shop", upper={}, lower={}, status={}, namespaces=lambda _: ())
        kind.translate(found, origin)
        return found

    found = down("web-kubeconfig")
    assert found["issued"] == PROFILE.lower_name("WrittenSecret", "shop", "web-kubeconfig")
    assert len({found["issued"], found["secretName"], "web-kubeconfig"}) == 3
    thing = things.thing("shop/a", 1, {"spec": {"issued": "web-kubeconfig", "secretName": "other"}})
    assert names(thing) == ["shop/web-kubeconfig"]
    for wrong in ("../../kube-system/secrets/x", "a/b", "-", "A", "a" * 254):
        with pytest.raises(NotTranslated, match=r"spec.issued must be the name of a Secret"):
            down(wrong)
        assert names(things.thing("shop/a", 1, {"spec": {"issued": wrong}})) == []


def test_listed_places_become_those_of_the_lower_side() -> None:
    rule = {"service": {"name": "web", "port": 80}, "selector": {"matchLabels": {"app": "web"}, "junk": 1}}
    rules: list[object] = [rule, {"service": {}}, 7]
    found = lowered({"secretName": "key", "rules": rules, "anywhere": True, "size": 3, "no": None})
    own = {"key": "example.dev/owner", "operator": "In", "values": ["u-plane"]}
    here = {"key": "example.dev/namespace", "operator": "In", "values": ["shop"]}
    assert found == {
        "secretName": PROFILE.lower_name("Secret", "shop", "key"),
        "rules": [
            {
                "service": {"name": PROFILE.lower_name("Service", "shop", "web"), "port": 80},
                "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [own, here]},
            },
            {"service": {}},
            7,
        ],
        "size": 3,
    }


@pytest.mark.parametrize(
    "spec", [3, [], {"secretName": {"name": "of-another"}}, {"rules": [{"selector": "all"}]}, {"secretName": ["a"]}]
)
def test_other_types_in_listed_places_are_refused(spec: object) -> None:
    """A schema of users could let another type through, which the translation would miss."""
    with pytest.raises(NotTranslated, match="must be"):
        lowered(spec)


def test_a_place_is_found_whether_it_is_in_a_list_or_not() -> None:
    """Users may define the kind with a single object in place of a list: no name goes down as it is."""
    found = lowered({"rules": {"service": {"name": "web"}}})
    assert found["rules"]["service"]["name"] == PROFILE.lower_name("Service", "shop", "web")


def test_the_status_comes_up_in_the_words_of_the_upper_side() -> None:
    assert KIND.status is not None
    lower: Json = {
        "metadata": {"name": "mine-1", "annotations": {"example.dev/name": "mine"}},
        "status": {
            "parts": [{"handle": "vol-1", "phase": "Done", "observedGeneration": 3}],
            "message": "lower/mine-1 and mine-1 are done",
        },
    }
    assert KIND.status(lower) == {"parts": [{"phase": "Done"}], "message": "mine and mine are done"}
    assert KIND.status({}) == {}


def test_named_secrets_are_copied() -> None:
    value = {"metadata": {"name": "a", "namespace": "shop"}, "spec": {"secretName": "key"}}
    assert copied(OFFERED)(things.thing("shop/a", 1, value)) == ["Secret/shop/key"]
    assert copied(OFFERED)(things.thing("shop/a", 1, {**value, "spec": {"secretName": 3}})) == []

"""Requests as data: what reaches the API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api.errors import Conflict
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.engine import request
from tenantry.engine.request import ApiRequest, PatchType, Verb
from testkit.model import World

Json = dict[str, Any]

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONF: Json = {"metadata": {"name": "conf", "namespace": "acme"}, "data": {"a": "1"}}


def where(asked: ApiRequest) -> tuple[str, str, str, str]:
    return asked.resource.full_name, asked.namespace, asked.name, asked.subresource


def test_finalizers_replace_the_list_that_was_read() -> None:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": "acme", "finalizers": ["example.com/a"]}})
    seen = msgspec.convert(world.get(Namespace.resource, "acme"), Namespace)
    world.answer(request.finalizers(seen, ("example.com/a", "example.com/b")))
    assert world.get(Namespace.resource, "acme")["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]
    with pytest.raises(Conflict):
        world.answer(request.finalizers(seen, ()))


def test_objects_given_as_json_are_created_replaced_and_applied() -> None:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": "acme"}})
    created = request.create_json(CONFIG_MAPS, CONF)
    assert (created.verb, where(created)) == (Verb.CREATE, ("configmaps", "acme", "conf", ""))
    world.answer(created)
    found = world.get(CONFIG_MAPS, "acme/conf")
    assert (found["apiVersion"], found["kind"], found["data"]) == ("v1", "ConfigMap", {"a": "1"})
    world.answer(request.replace_json(CONFIG_MAPS, {**found, "data": {"b": "2"}}))
    assert world.get(CONFIG_MAPS, "acme/conf")["data"] == {"b": "2"}
    with pytest.raises(Conflict):
        world.answer(request.replace_json(CONFIG_MAPS, found))
    applied = request.apply(CONFIG_MAPS, CONF)
    assert (applied.verb, applied.patch_type, where(applied)) == (Verb.PATCH, PatchType.APPLY, where(created))
    assert CONF.keys() == {"metadata", "data"}, "the caller's object is not changed"


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    asked = request.create_json(Namespace.resource, {"metadata": {"name": "acme"}})
    assert where(asked) == ("namespaces", "", "acme", "")


@pytest.mark.parametrize(
    ("more", "spec"),
    [
        ({}, {"expirationSeconds": 600}),
        ({"audience": "vault"}, {"expirationSeconds": 600, "audiences": ["vault"]}),
        (
            {"pod": ("web-1", "u1")},
            {
                "expirationSeconds": 600,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "u1"},
            },
        ),
    ],
)
def test_a_token_is_asked_of_the_service_account(more: Json, spec: Json) -> None:
    asked = request.token(ACCOUNTS, "acme", "web", seconds=600, **more)
    assert (asked.verb, where(asked)) == (Verb.CREATE, ("serviceaccounts", "acme", "web", "token"))
    assert asked.body == {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}

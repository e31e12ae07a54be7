"""The datastore of a VirtualControlPlane, from its spec and a Secret: pure."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.errors import TerminalError
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import (
    DatastoreKind,
    DatastoreSecret,
    PlaneDatastore,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
)
from tenantry.controllers.virtualcontrolplane import datastore
from tenantry.hosting.stores import HostedStore, SqlDriver, StoreKind

VALUES = {"driver": "mysql", "address": "/run/m.sock", "database": "web_1", "user": "web", "password": "secret-word"}


def plane(kind: DatastoreKind, secret: str = "") -> VirtualControlPlane:
    """Return a control plane with a datastore."""
    given = PlaneDatastore(kind=kind, secret_ref=DatastoreSecret(name=secret)) if secret else PlaneDatastore(kind=kind)
    return VirtualControlPlane(metadata=ObjectMeta(name="web"), spec=VirtualControlPlaneSpec(datastore=given))


def secret(**changes: str | None) -> dict[str, Any]:
    """Return the Secret of a SQL server."""
    values = {key: value for key, value in {**VALUES, **changes}.items() if value is not None}
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}


def test_only_external_has_a_secret() -> None:
    """H02: the Secret of an object of another kind, as an earlier schema may have let in, is not read."""
    for kind in DatastoreKind:
        assert datastore.secret_of(plane(kind, "db")) == ("db" if kind is DatastoreKind.EXTERNAL else "")
        assert datastore.secret_of(plane(kind)) == ""
    assert datastore.store_of(plane(DatastoreKind.SQLITE), None) == HostedStore()
    assert datastore.store_of(plane(DatastoreKind.SHARED_ETCD), None) == HostedStore(kind=StoreKind.SHARED_ETCD)
    assert datastore.store_of(plane(DatastoreKind.OWN_ETCD), None) == HostedStore(kind=StoreKind.OWN_ETCD)


def test_a_secret_names_a_server() -> None:
    found = datastore.store_of(plane(DatastoreKind.EXTERNAL, "db"), secret()).sql
    assert found is not None
    assert (found.driver, found.address, found.database) == (SqlDriver.MYSQL, "/run/m.sock", "web_1")
    assert (found.user, found.password) == ("web", "secret-word")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "does not exist"),
        ({}, "must have the keys"),
        ({"data": {"driver": "!"}}, "must have the keys"),
        ({"data": {"driver": 1}}, "must have the keys"),
        ({"data": {"driver": "/w=="}}, "must have the keys"),
        (secret(driver="oracle"), "must have the keys"),
        (secret(password=None), "password"),
        (secret(database="Web"), "lower-case"),
        (secret(database="web; DROP TABLE kine"), "lower-case"),
        (secret(database="web`"), "lower-case"),
    ],
)
def test_what_is_no_server_is_refused(given: dict[str, Any] | None, words: str) -> None:
    """H02: the message names the Secret, and not what is in it."""
    with pytest.raises(TerminalError, match=words) as raised:
        datastore.store_of(plane(DatastoreKind.EXTERNAL, "db"), given)
    assert raised.value.reason == reasons.INVALID_SPEC
    assert "Secret 'db' in namespace 'tenantry-system'" in str(raised.value)
    assert "secret-word" not in str(raised.value)

"""What of an object, and which events, a support bundle has, and that it is written whatever cannot be read."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tenantry.api.errors import ConfigError, InputError, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.cli import session
from tenantry.cli.support import support_bundle
from tenantry.engine.lease import NAME, Lease
from tenantry.views import support
from testkit.treeworld import world_of
from testkit.worldclient import AnsweredClient

ANSWERS: dict[str, bytes | TenantryError] = {
    "/version": b'{"gitVersion": "v1.36.0"}',
    "/apis/admissionregistration.k8s.io": ConfigError("the API server has no validating policies"),
}


@pytest.fixture
def collect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Result]:
    """Return a function that writes a bundle of a cluster with the tenant acme, in which no operator leads."""
    world = world_of()
    # A benchmark that has died is no operator.
    metadata = {"name": NAME, "namespace": "tenantry-system"}
    world.put_in(Namespace.resource, {"metadata": {"name": "tenantry-system"}})
    world.put_in(Lease.resource, {"metadata": metadata, "spec": {"holderIdentity": "bench_1"}})

    def run(_target: object, todo: Callable[[AnsweredClient], Any], **_options: object) -> object:
        return asyncio.run(todo(AnsweredClient(world, ANSWERS)))

    def call(path: Path) -> Result:
        monkeypatch.setattr(session, "run", run)
        return CliRunner().invoke(support_bundle, ["--kubeconfig", "nowhere", "--file", str(path)])

    return call


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        streams = {each.name.removeprefix("tenantry-support/"): archive.extractfile(each) for each in archive}
        return {name: stream.read().decode() for name, stream in streams.items() if stream is not None}


def test_a_cluster_without_a_leader_has_a_bundle(collect: Callable[[Path], Result], tmp_path: Path) -> None:
    """The command does not wait for one, and any of our errors is a line in problems.txt."""
    done = collect(tmp_path / "bundle.tar.gz")
    assert done.exit_code == 1
    found = contents(tmp_path / "bundle.tar.gz")
    assert '"name": "acme"' in found["objects/tenants.json"]
    assert "metrics.txt" not in found
    assert "metrics.txt: no operator holds the lease tenantry-system/tenantry-operator; is one" in found["problems.txt"]
    assert "installation.txt: the API server has no validating policies" in found["problems.txt"]
    assert "not collected: metrics.txt: no operator holds" in done.stderr


def test_a_failed_write_leaves_no_file_and_a_retry_succeeds(
    collect: Callable[[Path], Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bundle.tar.gz"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(tarfile.TarFile, "addfile", full)
        done = collect(path)
    assert isinstance(done.exception, InputError)
    assert "cannot be written: No space left on device; name another file with --file" in str(done.exception)
    assert list(tmp_path.iterdir()) == []
    collect(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "objects/tenants.json" in contents(path)


def test_a_file_that_appears_meanwhile_is_kept(
    collect: Callable[[Path], Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bundle.tar.gz"
    monkeypatch.setattr(time, "time", lambda: path.write_bytes(b"other"))
    done = collect(path)
    assert isinstance(done.exception, InputError)
    assert "exists: name another file with --file" in str(done.exception)
    assert path.read_bytes() == b"other"
    assert list(tmp_path.iterdir()) == [path]


def test_the_copy_of_the_last_apply_is_left_out() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": '{"token":"x"}', "note": "y"}
    value = {"metadata": {"name": "a", "managedFields": [1], "annotations": annotations}, "spec": {"b": 1}}
    assert support.bare(value) == {"metadata": {"name": "a", "annotations": {"note": "y"}}, "spec": {"b": 1}}
    # The object of the caller stays whole.
    assert "managedFields" in value["metadata"]


def test_events_of_other_workloads_stay_out() -> None:
    def event(version: str, namespace: str) -> dict[str, object]:
        return {"metadata": {"namespace": namespace}, "regarding": {"apiVersion": version, "kind": "X"}}

    assert support.concerns(event("tenantry.dev/v1alpha1", "acme"))
    assert support.concerns(event("v1", "tenantry-system"))
    assert not support.concerns(event("v1", "acme"))
    assert not support.concerns(event("tenantry.dev.evil.example/v1", "acme"))
    assert not support.concerns({"metadata": {"namespace": "acme"}})


def test_the_newest_of_many_events_are_kept() -> None:
    """A tenant writes as many as it likes."""
    events = [
        {"metadata": {"name": str(each), "resourceVersion": str(each)}} for each in range(2 * support.MOST_EVENTS)
    ]
    random.Random(3).shuffle(events)
    found = support.newest(events)
    assert len(found) == support.MOST_EVENTS
    assert {int(each["metadata"]["name"]) for each in found} == {*range(support.MOST_EVENTS, 2 * support.MOST_EVENTS)}


def test_the_files_are_plain_text() -> None:
    """`cat` of a file must not obey what a tenant wrote into an annotation."""
    text = support.json_text([{"note": "\x9b2J\u202e\x1b[8m"}])
    assert text.isascii()
    assert b"\x1b" not in text
    assert msgspec.json.decode(text) == [{"note": "\x9b2J\u202e\x1b[8m"}]

"""What the commands about control planes refuse and print, and what a refusal leaves behind (E15, H01, H02)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from tenantry.api import reasons
from tenantry.api.errors import InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, VirtualControlPlane
from tenantry.cli import session
from tenantry.cli.delete import losses
from tenantry.cli.target import Target
from tenantry.cli.tenant import tenant
from tenantry.cli.vcp import vcp
from tenantry.controllers.conversion import objects
from tenantry.controllers.virtualcontrolplane.desired import SECRETS
from testkit.model import World
from testkit.treeworld import settle, world_of
from testkit.upgradeworld import Workshop
from testkit.worldclient import OperatedClient, WorldClient

UNREAD = ("--kubeconfig", "nowhere")
"""A file that is not read, because a World answers the requests."""

PLANES = VirtualControlPlane.resource


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command with a client in place of a connection."""

    def call(client: WorldClient, *words: str, group: click.Group = vcp) -> Result:
        def work(_target: object, todo: Callable[[WorldClient], Any], **_options: object) -> object:
            return asyncio.run(todo(client))

        monkeypatch.setattr(session, "run", work)
        place = ("-n", "acme") if group is vcp and "-n" not in words and "-A" not in words else ()
        return CliRunner().invoke(group, [words[0], *UNREAD, *place, *words[1:]])

    return call


def settled() -> World:
    """Return the tenant acme, whose namespace the operator has made."""
    world = world_of()
    settle(world)
    return world


def never_started() -> World:
    """Return a tenant's namespace with a control plane that has no room in the quota."""
    world = world_of()
    meta = ObjectMeta(name="web", namespace="acme", generation=1)
    world.create(VirtualControlPlane(metadata=meta))
    ready = Condition(
        type=reasons.READY,
        status=ConditionStatus.FALSE,
        reason=reasons.QUOTA_INSUFFICIENT,
        message="requests.cpu: 50m requested, 10m available",
        observed_generation=1,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    status = {"phase": "Starting", "conditions": [ready]}
    world.patch(PLANES, "acme/web", {"status": msgspec.to_builtins(status)})
    return world


@pytest.mark.parametrize(
    "words",
    [
        ("snapshot", "web"),
        ("restore", "web", "--from", "some.snapshot", "--yes"),
        ("rotate", "web", "--yes"),
        ("upgrade", "web", "--yes"),
        ("sleep", "web"),
        ("wake", "web"),
    ],
)
def test_a_control_plane_that_never_started_is_refused_with_the_reason(
    run: Callable[..., Result], words: tuple[str, ...]
) -> None:
    """H01: it handles no requests, so that a command would only wait for its deadline."""
    world = never_started()
    before = world.get(PLANES, "acme/web")
    done = run(WorldClient(world, lambda: "none"), *words, "--timeout", "0s")
    assert isinstance(done.exception, InputError)
    assert "has not started yet: QuotaInsufficient: requests.cpu: 50m requested" in str(done.exception)
    assert "wait with `tenantry vcp wait web -n acme`" in str(done.exception)
    assert world.get(PLANES, "acme/web") == before


@pytest.mark.parametrize("words", [("snapshot", "web"), ("kubeconfig", "web")])
def test_a_control_plane_that_objects_move_into_is_refused_with_the_reason(
    run: Callable[..., Result], words: tuple[str, ...]
) -> None:
    """H01: it is Ready, so that `vcp wait` would return at once and lead back here."""
    world = never_started()
    ready = world.get(PLANES, "acme/web")["status"]["conditions"][0] | {"status": "True", "reason": reasons.ESTABLISHED}
    world.patch(PLANES, "acme/web", {"status": {"conditions": [ready]}})
    done = run(WorldClient(world, lambda: "none"), *words)
    assert isinstance(done.exception, InputError)
    assert "has no kubeconfig until the objects of its namespace are inside" in str(done.exception)


@pytest.mark.parametrize("place", ["acme", KUBECONFIGS_NAMESPACE])
def test_a_kubeconfig_is_read_where_the_status_says(run: Callable[..., Result], place: str) -> None:
    """H01: that of a Tenant or Subnamespace is in another namespace than its control plane."""
    world = never_started()
    named = {"kubeconfigSecret": "s", **({"kubeconfigNamespace": place} if place != "acme" else {})}
    world.patch(PLANES, "acme/web", {"status": named})
    world.put_in(Namespace.resource, {"metadata": {"name": KUBECONFIGS_NAMESPACE}})
    world.put_in(SECRETS, {"metadata": {"name": "other", "namespace": "acme"}})
    client = WorldClient(world, lambda: "none")
    missing = run(client, "kubeconfig", "web").exception
    assert isinstance(missing, NotFound)
    assert f"names Secret 's' of namespace {place!r}, which is gone" in str(missing)
    data = {KUBECONFIG_KEY: base64.b64encode(b"users: []").decode()}
    world.put_in(SECRETS, {"metadata": {"name": "s", "namespace": place}, "data": data})
    assert run(client, "kubeconfig", "web").output == "users: []\n"
    told = run(client, "describe", "web").output
    assert ("Secret s of namespace tenantry-kubeconfigs" in told) is (place != "acme")


@pytest.mark.parametrize(
    "words", [("snapshot", "web"), ("restore", "web", "--from", "a", "--yes"), ("rotate", "web", "--yes")]
)
def test_a_control_plane_that_cannot_wake_ends_the_wait(run: Callable[..., Result], words: tuple[str, ...]) -> None:
    """H01: it slept, and there is no room in the quota for its process; the deadline does not matter."""
    world = never_started()
    world.patch(PLANES, "acme/web", {"status": {"kubeconfigSecret": "web-kubeconfig"}})

    def report() -> None:
        found = msgspec.convert(world.get(PLANES, "acme/web"), VirtualControlPlane)
        (ready,) = found.status.conditions
        now = msgspec.structs.replace(ready, observed_generation=found.metadata.generation)
        world.patch(PLANES, "acme/web", {"status": {"conditions": [msgspec.to_builtins(now)]}})

    done = run(OperatedClient(world, report), *words, "--timeout", "1h")
    assert isinstance(done.exception, TenantryError)
    assert "cannot wake: requests.cpu: 50m requested, 10m available; try again" in str(done.exception)


def test_a_snapshot_is_not_taken_without_a_folder_for_its_copy(run: Callable[..., Result], tmp_path: Path) -> None:
    """H02: it would be kept, and its name would be lost with the error."""
    world = never_started()
    done = run(WorldClient(world, lambda: "none"), "snapshot", "web", "--to", str(tmp_path / "absent" / "web.snapshot"))
    assert isinstance(done.exception, InputError)
    assert f'no file can be created in "{tmp_path}/absent"' in str(done.exception)


def test_a_file_without_a_folder_is_not_taken_for_a_name(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H02: a snapshot in the current folder; one with the name of a snapshot is meant by its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.snapshot").touch()
    (tmp_path / "20260101T000000Z-1.snapshot").touch()
    client = WorldClient(never_started(), lambda: "none")
    done = run(client, "restore", "web", "--from", "web.snapshot", "--yes")
    assert 'write "./web.snapshot" to restore it' in str(done.exception)
    done = run(client, "restore", "web", "--from", "20260101T000000Z-1.snapshot", "--yes")
    assert "has not started yet" in str(done.exception)


def running(version: str) -> Workshop:
    """Return a control plane that has been usable with a version."""
    workshop = Workshop(version)
    workshop.settle()
    workshop.world.patch(PLANES, "acme/web", {"status": {"kubeconfigSecret": "web-kubeconfig"}})
    return workshop


def test_a_refused_restore_of_an_earlier_version_leaves_the_version(run: Callable[..., Result]) -> None:
    """H02: with the earlier version in the spec, each later restore would be one to that version."""
    workshop = running("1.36")
    client = OperatedClient(workshop.world, workshop.settle)
    name = asyncio.run(workshop.forge.take("uid")).name
    refused = run(client, "restore", "web", "--from", name, "--version", "1.35", "--yes")
    assert isinstance(refused.exception, TenantryError)
    assert "the snapshot is of Kubernetes 1.36.3" in str(refused.exception)
    assert workshop.get().spec.version == "1.36"
    assert "spec.version" not in workshop.told()[1]
    again = run(client, "restore", "web", "--from", name, "--yes", "--timeout", "0s")
    assert workshop.get().status.last_restore.snapshot == name, again.output


class BusyClient(OperatedClient):
    """Another client writes the object between each first read and the write that depends on it."""

    busy = True

    async def request(self, method: str, path: str, **options: Any) -> bytes:  # noqa: ANN401 - as `Client.request`
        """Answer a request; see `Client.request`."""
        if self.busy and b"resourceVersion" in (options.get("body") or b""):
            self.busy = False
            self._world.patch(PLANES, "acme/web", {"metadata": {"labels": {"other": "client"}}})
        return await super().request(method, path, **options)


def test_the_version_is_set_back_while_others_write(run: Callable[..., Result]) -> None:
    """H02: the operator writes the status at the same time."""
    workshop = running("1.36")
    client = BusyClient(workshop.world, workshop.settle)
    words = ("restore", "web", "--from", "20260101T000000Z-1.snapshot", "--version", "1.35", "--yes")
    assert "there is no snapshot" in str(run(client, *words).exception)
    assert not client.busy
    assert workshop.get().spec.version == "1.36"
    assert workshop.get().metadata.labels == {"other": "client"}


def test_a_restore_corrects_an_earlier_version_that_another_one_has_left(run: Callable[..., Result]) -> None:
    """H02: a restore whose command was ended may leave an earlier version, which would be part of the next."""
    workshop = running("1.36")
    name = asyncio.run(workshop.forge.take("uid")).name
    workshop.change("1.35", restore="absent.snapshot")
    workshop.settle()
    run(OperatedClient(workshop.world, workshop.settle), "restore", "web", "--from", name, "--yes", "--timeout", "0s")
    assert workshop.get().status.last_restore.snapshot == name
    assert workshop.get().spec.version == "1.36"


@pytest.mark.parametrize(
    ("version", "said"), [("1.36", "a restore only goes back"), ("1.2", "is not a version of Kubernetes")]
)
def test_a_restore_refuses_a_version_that_is_not_earlier(run: Callable[..., Result], version: str, said: str) -> None:
    """H02: the refused restore would be followed by an upgrade."""
    workshop = running("1.35")
    name = asyncio.run(workshop.forge.take("uid")).name
    client = OperatedClient(workshop.world, workshop.settle)
    done = run(client, "restore", "web", "--from", name, "--version", version, "--yes")
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
    assert workshop.get().spec.version == "1.35"
    assert workshop.get().spec.snapshots.restore == ""


def refused(run: Callable[..., Result], world: World, *words: str) -> str:
    """Return the message of a command that changes nothing."""
    before = world.revision
    done = run(WorldClient(world, lambda: "none"), *words)
    assert isinstance(done.exception, TenantryError), done.output
    assert world.revision == before
    return str(done.exception)


def test_a_control_plane_is_created_in_a_namespace_of_a_tenant_only(run: Callable[..., Result]) -> None:
    """H01: the operator would start nothing there, and the object would stay."""
    world = settled()
    world.put_in(Namespace.resource, {"metadata": {"name": "kube-system"}})
    assert "the namespace 'kube-system' belongs to no tenant" in refused(run, world, "create", "x", "-n", "kube-system")
    assert "not found" in refused(run, world, "create", "x", "-n", "absent")
    assert run(WorldClient(world, lambda: "none"), "create", "x", "--no-wait").exit_code == 0
    assert world.get(PLANES, "acme/x")


def test_a_name_that_is_taken_is_refused_in_one_sentence(run: Callable[..., Result]) -> None:
    """E15: what to do is part of it."""
    world = settled()
    world.create(VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme")))
    assert refused(run, world, "create", "web") == (
        "virtualcontrolplane.tenantry.dev/web in 'acme' exists already; choose another name, or see it with"
        " `tenantry vcp describe web -n acme`"
    )


@pytest.mark.parametrize("name", ["Web_x", "web.x", "-web", "a" * 41])
def test_a_wrong_name_is_refused_in_one_sentence(run: Callable[..., Result], name: str) -> None:
    """E15: the API server checks a name twice, and reports both."""
    assert refused(run, settled(), "create", "--no-wait", "--", name) == (
        f"VirtualControlPlane {name!r}: metadata.name must be a DNS label of at most 40 lower-case letters, digits"
        " and -, and begin and end with a letter or a digit"
    )


def test_wait_takes_all_control_planes(run: Callable[..., Result]) -> None:
    """E15: as `tenantry wait vcp --all` does."""
    world = never_started()
    done = run(WorldClient(world, lambda: "none"), "wait", "--all", "--for", "condition=Ready=False")
    assert done.exception is None, done.output
    assert "virtualcontrolplane.tenantry.dev/web in 'acme' condition met" in done.stderr
    nothing = run(WorldClient(world, lambda: "none"), "wait")
    assert "give either names of virtualcontrolplanes or --all" in str(nothing.exception)


def test_an_empty_plan_of_a_conversion_is_a_sentence(run: Callable[..., Result]) -> None:
    """H01: a table without lines looks like a failure."""
    world = settled()
    world.put_in(Namespace.resource, {"metadata": {"name": "elsewhere"}})
    for each in objects.EVERY:
        # A World serves the kinds of its objects.
        world.put_in(each, {"metadata": {"name": "other", "namespace": "elsewhere"}})
    done = run(WorldClient(world, lambda: "none"), "convert", "acme", "--dry-run", group=tenant)
    assert done.exception is None, done.output
    assert done.stdout == ""
    assert "tenant.tenantry.dev/acme can be converted: it has no objects that have to move" in done.stderr


def described(world: World, run: Callable[..., Result]) -> list[str]:
    """Return the lines of `tenantry vcp describe web`."""
    done = run(WorldClient(world, lambda: "none"), "describe", "web")
    assert done.exception is None, done.output
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_the_page_of_a_control_plane(run: Callable[..., Result]) -> None:
    """E15: what a person asks first, in words instead of fields."""
    world = never_started()
    failed = {"requested": "a", "time": "2026-01-01T00:00:00Z", "message": "the disk is full"}
    upgraded = {"before": "1.35.4", "after": "1.36.3", "snapshot": "old.snapshot", "time": "2026-01-01T00:00:00Z"}
    status = {
        "phase": "Asleep",
        "nextWake": "2000-01-01T00:00:00Z",
        "version": "1.36.3",
        "endpoint": "https://127.0.0.1:1",
        "kubeconfigSecret": "web-kubeconfig",
        "snapshots": [{"name": "kept.snapshot", "time": "2026-01-01T00:00:00Z", "revision": 7, "size": 23718}],
        "lastSnapshot": failed,
        "lastUpgrade": upgraded,
    }
    spec = {"snapshots": {"schedule": "30 2 * * *"}, "sleep": {"workloads": "Delete"}}
    world.patch(PLANES, "acme/web", {"spec": spec, "status": status})
    lines = described(world, run)
    for wanted in (
        "Namespace: acme",
        "Phase: Asleep",
        "Kubernetes: 1.36.3",
        "Endpoint: https://127.0.0.1:1",
        "Kubeconfig: Secret web-kubeconfig",
        "Sleeps: after 10m without a request; its pods are deleted",
        "Snapshots: at '30 2 * * *' (UTC); 5 are kept",
    ):
        assert wanted in lines
    text = "\n".join(lines)
    assert "Wakes: with the next connection, at the latest now" in text
    assert "QuotaInsufficient requests.cpu: 50m requested" in text
    assert "failed: the disk is full" in text
    assert "from 1.35.4 to 1.36.3 is not complete; snapshot old.snapshot" in text
    assert any(line.startswith("kept.snapshot ") and line.endswith(" 23718") for line in lines)


def test_the_page_of_a_control_plane_that_never_started(run: Callable[..., Result]) -> None:
    """E15: what is missing is a word, not an empty field."""
    lines = described(never_started(), run)
    for wanted in ("Phase: Starting", "Kubernetes: not started yet", "Endpoint: none yet", "Kubeconfig: none yet"):
        assert wanted in lines


def test_the_page_names_what_the_quota_limits_and_how_it_sleeps(run: Callable[..., Result]) -> None:
    """E15: of the charge, the keys that the quota of the namespace has; several replicas never sleep by themselves."""
    world = never_started()
    quota = {"metadata": {"name": "tenantry-quota", "namespace": "acme"}, "status": {"hard": {"requests.cpu": "1"}}}
    world.put_in(ResourceQuota.resource, quota)
    world.patch(ResourceQuota.resource, "acme/tenantry-counts", {"status": {"hard": {"limits.memory": "1"}}})
    charged = {"limits.memory": "256Mi", "requests.cpu": "50m"}
    rotated = {"time": "2026-01-01T00:00:00Z", "users": 1}
    spec = {"replicas": 2, "datastore": {"kind": "OwnEtcd"}}
    world.patch(PLANES, "acme/web", {"spec": spec, "status": {"charged": charged, "lastRotation": rotated}})
    lines = described(world, run)
    assert "Charged to the quota: requests.cpu=50m" in lines
    assert "Sleeps: on request, because it has several replicas" in lines
    assert any(each.endswith("credentials of users replaced by the operator") for each in lines)


def test_a_page_of_what_does_not_exist_says_so_like_the_other_commands(run: Callable[..., Result]) -> None:
    """E15: the same words, which name the command that lists all."""
    told = refused(run, settled(), "describe", "absent")
    assert told == refused(run, settled(), "sleep", "absent")
    assert told.endswith("does not exist; `tenantry get virtualcontrolplanes -n acme` lists all")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--version", "next"), "spec.version must be a minor version, as in 1.36; it is 'next'"),
        (("--replicas", "2"), "spec.replicas must be 1, unless the datastore is SharedEtcd, OwnEtcd or External"),
    ],
)
def test_a_dry_run_refuses_what_the_creation_refuses(
    run: Callable[..., Result], words: tuple[str, ...], said: str
) -> None:
    """E15."""
    assert said in refused(run, settled(), "create", "web", "--dry-run", *words)
    assert said in refused(run, settled(), "create", "web", *words)


def test_a_dry_run_refuses_a_version_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """E15: a local cluster has the versions of this installation."""

    def local(_context: click.Context) -> Target:
        return Target(local_name="default")

    monkeypatch.setattr("tenantry.cli.target.named", local)
    done = CliRunner().invoke(vcp, ["create", "web", "-n", "acme", "--version", "1.99", "--dry-run"])
    assert isinstance(done.exception, InputError)
    assert "1.99" in str(done.exception)


def test_a_dry_run_prints_only_what_was_chosen(run: Callable[..., Result]) -> None:
    """E15: an empty field looks like a mistake."""
    client = WorldClient(settled(), lambda: "none")
    assert "datastore" not in run(client, "create", "web", "--dry-run").stdout
    assert "kind: OwnEtcd" in run(client, "create", "web", "--dry-run", "--datastore", "OwnEtcd").stdout


def test_an_upgrade_asks_because_it_ends_connections(run: Callable[..., Result]) -> None:
    """H02: as a rotation and a restore do."""
    workshop = running("1.35")
    told = refused(run, workshop.world, "upgrade", "web")
    assert told == "this needs a confirmation, and stdin is not a terminal; confirm with --yes"
    done = run(OperatedClient(workshop.world, workshop.settle), "upgrade", "web", "--yes", "--timeout", "0s")
    assert workshop.get().spec.version == "1.36", done.output


def test_a_deletion_without_a_wait_names_the_command_that_waits(run: Callable[..., Result]) -> None:
    """E15: a command that can be copied."""
    done = run(WorldClient(never_started(), lambda: "none"), "delete", "web", "--yes", "--no-wait")
    assert "`tenantry wait virtualcontrolplane web -n acme --for deleted` waits until it is complete" in done.stderr


def test_the_deletion_of_a_tenant_names_its_control_planes() -> None:
    """H01: everything in them is lost, too."""
    client = WorldClient(never_started(), lambda: "none")

    async def told() -> str:
        return await losses(client, await client.get(Tenant, "acme"))

    assert "control plane web with all objects inside" in asyncio.run(told())

"""`tenantry cluster` creates, changes, prints and refuses clusters (H04)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tenantry.api.dedicatedcluster import DedicatedCluster, DedicatedClusterSpec, NodePool
from tenantry.api.errors import ConfigError, InputError, LocalError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, VirtualControlPlane
from tenantry.cli import session
from tenantry.cli.cluster import place
from tenantry.cli.cluster.group import cluster
from tenantry.cli.local.up import up
from tenantry.controllers.virtualcontrolplane.desired import SECRETS
from tenantry.local.cluster import LocalCluster
from tenantry.local.spec import ClusterSpec, Ports, write_spec
from testkit.model import World
from testkit.treeworld import settle, world_of
from testkit.worldclient import WorldClient

UNREAD = ("--kubeconfig", "nowhere")
"""A file that is not read, because a World answers the requests."""

CLUSTERS = DedicatedCluster.resource
KUBECONFIG = "contexts: [{context: {}, name: web}]\ncurrent-context: web\n"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command with a client in place of a connection."""

    def call(world: World, *words: str) -> Result:
        def work(_target: object, todo: Callable[[WorldClient], Any], **_options: object) -> object:
            return asyncio.run(todo(WorldClient(world, lambda: "none")))

        monkeypatch.setattr(session, "run", work)
        return CliRunner().invoke(cluster, [words[0], *UNREAD, *words[1:]])

    return call


def tenant_world(*found: DedicatedCluster) -> World:
    """Return the tenant acme, whose namespace the operator has made, with clusters."""
    world = world_of()
    settle(world)
    for each in found:
        world.create(each)
    return world


def made(*pools: NodePool, name: str = "acme", nodes: int = 1) -> DedicatedCluster:
    """Return a cluster in the namespace acme."""
    meta = ObjectMeta(name=name, namespace="acme", generation=1)
    return DedicatedCluster(metadata=meta, spec=DedicatedClusterSpec(nodes=nodes, pools=pools))


def test_a_cluster_is_created_in_the_namespace_of_its_tenant(run: Callable[..., Result]) -> None:
    """H04: without -n, that of the tenant with its name."""
    world = tenant_world()
    done = run(world, "create", "acme", "--nodes", "2", "--version", "1.36")
    assert done.exception is None, done.output
    assert world.get(CLUSTERS, "acme/acme")["spec"] == {"version": "1.36", "nodes": 2}
    assert "dedicatedcluster.tenantry.dev/acme in 'acme' created" in done.stderr
    again = run(world, "create", "acme")
    assert isinstance(again.exception, InputError)
    assert "see it with `tenantry cluster describe acme -n acme`" in str(again.exception)


def test_a_namespace_of_no_tenant_is_refused(run: Callable[..., Result]) -> None:
    """H04: the operator would start nothing there."""
    world = tenant_world()
    world.put_in(Namespace.resource, {"metadata": {"name": "shop"}})
    done = run(world, "create", "shop")
    assert isinstance(done.exception, InputError)
    assert "the namespace 'shop' belongs to no tenant: create the cluster in a tenant's namespace" in str(
        done.exception
    )
    assert [each["metadata"]["name"] for each in world.list(Tenant.resource)] == ["acme"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("create", "A"), "metadata.name must be a DNS label of at most 30"),
        (("create", "a" * 31), "metadata.name must be a DNS label of at most 30"),
        (("create", "acme", "--version", "1"), "spec.version must be a minor version, as in 1.36; it is '1'"),
        (("scale", "acme", "--nodes", "2", "--pool", "gpu"), "--pool 'gpu' is not a pool of the cluster"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(
    run: Callable[..., Result], words: tuple[str, ...], told: str
) -> None:
    """H04: exit code 2."""
    world = tenant_world(made())
    before = world.revision
    done = run(world, *words)
    assert isinstance(done.exception, InputError)
    assert told in str(done.exception)
    assert world.revision == before


def test_a_dry_run_prints_the_object_and_asks_no_cluster(run: Callable[..., Result]) -> None:
    """H04: for Git."""
    done = run(World(), "create", "prod", "-n", "acme", "--nodes", "3", "--dry-run", "-o", "json")
    assert msgspec.json.decode(done.stdout) == {
        "apiVersion": "tenantry.dev/v1alpha1",
        "kind": "DedicatedCluster",
        "metadata": {"name": "prod", "namespace": "acme"},
        "spec": {"nodes": 3},
    }


def test_scale_changes_one_pool_and_keeps_the_others(run: Callable[..., Result]) -> None:
    """H04: the default one without --pool."""
    world = tenant_world(made(NodePool(name="gpu", count=1, labels={"a": "b"}), NodePool(name="big", count=2)))
    assert run(world, "scale", "acme", "--nodes", "4").exception is None
    done = run(world, "scale", "acme", "--pool", "gpu", "--nodes", "0", "-o", "json")
    spec = world.get(CLUSTERS, "acme/acme")["spec"]
    assert spec["nodes"] == 4
    assert spec["pools"] == [{"name": "gpu", "count": 0, "labels": {"a": "b"}}, {"name": "big", "count": 2}]
    assert msgspec.json.decode(done.stdout)["spec"]["pools"] == spec["pools"]


def test_a_kubeconfig_is_that_of_its_control_plane_with_the_name_of_the_cluster(run: Callable[..., Result]) -> None:
    """H04: one that has not started yet says so, and so does a cluster that does not exist."""
    world = tenant_world(made(name="web"))
    missing = run(world, "kubeconfig", "shop", "-n", "acme").exception
    assert isinstance(missing, NotFound)
    assert "dedicatedcluster.tenantry.dev/shop" in str(missing)
    world.create(VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme", generation=1)))
    early = run(world, "kubeconfig", "web", "-n", "acme").exception
    assert isinstance(early, InputError)
    assert "has not started yet" in str(early)
    world.patch(VirtualControlPlane.resource, "acme/web", {"status": {"kubeconfigSecret": "s"}})
    data = {KUBECONFIG_KEY: base64.b64encode(KUBECONFIG.encode()).decode()}
    world.put_in(SECRETS, {"metadata": {"name": "s", "namespace": "acme"}, "data": data})
    done = run(world, "kubeconfig", "web", "-n", "acme", "-o", "json")
    assert msgspec.json.decode(done.stdout)["current-context"] == "web"


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_a_cluster_that_never_started_does_not_sleep(run: Callable[..., Result], verb: str) -> None:
    """H04: it handles no requests, so that the command would only wait for its deadline."""
    world = tenant_world(made())
    world.create(VirtualControlPlane(metadata=ObjectMeta(name="acme", namespace="acme", generation=1)))
    done = run(world, verb, "acme", "--timeout", "0s")
    assert isinstance(done.exception, InputError)
    assert "has not started yet" in str(done.exception)


def test_a_deletion_says_what_is_lost_and_prints_the_object(run: Callable[..., Result]) -> None:
    """H04: the objects inside, and not the nodes."""
    world = tenant_world(made())
    done = run(world, "delete", "acme", "--yes", "--no-wait", "-o", "json")
    assert "with all objects inside; its nodes return to the host" in done.stderr
    assert msgspec.json.decode(done.stdout)["metadata"]["name"] == "acme"
    assert world.list(CLUSTERS) == []


@pytest.mark.parametrize("form", ["json", "name", None])
def test_describe_prints_a_page_or_the_object(run: Callable[..., Result], form: str | None) -> None:
    """H04: -o as of `get`."""
    world = tenant_world(made())
    done = run(world, "describe", "acme", *(("-o", form) if form else ()))
    assert done.exception is None, done.output
    expected = {"json": '"kind": "DedicatedCluster"', "name": "dedicatedcluster.tenantry.dev/acme", None: "Pools:"}
    assert expected[form] in done.stdout


class NothingRuns:
    """A machine without a running cluster, on which `tenantry up` starts one.

    Args:
        monkeypatch: It replaces the environment of the command.
        root: The folder of local clusters.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        for name in ("KUBECONFIG", "TENANTRY_NAME", "KUBERNETES_SERVICE_HOST"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TENANTRY_HOME", str(root))
        self.started: list[dict[str, object]] = []

        def start(**options: object) -> None:
            self.started.append(options)

        monkeypatch.setattr(up, "callback", start)


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        ((), True),
        (("--cluster", "default"), True),
        (("--cluster", "other"), False),
        (("--context", "kind"), False),
    ],
)
def test_only_the_default_local_cluster_is_started(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    starts: bool,  # noqa: FBT001 - a parameter
) -> None:
    """H04: with one node more than the cluster has, because that many stay shared."""
    machine = NothingRuns(monkeypatch, tmp_path)
    done = CliRunner().invoke(cluster, ["create", "acme", "--nodes", "2", *words])
    # Nothing runs afterwards, because nothing was started.
    assert isinstance(done.exception, ConfigError | LocalError | TenantryError)
    assert [(each["name"], each["count"]) for each in machine.started] == ([("default", 3)] if starts else [])


@pytest.mark.parametrize("runtime", ["real", "kwok"])
def test_a_local_cluster_is_started_with_the_nodes_that_are_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str
) -> None:
    """H04: without a wait for them: the cluster of the tenant waits for its nodes itself."""
    machine = NothingRuns(monkeypatch, tmp_path)
    CliRunner().invoke(cluster, ["create", "acme", "--nodes", "2", "--runtime", runtime])
    assert [(each["runtime"], each["count"], each["waits"]) for each in machine.started] == [(runtime, 3, False)]


def test_a_stopped_local_cluster_keeps_its_kind_of_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """H04: it would otherwise start with simulated nodes, and the command promise real ones."""
    machine = NothingRuns(monkeypatch, tmp_path)
    local = LocalCluster()
    local.paths.folder.mkdir(parents=True)
    ports = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5, kwok=6, operator=7)
    write_spec(local.paths, ClusterSpec(name="default", ports=ports, binaries=""))
    done = CliRunner().invoke(cluster, ["create", "acme", "--runtime", "real"])
    assert isinstance(done.exception, InputError)
    assert "has simulated nodes already" in str(done.exception)
    assert machine.started == []


@pytest.mark.parametrize("variable", ["KUBECONFIG", "TENANTRY_NAME"])
def test_a_cluster_of_the_environment_is_never_replaced_by_a_local_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """H04: the user means another cluster."""
    machine = NothingRuns(monkeypatch, tmp_path)
    monkeypatch.setenv(variable, "other")
    done = CliRunner().invoke(cluster, ["create", "acme"])
    assert done.exception is not None
    assert machine.started == []


@pytest.mark.parametrize(
    ("user", "kind", "name"),
    [("ada", "User", "ada"), ("system:serviceaccount:ci:deployer", "ServiceAccount", "deployer")],
)
def test_the_caller_owns_a_tenant_that_is_created_on_the_way(user: str, kind: str, name: str) -> None:
    """H04: a pod that creates a cluster is a ServiceAccount."""
    owner = place.owner_of(user)
    assert (owner.kind.value, owner.name) == (kind, name)

"""`tenantry cluster` while the operator acts: restores to earlier versions, and pools that change (H04)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from tenantry.api.clustertemplate import ClusterTemplate, ClusterTemplateSpec
from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster, DedicatedClusterSpec, NodePool
from tenantry.api.errors import Conflict, InputError, NotFound, TenantryError
from tenantry.api.model import ObjectMeta
from tenantry.api.planesnapshots import ClusterUpgrade
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import planeupgrade, session
from tenantry.cli.cluster.group import cluster
from tenantry.hosting.obstacles import NodeFact, UpgradeFacts
from testkit.model import World
from testkit.treeworld import settle, world_of
from testkit.upgradeworld import Workshop
from testkit.worldclient import OperatedClient, WorldClient

CLUSTERS, PLANES = DedicatedCluster.resource, VirtualControlPlane.resource
Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command with a client in place of a connection."""

    def call(client: WorldClient, *words: str) -> Result:
        def work(_target: object, todo: Callable[[WorldClient], Any], **_options: object) -> object:
            return asyncio.run(todo(client))

        monkeypatch.setattr(session, "run", work)
        return CliRunner().invoke(cluster, [words[0], "--kubeconfig", "nowhere", "-n", "acme", *words[1:]])

    return call


def upgraded(version: str = "1.36", running: str = "1.36.3") -> tuple[Workshop, str]:
    """Return a cluster that its spec has upgraded from 1.35 to a version, and a snapshot of 1.35."""
    workshop = Workshop("1.35")
    workshop.settle()
    name = asyncio.run(workshop.forge.take("uid")).name
    meta = ObjectMeta(name="web", namespace="acme", generation=1)
    spec = DedicatedClusterSpec(version=version, nodes=0, upgrade=ClusterUpgrade(soak_seconds=0))
    workshop.world.create(DedicatedCluster(metadata=meta, spec=spec))
    made = workshop.world.get(CLUSTERS, "acme/web")
    owner = {
        "apiVersion": CLUSTERS.api_version,
        "kind": "DedicatedCluster",
        "name": "web",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    workshop.world.patch(PLANES, "acme/web", {"metadata": {"ownerReferences": [owner]}})
    workshop.world.patch(PLANES, "acme/web", {"status": {"kubeconfigSecret": "web-kubeconfig"}})
    workshop.settle()
    assert workshop.get().status.version == running
    return workshop, name


def test_a_cluster_goes_back_to_an_earlier_version(run: Run) -> None:
    """H04: the operator does not write the later version back, neither during the restore nor after it."""
    workshop, name = upgraded()
    client = OperatedClient(workshop.world, workshop.settle)
    done = run(client, "restore", "web", "--from", name, "--version", "1.35", "--yes", "--timeout", "0s")
    assert "dedicatedcluster.tenantry.dev/web in 'acme': all objects inside" in done.stderr
    workshop.settle()
    assert workshop.world.get(CLUSTERS, "acme/web")["spec"]["version"] == "1.35"
    found = workshop.get()
    assert found.status.last_restore.snapshot == name
    assert (found.spec.version, found.status.version) == ("1.35", "1.35.4")


def test_a_restore_that_is_refused_leaves_the_version(run: Run) -> None:
    """H04: of the cluster, and of its control plane: a later restore would go back to the earlier one, too."""
    workshop, _ = upgraded()
    client = OperatedClient(workshop.world, workshop.settle)
    absent = "20250101T000000Z-1.snapshot"
    done = run(client, "restore", "web", "--from", absent, "--version", "1.35", "--yes")
    assert "there is no snapshot" in str(done.exception), done.stderr
    workshop.settle()
    assert workshop.world.get(CLUSTERS, "acme/web")["spec"]["version"] == "1.36"
    found = workshop.get()
    assert (found.spec.version, found.status.version) == ("1.36", "1.36.3")


def test_messages_of_a_restore_name_the_cluster(run: Run) -> None:
    """H04: and the commands about it."""
    workshop, _ = upgraded("1.35", "1.35.4")
    client = OperatedClient(workshop.world, workshop.settle)
    later = run(client, "restore", "web", "--from", "a.snapshot", "--version", "1.36", "--yes").exception
    assert "dedicatedcluster.tenantry.dev/web in 'acme' has Kubernetes 1.35.4" in str(later)
    assert "`tenantry cluster upgrade web -n acme`" in str(later)
    done = run(client, "restore", "web", "--from", "20250101T000000Z-1.snapshot", "--yes")
    assert str(done.exception).startswith("dedicatedcluster.tenantry.dev/web in 'acme': ")
    assert "virtualcontrolplane" not in done.stderr


# -- scale ----------------------------------------------------------------------------------------


def with_pools() -> World:
    """Return the tenant acme with a cluster that has two more pools."""
    world = world_of()
    settle(world)
    pools = (NodePool(name="gpu", count=1), NodePool(name="big", count=2))
    meta = ObjectMeta(name="web", namespace="acme", generation=1)
    world.create(DedicatedCluster(metadata=meta, spec=DedicatedClusterSpec(pools=pools)))
    return world


class BusyOperator(WorldClient):
    """A client whose cluster's status changes between each read and the write that depends on it.

    Args:
        world: It has the objects.
        times: How often.
    """

    def __init__(self, world: World, times: int) -> None:
        super().__init__(world, lambda: "none")
        self.times = times

    async def request(self, method: str, path: str, **options: Any) -> bytes:  # noqa: ANN401 - as `Client.request`
        """Answer a request; see `Client.request`."""
        if method == "PATCH" and self.times:
            self.times -= 1
            self._world.patch(CLUSTERS, "acme/web", {"status": {"endpoint": f"https://{self.times}"}})
        return await super().request(method, path, **options)


def sizes(world: World) -> dict[str, int]:
    """Return how many nodes each pool is to have."""
    spec = world.get(CLUSTERS, "acme/web")["spec"]
    return {"default": spec.get("nodes", 1), **{each["name"]: each.get("count", 1) for each in spec["pools"]}}


@pytest.mark.parametrize(("pool", "conflicts"), [("default", 0), ("gpu", 3)])
def test_a_pool_is_scaled_while_the_operator_writes_the_status(run: Run, pool: str, conflicts: int) -> None:
    """H04: the number of the default pool is one field, and the other pools are one list."""
    world = with_pools()
    done = run(BusyOperator(world, max(1, conflicts)), "scale", "web", "--pool", pool, "--nodes", "5")
    assert done.exception is None, done.output
    assert sizes(world) == {"default": 1, "gpu": 1, "big": 2, pool: 5}


def test_a_pool_is_not_scaled_over_changes_of_others(run: Run) -> None:
    """H04: the command gives up in the end, and says so."""
    world = with_pools()
    done = run(BusyOperator(world, 100), "scale", "web", "--pool", "gpu", "--nodes", "5")
    assert isinstance(done.exception, Conflict)
    assert "pool 'gpu' is not changed, because others write the object all the time: try again" in str(done.exception)
    assert sizes(world) == {"default": 1, "gpu": 1, "big": 2}


@pytest.mark.parametrize(
    ("pool", "spec"),
    [
        ("default", {"nodes": 5}),
        ("gpu", {"pools": [{"name": "gpu", "count": 5}, {"name": "big", "count": 2}]}),
    ],
)
def test_a_cluster_of_git_is_not_scaled_and_the_patch_for_git_is_printed(
    run: Run, pool: str, spec: dict[str, Any]
) -> None:
    """X03: the tool would take the change back; lists are whole, because a custom kind has no other merge."""
    world = with_pools()
    tracked = {"argocd.argoproj.io/tracking-id": "shop:tenantry.dev/DedicatedCluster:acme/web"}
    world.patch(CLUSTERS, "acme/web", {"metadata": {"annotations": tracked}})
    client = WorldClient(world, lambda: "none")
    done = run(client, "scale", "web", "--pool", pool, "--nodes", "5")
    assert type(done.exception) is TenantryError, "exit code 1"
    assert "is managed by Argo CD (application 'shop'), and nothing was changed" in str(done.exception)
    assert yaml.safe_load(done.stdout) == {
        "apiVersion": "tenantry.dev/v1alpha1",
        "kind": "DedicatedCluster",
        "metadata": {"name": "web", "namespace": "acme"},
        "spec": spec,
    }
    assert sizes(world) == {"default": 1, "gpu": 1, "big": 2}
    forced = run(client, "scale", "web", "--pool", pool, "--nodes", "5", "--force")
    assert forced.exception is None
    assert "warning: dedicatedcluster.tenantry.dev/web in 'acme' is managed by Argo CD" in forced.stderr
    assert sizes(world) == {"default": 1, "gpu": 1, "big": 2, pool: 5}


def test_a_cluster_of_git_is_neither_upgraded_nor_put_to_sleep(run: Run) -> None:
    """X03: by the same check as scale."""
    workshop, _ = upgraded("1.35", "1.35.4")
    flux = {"kustomize.toolkit.fluxcd.io/name": "shop", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
    workshop.world.patch(CLUSTERS, "acme/web", {"metadata": {"labels": flux}})
    client = OperatedClient(workshop.world, workshop.settle)
    later = run(client, "upgrade", "web", "--yes")
    assert "is managed by Flux (Kustomization 'flux-system/shop')" in str(later.exception)
    assert yaml.safe_load(later.stdout)["spec"] == {"version": "1.36"}
    asleep = run(client, "sleep", "web")
    assert type(asleep.exception) is TenantryError
    assert list(yaml.safe_load(asleep.stdout)["metadata"]["annotations"]) == ["tenantry.dev/requested-phase"]
    assert workshop.get().status.version == "1.35.4"


@pytest.mark.parametrize(("nodes", "told"), [("1", "1 node in"), ("2", "2 nodes in")])
def test_scale_prints_what_the_cluster_is_to_have(run: Run, nodes: str, told: str) -> None:
    """H04: in the singular for one node."""
    done = run(WorldClient(with_pools(), lambda: "none"), "scale", "web", "--nodes", nodes)
    assert f"is to have {told} pool 'default'" in done.stderr


def test_data_alone_is_on_stdout_if_it_is_asked_for(run: Run) -> None:
    """H04: what the command tells a person is on stderr then."""
    workshop, _ = upgraded()
    done = run(OperatedClient(workshop.world, workshop.settle), "upgrade", "web", "--yes", "-o", "json")
    assert done.exception is None, done.output
    assert msgspec.json.decode(done.stdout)["metadata"]["name"] == "web"
    assert "has Kubernetes 1.36.3 already" in done.stderr


def test_the_patch_for_git_is_on_stdout_whatever_form_is_asked_for(run: Run) -> None:
    """X03: the exit code tells both apart."""
    workshop, _ = upgraded("1.35", "1.35.4")
    tracked = {"argocd.argoproj.io/tracking-id": "shop:x"}
    workshop.world.patch(CLUSTERS, "acme/web", {"metadata": {"annotations": tracked}})
    done = run(OperatedClient(workshop.world, workshop.settle), "upgrade", "web", "--yes", "-o", "json")
    assert type(done.exception) is TenantryError
    assert yaml.safe_load(done.stdout)["spec"] == {"version": "1.36"}


@pytest.mark.parametrize(("offered", "told"), [(("1.35",), "choose 1.35"), (("1.35", "1.36"), "")])
def test_a_version_that_the_template_does_not_offer_is_not_written(
    run: Run, offered: tuple[str, ...], told: str
) -> None:
    """H04: the operator would not carry it out, and the command would wait for it."""
    workshop, _ = upgraded("1.35", "1.35.4")
    spec = ClusterTemplateSpec(versions=offered)
    workshop.world.create(ClusterTemplate(metadata=ObjectMeta(name="lean"), spec=spec))
    workshop.world.patch(CLUSTERS, "acme/web", {"spec": {"template": "lean"}})
    done = run(OperatedClient(workshop.world, workshop.settle), "upgrade", "web", "--yes", "--timeout", "0s")
    written = workshop.world.get(CLUSTERS, "acme/web")["spec"]["version"]
    if told:
        assert isinstance(done.exception, InputError)
        assert f"ClusterTemplate 'lean' does not offer Kubernetes 1.36: {told}" in str(done.exception)
    assert written == ("1.35" if told else "1.36")


# -- what the control plane is asked for -----------------------------------------------------------

REQUESTS = (
    ("upgrade", "web", "--yes"),
    ("upgrade", "web", "--plan"),
    ("rotate", "web", "--yes"),
    ("backup", "web"),
    ("restore", "web", "--from", "some.snapshot", "--yes"),
    ("sleep", "web"),
    ("wake", "web"),
)


def only(provider: ClusterProvider = ClusterProvider.HOSTED) -> World:
    """Return the tenant acme with a cluster that has no control plane of Tenantry."""
    world = world_of()
    settle(world)
    meta = ObjectMeta(name="web", namespace="acme", generation=1)
    world.create(DedicatedCluster(metadata=meta, spec=DedicatedClusterSpec(nodes=0)))
    world.patch(CLUSTERS, "acme/web", {"status": {"provider": provider.value}})
    return world


@pytest.mark.parametrize("words", REQUESTS)
def test_a_cluster_of_cluster_api_names_the_cluster_to_change(run: Run, words: tuple[str, ...]) -> None:
    """H04: it has no VirtualControlPlane, so that a message about one leads nowhere."""
    done = run(WorldClient(only(ClusterProvider.CLUSTER_API), lambda: "none"), *words)
    assert isinstance(done.exception, InputError)
    assert "dedicatedcluster.tenantry.dev/web in 'acme' is built by Cluster API" in str(done.exception)
    assert "`kubectl get clusters.cluster.x-k8s.io web -n acme`" in str(done.exception)
    assert "`tenantry cluster scale`" in str(done.exception)


def test_a_cluster_of_cluster_api_is_described_and_deleted_as_one(run: Run) -> None:
    """H04: nothing of a control plane of Tenantry is shown, and nothing returns to the host."""
    world = only(ClusterProvider.CLUSTER_API)
    shown = run(WorldClient(world, lambda: "none"), "describe", "web")
    assert "Cluster API, as Cluster web" in shown.output
    assert "Datastore" not in shown.output
    done = run(WorldClient(world, lambda: "none"), "delete", "web", "--yes", "--no-wait")
    assert "in 'acme': Cluster API deletes its Cluster with all objects inside" in done.output


@pytest.mark.parametrize("words", [*REQUESTS, ("kubeconfig", "web")])
def test_a_cluster_without_a_control_plane_yet_has_not_started(run: Run, words: tuple[str, ...]) -> None:
    """H04: exit code 2, as for one whose control plane has not started."""
    done = run(WorldClient(only(), lambda: "none"), *words)
    assert isinstance(done.exception, InputError)
    assert "dedicatedcluster.tenantry.dev/web in 'acme' has not started yet: " in str(done.exception)
    assert "wait with `tenantry cluster wait web -n acme`" in str(done.exception)


@pytest.mark.parametrize("words", REQUESTS)
def test_a_cluster_that_does_not_exist_is_told_as_one(run: Run, words: tuple[str, ...]) -> None:
    """H04: exit code 5."""
    world = world_of()
    settle(world)
    done = run(WorldClient(world, lambda: "none"), *words)
    assert isinstance(done.exception, NotFound)
    assert "dedicatedcluster.tenantry.dev/web in 'acme' does not exist" in str(done.exception)


@pytest.mark.parametrize(("phase", "issued"), [("Preparing", ""), ("Issuing", "")])
def test_credentials_are_not_ended_before_there_are_new_ones(run: Run, phase: str, issued: str) -> None:
    """H04: forced, the rotation would end every client, though "nothing" uses the credentials of before yet."""
    workshop, _ = upgraded("1.35", "1.35.4")
    workshop.world.patch(PLANES, "acme/web", {"status": {"credentials": {"phase": phase, "issued": issued}}})
    before = workshop.world.get(CLUSTERS, "acme/web")["spec"]
    client = WorldClient(workshop.world, lambda: "none")
    done = run(client, "rotate", "web", "--phase", "complete", "--force", "--yes")
    assert isinstance(done.exception, InputError)
    assert f"is in phase {phase}, and its clients have no new credentials yet" in str(done.exception)
    assert "run `tenantry cluster rotate web -n acme --phase issue` first" in str(done.exception)
    assert workshop.world.get(CLUSTERS, "acme/web")["spec"] == before


def soaking() -> World:
    """Return a cluster whose version 1.36 soaks."""
    workshop, _ = upgraded("1.35", "1.35.4")
    soaks = {"before": "1.35.4", "after": "1.36.3", "soaks": True}
    workshop.world.patch(PLANES, "acme/web", {"status": {"lastUpgrade": soaks}})
    workshop.world.patch(CLUSTERS, "acme/web", {"spec": {"version": "1.36"}, "status": {"version": "1.35.4"}})
    return workshop.world


def test_an_upgrade_of_git_is_not_aborted(run: Run) -> None:
    """X03: the tool would upgrade it again."""
    world = soaking()
    tracked = {"argocd.argoproj.io/tracking-id": "shop:x"}
    world.patch(CLUSTERS, "acme/web", {"metadata": {"annotations": tracked}})
    client = WorldClient(world, lambda: "none")
    done = run(client, "upgrade", "web", "--abort")
    assert type(done.exception) is TenantryError
    assert yaml.safe_load(done.stdout)["spec"] == {"version": "1.35"}
    assert world.get(CLUSTERS, "acme/web")["spec"]["version"] == "1.36"
    forced = run(client, "upgrade", "web", "--abort", "--force", "--timeout", "0s")
    assert "which may undo this" in forced.stderr
    assert world.get(CLUSTERS, "acme/web")["spec"]["version"] == "1.35"


def test_an_upgrade_is_aborted_to_a_version_that_the_template_offers_no_more(run: Run) -> None:
    """H04: the operator lets a cluster keep the version that it has."""
    world = soaking()
    world.create(ClusterTemplate(metadata=ObjectMeta(name="lean"), spec=ClusterTemplateSpec(versions=("1.36",))))
    world.patch(CLUSTERS, "acme/web", {"spec": {"template": "lean"}})
    run(WorldClient(world, lambda: "none"), "upgrade", "web", "--abort", "--timeout", "0s")
    assert world.get(CLUSTERS, "acme/web")["spec"]["version"] == "1.35"


@pytest.mark.parametrize(
    ("words", "ignored"),
    [((), ["Webhooks"]), (("--ignore", "Skew", "--ignore", "Webhooks"), ["Webhooks", "Skew"])],
)
def test_an_upgrade_keeps_what_is_ignored_already(run: Run, words: tuple[str, ...], ignored: list[str]) -> None:
    """H04: others have written it, by kubectl or from Git, and the patch for Git is what would be written."""
    workshop, _ = upgraded("1.35", "1.35.4")
    workshop.world.patch(CLUSTERS, "acme/web", {"spec": {"upgrade": {"ignore": ["Webhooks"]}}})
    workshop.settle()
    flux = {"kustomize.toolkit.fluxcd.io/name": "shop", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
    workshop.world.patch(CLUSTERS, "acme/web", {"metadata": {"labels": flux}})
    client = OperatedClient(workshop.world, workshop.settle)
    spec = yaml.safe_load(run(client, "upgrade", "web", "--yes", *words).stdout)["spec"]
    assert spec == {"version": "1.36", **({"upgrade": {"ignore": ignored}} if words else {})}
    run(client, "upgrade", "web", "--yes", "--force", "--timeout", "0s", *words)
    written = workshop.world.get(CLUSTERS, "acme/web")["spec"]
    assert (written["version"], written["upgrade"]["ignore"]) == ("1.36", ignored)


# -- plans -------------------------------------------------------------------------------------------


def test_a_plan_without_an_upgrade_is_data_too(run: Run) -> None:
    """H04: a program reads it in any case."""
    workshop, _ = upgraded()
    done = run(WorldClient(workshop.world, lambda: "none"), "upgrade", "web", "--plan", "-o", "json")
    assert done.exception is None, done.output
    assert msgspec.json.decode(done.stdout) == {"from": "1.36.3", "to": "1.36.3", "obstacles": []}


@pytest.fixture
def in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have control planes report a node that is not Ready, and a webhook that no pod answers."""

    async def facts(_client: object, _found: object) -> UpgradeFacts:
        return UpgradeFacts(nodes=(NodeFact(name="n-1", is_ready=False),), webhooks=("deny",))

    monkeypatch.setattr(planeupgrade, "_facts", facts)


@pytest.mark.usefixtures("in_trouble")
def test_a_plan_has_what_the_template_does_not_offer(run: Run) -> None:
    """H04: the operator would not carry it out."""
    workshop, _ = upgraded("1.35", "1.35.4")
    workshop.world.create(
        ClusterTemplate(metadata=ObjectMeta(name="lean"), spec=ClusterTemplateSpec(versions=("1.35",)))
    )
    workshop.world.patch(CLUSTERS, "acme/web", {"spec": {"template": "lean"}})
    done = run(WorldClient(workshop.world, lambda: "none"), "upgrade", "web", "--plan", "-o", "json")
    assert done.exit_code == planeupgrade.OBSTACLES
    found = msgspec.json.decode(done.stdout)["obstacles"]
    assert [each["name"] for each in found] == ["Version", "NodesNotReady", "Webhooks"]
    assert "does not offer Kubernetes 1.36" in found[0]["message"]


@pytest.mark.usefixtures("in_trouble")
@pytest.mark.parametrize(
    ("nodes", "kept", "words", "code"),
    [
        ("Own", [], (), planeupgrade.OBSTACLES),
        ("Own", ["NodesNotReady"], (), planeupgrade.OBSTACLES),
        ("Own", [], ("--ignore", "Webhooks", "--ignore", "NodesNotReady"), 0),
        ("Own", ["NodesNotReady"], ("--ignore", "Webhooks"), 0),
        ("Used", [], (), 0),
    ],
)
def test_a_plan_has_the_obstacles_that_the_operator_waits_for(
    run: Run, *, nodes: str, kept: list[str], words: tuple[str, ...], code: int
) -> None:
    """H04: those of `spec.upgrade.ignore` and --ignore are none, and nothing holds back one without nodes."""
    workshop, _ = upgraded("1.35", "1.35.4")
    workshop.world.patch(PLANES, "acme/web", {"spec": {"nodes": nodes}})
    workshop.world.patch(CLUSTERS, "acme/web", {"spec": {"upgrade": {"ignore": kept}}})
    done = run(WorldClient(workshop.world, lambda: "none"), "upgrade", "web", "--plan", "-o", "json", *words)
    assert done.exit_code == code, done.output
    assert msgspec.json.decode(done.stdout)["to"] == "1.36.3"

"""Where the kubeconfigs of Tenants and Subnamespaces are, and who may read them (H01)."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import PLANE, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.tenantnamespace import OWNER_BINDING
from tenantry.controllers.virtualcontrolplane import decisive, desired, kubeconfigobjects, kubeconfigplace, rotations
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjectController, HostObjects
from tenantry.controllers.virtualcontrolplane.kubeconfigs import Kubeconfigs
from tenantry.controllers.virtualcontrolplane.rotation import digest
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from tenantry.engine.cache import Change
from tenantry.engine.observed import Observed
from testkit.model import World
from testkit.worldcluster import WorldCluster

ADA, BOB = ({"kind": "User", "name": each, "apiGroup": "rbac.authorization.k8s.io"} for each in ("ada", "bob"))
WEB = VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme", uid="u-web"))
OTHER = VirtualControlPlane(metadata=ObjectMeta(name="other", namespace="acme", uid="u-other"))
PLACE = f"{KUBECONFIGS_NAMESPACE}/acme"
BINDING = f"acme/{OWNER_BINDING}"


def namespace(**labels: str) -> Observed:
    """The namespace of a tenant."""
    return Observed("acme", "", "acme", "u-acme", 1, labels, {}, "", deleting=False, digest=b"", has_subjects=False)


OWN, SHARED = namespace(**{marks.CONTROL_PLANE: "web"}), namespace()


class _Host:
    """A host with one namespace of a tenant, whose owners are ada and bob."""

    def __init__(self) -> None:
        self.world = World()
        for name, uid in (("acme", OWN.uid), (KUBECONFIGS_NAMESPACE, "u-k")):
            self.world.put_in(Namespace.resource, {"metadata": {"name": name, "uid": uid}})
        self.world.create(WEB)
        # A World knows the kinds of its objects.
        for resource in (desired.SECRETS, kubeconfigobjects.ROLES, desired.ROLE_BINDINGS):
            self.world.put_in(resource, {"metadata": {"name": "first", "namespace": "acme"}})
        self.bind(ADA, BOB)
        self.home = WorldCluster(self.world, [UnplacedController()])
        self.sent: list[str] = []
        self.cluster = WorldCluster(self.world, [HostObjectController(self.home)], faults=self._count)
        self.start()

    def start(self) -> None:
        """Have another operator go on."""
        self.objects = HostObjects(self.cluster)
        self.kubeconfigs = Kubeconfigs(self.cluster, self.objects)

    def _count(self) -> str:
        self.sent.append("request")
        return "none"

    def bind(self, *subjects: Json) -> None:
        """Write the binding of the owners in their namespace."""
        if (desired.ROLE_BINDINGS, BINDING) in self.world.objects:
            self.world.patch(desired.ROLE_BINDINGS, BINDING, {"subjects": list(subjects)})
            return
        meta = {"name": OWNER_BINDING, "namespace": "acme", "labels": {PLANE: "web"}}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": OWNER_BINDING}
        self.world.put_in(desired.ROLE_BINDINGS, {"metadata": meta, "roleRef": role, "subjects": list(subjects)})

    def bring(self, found: VirtualControlPlane = WEB, here: Observed = OWN, *, is_open: bool = True) -> None:
        """Have the rights brought to what they should be."""
        self.cluster.look()
        asyncio.run(self.kubeconfigs.bring(found, here, is_open=is_open))
        self.cluster.look()

    def write(self, found: VirtualControlPlane = WEB, here: Observed = OWN) -> None:
        """Have the Secret written."""
        self.cluster.look()
        asyncio.run(self.objects.bring([kubeconfigobjects.secret(found, here, "text")], found.metadata.uid))
        self.cluster.look()

    def names(self, resource: Resource) -> list[str]:
        """Return the names of objects where kubeconfigs are."""
        return [each["metadata"]["name"] for each in self.world.list(resource, KUBECONFIGS_NAMESPACE)]

    def readers(self) -> list[str]:
        """Return who may read the kubeconfig."""
        subjects: list[Json] = self.world.get(desired.ROLE_BINDINGS, PLACE).get("subjects") or []
        return [each["name"] for each in subjects]


def test_the_kubeconfig_of_a_tenant_is_where_no_user_watches() -> None:
    """H01: that of a control plane of users stays with it."""
    _, own = kubeconfigobjects.secret(WEB, OWN, "text")
    assert (own["metadata"]["namespace"], own["metadata"]["name"]) == (KUBECONFIGS_NAMESPACE, "acme")
    assert [(each["kind"], each["uid"]) for each in own["metadata"]["ownerReferences"]] == [("Namespace", "u-acme")]
    for found, here in ((WEB, SHARED), (OTHER, OWN)):
        _, beside = kubeconfigobjects.secret(found, here, "text")
        name = found.metadata.name
        assert (beside["metadata"]["namespace"], beside["metadata"]["name"]) == ("acme", f"{name}-kubeconfig")
        assert [each["uid"] for each in beside["metadata"]["ownerReferences"]] == [found.metadata.uid]


def test_a_label_that_is_removed_by_mistake_moves_no_kubeconfig() -> None:
    status = VirtualControlPlaneStatus(kubeconfig_namespace=KUBECONFIGS_NAMESPACE, kubeconfig_secret="acme")
    for here in (SHARED, None):
        assert kubeconfigplace.is_outside(replace(WEB, status=status), here)
        assert not kubeconfigplace.is_outside(WEB, here)


def test_the_label_of_a_namespace_decides_about_its_control_planes() -> None:
    assert decisive.has_changed(Change(before=SHARED, after=OWN))
    assert not decisive.has_changed(Change(before=OWN, after=OWN))


def test_owners_may_get_one_secret_and_nothing_else() -> None:
    """H01: a list or a watch would show it to an owner that is removed."""
    host = _Host()
    host.bring()
    role = host.world.get(kubeconfigobjects.ROLES, PLACE)
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["acme"]}]
    binding = host.world.get(desired.ROLE_BINDINGS, PLACE)
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "acme")
    assert host.readers() == ["ada", "bob"]
    host.sent.clear()
    host.bring()
    assert host.sent == []
    host.bind(ADA)
    host.bring()
    assert host.readers() == ["ada"]


def test_no_owner_reads_it_while_users_have_no_access() -> None:
    """H01: the tenant is suspended, or its objects move out."""
    host = _Host()
    host.bring()
    host.bring(is_open=False)
    assert host.readers() == []
    host.bring()
    assert host.readers() == ["ada", "bob"]
    # Before the owners are admitted in their namespace, they are not here.
    host.world.delete(desired.ROLE_BINDINGS, BINDING)
    host.bring()
    assert host.readers() == []


def test_what_is_changed_is_put_right_and_wakes_the_control_plane() -> None:
    host = _Host()
    host.bring()
    host.write()
    host.home.settle()
    host.cluster.settle()
    for resource in (desired.SECRETS, desired.ROLE_BINDINGS, kubeconfigobjects.ROLES):
        host.world.delete(resource, PLACE)
        host.home.settle()
        host.cluster.settle()
        assert host.home.lane.queue.ready == 1, resource
        host.bring()
        host.write()
        assert host.names(resource) == ["acme"]


def test_a_control_plane_that_users_have_created_gets_no_rights_here() -> None:
    host = _Host()
    host.bring(WEB, SHARED)
    host.bring(OTHER, OWN)
    assert host.names(desired.ROLE_BINDINGS) == host.names(kubeconfigobjects.ROLES) == []


def test_a_deleted_control_plane_leaves_nothing() -> None:
    """H01: another one of the namespace deletes nothing."""
    host = _Host()
    host.bring()
    host.write()
    asyncio.run(host.kubeconfigs.remove("acme/other", "u-other"))
    assert host.names(desired.SECRETS) == ["acme"]
    asyncio.run(host.kubeconfigs.remove("acme/web", "u-web"))
    for resource in (desired.SECRETS, desired.ROLE_BINDINGS, kubeconfigobjects.ROLES):
        assert host.names(resource) == []


def test_the_kubeconfig_of_a_former_control_plane_is_gone_before_others_may_read() -> None:
    """H01: a namespace of this name may have been of another tenant."""
    host = _Host()
    host.write(replace(WEB, metadata=replace(WEB.metadata, uid="u-former")))
    host.bring()
    assert host.names(desired.SECRETS) == []
    host.write()
    host.start()
    host.bring()
    assert host.names(desired.SECRETS) == ["acme"]


def test_the_secret_of_an_earlier_version_is_deleted() -> None:
    """H01: only the operator's own; a user may have one of this name."""
    host = _Host()
    host.write(WEB, SHARED)
    assert (desired.SECRETS, "acme/web-kubeconfig") in host.world.objects
    host.bring()
    assert (desired.SECRETS, "acme/web-kubeconfig") not in host.world.objects
    # The mirror makes the control plane the owner of what it adopts. No user may set the label.
    meta = {"name": "web-kubeconfig", "namespace": "acme", "ownerReferences": [desired.owner_of(WEB)]}
    host.world.put_in(desired.SECRETS, {"metadata": meta})
    host.bring()
    assert (desired.SECRETS, "acme/web-kubeconfig") in host.world.objects


def test_a_removed_owner_is_bound_while_one_of_both_bindings_has_it() -> None:
    """H01: a right to get the Secret would show the new kubeconfig."""
    host = _Host()
    host.bring()
    gone = frozenset({digest("User bob")})

    def is_bound() -> bool:
        return asyncio.run(rotations.are_bound(host.cluster, "acme", gone))

    assert is_bound()
    host.bind(ADA)
    assert is_bound()
    host.bring()
    assert not is_bound()


def test_the_end_of_a_control_plane_takes_nothing_of_the_next_one_of_its_name() -> None:
    """H01: another replica may have served the former one, and be late."""
    host = _Host()
    host.bring()
    host.write()
    asyncio.run(host.kubeconfigs.remove("acme/web", "u-former"))
    kinds = (desired.SECRETS, kubeconfigobjects.ROLES, desired.ROLE_BINDINGS)
    assert [host.names(each) for each in kinds] == [["acme"]] * 3
    asyncio.run(host.kubeconfigs.remove("acme/web", WEB.metadata.uid))
    assert [host.names(each) for each in kinds] == [[]] * 3


def test_a_removed_account_is_bound_only_by_a_subject_of_its_namespace() -> None:
    host = _Host()
    gone = frozenset({digest("ServiceAccount ours/robot")})
    for place, is_its in (("ours", True), ("theirs", False)):
        host.bind({"kind": "ServiceAccount", "name": "robot", "namespace": place})
        host.bring()
        assert asyncio.run(rotations.are_bound(host.cluster, "acme", gone)) is is_its

"""Mirrored pods over time: a mirror between two worlds without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import adoption, cachedpods, things
from tenantry.mirror.copies import Copies, of_ingress
from tenantry.mirror.kinds import ingresses, services
from tenantry.mirror.podmirror import PodMirror
from tenantry.mirror.profile import Profile
from tenantry.mirror.refusals import upper_words
from tenantry.mirror.servicelinks import ServiceLinks
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import COPIED, PODS, Copy
from tenantry.mirror.uppernodes import UpperNodes
from tenantry.mirror.upperobjects import UpperObjects
from tenantry.mirror.upperpods import UpperPods
from testkit.mirroring import PROFILE, copied
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

CONFIG_MAPS = COPIED["ConfigMap"]
SETTINGS: Json = {"name": "settings", "namespace": "shop"}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]},
}


class Below:
    """Holds the watches of the lower side."""

    name = "below"
    kind = Copy

    def watches(self) -> list[Watch]:
        """Return them."""
        selectors = things.selector(PROFILE.prefix)
        copied = [
            Watch(resource=each, decode=things.headed, keys=lambda _: (), selectors=selectors)
            for each in COPIED.values()
        ]
        return [
            Watch(resource=PODS, decode=cachedpods.decoder(PROFILE.prefix), keys=lambda _: (), selectors=selectors),
            *copied,
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


class Mirrored:
    """Two worlds with a mirror between them."""

    def __init__(self, profile: Profile = PROFILE) -> None:
        self.upper, self.lower = World(), World()
        self.fault = "none"
        # What users do just before the next request to the upper side.
        self.meanwhile: Callable[[], object] | None = None
        for world, namespace in ((self.upper, "shop"), (self.lower, PROFILE.namespace)):
            world.create(Namespace(metadata=ObjectMeta(name=namespace)))
            # A World knows the kinds of its objects.
            for resource in (PODS, *COPIED.values()):
                made = {
                    "apiVersion": "v1",
                    "kind": resource.kind,
                    "metadata": {"name": "first", "namespace": namespace},
                }
                world.put_in(resource, made)
        self.below = WorldCluster(self.lower, [Below()], faults=lambda: self.fault)
        self.below.is_synced = True
        self.above = WorldCluster(self.upper, [], faults=self._interrupted)
        side = LowerSide(cluster=self.below, writer=self.below.writer, node=_no_node, nodes={}, reason="Refused")
        pods, nodes = UpperPods(profile, self.above), UpperNodes(profile, self.above, side, _not_noticed)
        tls = UpperObjects(ingresses.RESOURCE, profile, self.above)
        copies = Copies(profile, self.above, side, upper_pods=pods, upper_objects=[(tls, of_ingress)])
        links = ServiceLinks(profile, self.above, self.below, UpperObjects(services.RESOURCE, profile, self.above))
        mirror = PodMirror(profile, self.above, side, upper_pods=pods, upper_nodes=nodes, copies=copies, links=links)
        for controller in (mirror, copies):
            self.above.lane.controllers[controller.name] = controller
            for watch in controller.watches():
                (watch.cluster or self.above).listen(self.above.lane.listener(controller.name, watch))

    def _interrupted(self) -> str:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return "none"

    def settle(self) -> None:
        """Let the mirror come to rest."""
        self.below.look()
        self.above.settle()
        self.below.look()
        self.above.settle()

    def put(self, value: Json) -> None:
        """Create an object of the upper side."""
        resource = PODS if value["kind"] == "Pod" else COPIED[value["kind"]]
        self.upper.put_in(resource, copied(value))

    def below_of(self, resource: Resource, name: str, *, kind: str = "") -> Json:
        """Return the lower object of an upper one."""
        lower = PROFILE.lower_name(kind or resource.kind, "shop", name)
        return self.lower.get(resource, f"{PROFILE.namespace}/{lower}")


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


def _settings(**content: object) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}, **content}


def test_the_copy_of_a_source_that_was_made_anew_is_made_anew() -> None:
    """An API server refuses every change of an immutable copy, so that its pod would never get the new content."""
    mirrored = Mirrored()
    mirrored.put(_settings(data={"a": "1"}, immutable=True))
    mirrored.put(POD)
    mirrored.settle()
    before = mirrored.below_of(CONFIG_MAPS, "settings")
    assert before["data"] == {"a": "1"}
    mirrored.upper.delete(CONFIG_MAPS, "shop/settings")
    mirrored.put(_settings(data={"a": "2"}))
    mirrored.settle()
    after = mirrored.below_of(CONFIG_MAPS, "settings")
    assert (after["data"], "immutable" in after) == ({"a": "2"}, False)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_a_pod_shows_its_status_while_its_copies_cannot_be_written() -> None:
    mirrored = Mirrored()
    mirrored.put(_settings(data={"a": "1"}))
    mirrored.put(POD)
    mirrored.settle()
    lower = mirrored.below_of(PODS, "web")["metadata"]["name"]
    mirrored.lower.patch(PODS, f"{PROFILE.namespace}/{lower}", {"status": {"phase": "Running"}})
    mirrored.upper.patch(CONFIG_MAPS, "shop/settings", {"data": {"a": "2"}})
    mirrored.fault = "lost"
    mirrored.settle()
    assert mirrored.below_of(CONFIG_MAPS, "settings")["data"] == {"a": "1"}
    assert mirrored.upper.get(PODS, "shop/web")["status"]["phase"] == "Running"


def test_what_users_change_while_the_status_is_written_goes_down() -> None:
    """The cache takes the answer of the write, in which the change is no news: a deletion would never end."""
    mirrored = Mirrored()
    mirrored.put(POD)
    mirrored.settle()
    lower = mirrored.below_of(PODS, "web")["metadata"]["name"]
    mirrored.lower.patch(PODS, f"{PROFILE.namespace}/{lower}", {"status": {"phase": "Running"}})
    noted = {"metadata": {"annotations": {"note": "new"}}}
    mirrored.meanwhile = lambda: mirrored.upper.patch(PODS, "shop/web", noted)
    mirrored.settle()
    assert mirrored.meanwhile is None
    assert mirrored.upper.get(PODS, "shop/web")["status"]["phase"] == "Running"
    assert mirrored.below_of(PODS, "web")["metadata"]["annotations"].get("note") == "new"


def _reasons(mirrored: Mirrored) -> list[str]:
    return [note for _, _, reason, note in mirrored.above.said if reason == "Refused"]


DEBUGGER: Json = {"name": "d", "image": "busybox", "envFrom": [{"secretRef": {"name": "keys"}}]}


def test_an_ephemeral_container_is_added_below_with_what_it_names() -> None:
    mirrored = Mirrored()
    mirrored.put(POD)
    mirrored.settle()
    mirrored.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "shop"}})
    mirrored.upper.patch(PODS, "shop/web", {"spec": {"ephemeralContainers": [DEBUGGER]}})
    mirrored.settle()
    (added,) = mirrored.below_of(PODS, "web")["spec"]["ephemeralContainers"]
    assert (added["name"], added["envFrom"]) == ("d", [{"secretRef": {"name": _name("Secret", "keys")}}])
    assert mirrored.below_of(COPIED["Secret"], "keys")["type"] == "Opaque"
    revision = mirrored.lower.revision
    mirrored.settle()
    assert mirrored.lower.revision == revision


def _name(kind: str, name: str) -> str:
    return PROFILE.lower_name(kind, "shop", name)


@pytest.mark.parametrize(
    ("subresource", "spec"),
    [
        ("ephemeralcontainers", {"ephemeralContainers": [DEBUGGER]}),
        ("resize", {"containers": [{**POD["spec"]["containers"][0], "resources": {"requests": {"cpu": "2"}}}]}),
    ],
)
def test_a_refused_addition_is_an_event_and_tried_again_later(subresource: str, spec: Json) -> None:
    """A pod has events all the time: none of them repeats the request."""
    mirrored = Mirrored()
    mirrored.put(POD)
    mirrored.settle()
    mirrored.lower.forbidden = {subresource: "rule 7 of the lower side"}
    mirrored.upper.patch(PODS, "shop/web", {"spec": spec})
    mirrored.settle()
    for number in range(3):
        status = {"phase": "Running", "message": str(number)}
        mirrored.lower.patch(PODS, f"{PROFILE.namespace}/{_name('Pod', 'web')}", {"status": status})
        mirrored.settle()
    (note,) = _reasons(mirrored)
    assert "rule 7 of the lower side" in note
    assert mirrored.upper.get(PODS, "shop/web")["status"]["message"] == "2"
    mirrored.lower.forbidden = {}
    mirrored.above.settle(seconds=11.0)
    below = mirrored.below_of(PODS, "web")["spec"]
    assert "d" in str(below) if subresource == "ephemeralcontainers" else "'cpu': '2'" in str(below)
    assert len(_reasons(mirrored)) == 1


def test_a_resize_goes_down() -> None:
    mirrored = Mirrored()
    mirrored.put(POD)
    mirrored.settle()
    container = {**POD["spec"]["containers"][0], "resources": {"requests": {"cpu": "2"}}}
    mirrored.upper.patch(PODS, "shop/web", {"spec": {"containers": [container]}})
    mirrored.settle()
    assert mirrored.below_of(PODS, "web")["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    assert _reasons(mirrored) == []


def test_an_ephemeral_container_of_a_wrong_type_is_an_event_and_the_pod_follows() -> None:
    mirrored = Mirrored()
    mirrored.put(POD)
    mirrored.settle()
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"ephemeralContainers": [{"name": "d", "image": 3}]}}
    mirrored.upper.patch(PODS, "shop/web", change)
    mirrored.settle()
    mirrored.upper.patch(PODS, "shop/web", {"metadata": {"labels": {"a": "c"}}})
    mirrored.settle()
    assert mirrored.below_of(PODS, "web")["metadata"]["labels"]["a"] == "c"
    assert _reasons(mirrored) == ["spec.ephemeralContainers[0].image must be a string"]


def _message(mirrored: Mirrored, name: str) -> str:
    conditions = mirrored.upper.get(PODS, f"shop/{name}").get("status", {}).get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")


def _has_lower(mirrored: Mirrored, name: str) -> bool:
    return (PODS, f"{PROFILE.namespace}/{_name('Pod', name)}") in mirrored.lower.objects


def test_a_pod_that_is_too_large_is_refused_and_hardly_takes_memory() -> None:
    mirrored = Mirrored()
    mirrored.put({**POD, "metadata": {**POD["metadata"], "annotations": {"a": "x" * 300 * 1024}}})
    mirrored.settle()
    assert _message(mirrored, "web").startswith("the pod has 300 KiB, and at most 256 KiB are mirrored: move data")
    assert _reasons(mirrored) == [_message(mirrored, "web")]
    assert not _has_lower(mirrored, "web")
    kept = mirrored.above.cache(PODS).get("shop/web")
    assert kept is not None
    assert len(kept.metadata) + len(kept.specification) + len(kept.state) < 1024
    # Users may correct it.
    mirrored.upper.patch(PODS, "shop/web", {"metadata": {"annotations": {"a": "short"}}})
    mirrored.settle()
    assert _has_lower(mirrored, "web")


def test_a_pod_that_grows_too_large_stays_and_ends_as_usual() -> None:
    mirrored = Mirrored()
    mirrored.put(POD)
    mirrored.settle()
    mirrored.upper.patch(PODS, "shop/web", {"metadata": {"annotations": {"a": "x" * 300 * 1024}}})
    mirrored.settle()
    assert [note.startswith("the pod has 300 KiB") for note in _reasons(mirrored)] == [True]
    assert "a" not in mirrored.below_of(PODS, "web")["metadata"]["annotations"]
    mirrored.upper.delete(PODS, "shop/web")
    mirrored.settle()
    assert not _has_lower(mirrored, "web")


def test_one_pod_too_many_waits_until_another_one_is_gone() -> None:
    mirrored = Mirrored(replace(PROFILE, most_pods=3))
    # One is there from the start.
    for name in ("a", "b", "c"):
        mirrored.put({**POD, "metadata": {"name": name, "namespace": "shop"}})
        mirrored.settle()
    assert [_has_lower(mirrored, name) for name in ("a", "b", "c")] == [True, True, False]
    assert _message(mirrored, "c").startswith("more than 3 pods exist: delete pods")
    mirrored.upper.delete(PODS, "shop/a")
    mirrored.settle()
    mirrored.above.settle(seconds=21.0)
    assert [_has_lower(mirrored, name) for name in ("a", "b", "c")] == [False, True, True]
    # It follows, although its events came while there was no room.
    mirrored.lower.patch(PODS, f"{PROFILE.namespace}/{_name('Pod', 'c')}", {"status": {"phase": "Running"}})
    mirrored.settle()
    assert mirrored.upper.get(PODS, "shop/c")["status"]["phase"] == "Running"


def test_the_copy_for_an_ingress_comes_and_goes_with_it() -> None:
    """A Secret is copied while something names it, and one that is deleted on the lower side comes back."""
    mirrored = Mirrored()
    content = {"tls.crt": "", "tls.key": ""}
    meta = {"name": "cert", "namespace": "shop"}
    mirrored.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", "data": content})
    mirrored.settle()
    below = f"{PROFILE.namespace}/{PROFILE.lower_name('Secret', 'shop', 'cert')}"
    secrets = COPIED["Secret"]
    assert below not in {each.key for each in mirrored.below.cache(secrets)}
    ingress = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "shop"},
    }
    mirrored.upper.put_in(ingresses.RESOURCE, {**ingress, "spec": {"tls": [{"secretName": "cert"}]}})
    mirrored.settle()
    assert mirrored.below_of(secrets, "cert")["type"] == "kubernetes.io/tls"
    mirrored.lower.delete(secrets, below)
    mirrored.settle()
    assert mirrored.below_of(secrets, "cert")["data"] == content
    mirrored.upper.delete(ingresses.RESOURCE, "shop/web")
    mirrored.settle()
    mirrored.below.look()
    assert below not in {each.key for each in mirrored.below.cache(secrets)}


def test_a_refusal_names_the_upper_object() -> None:
    """X09: a user inside has never seen the name on the lower side."""
    lower = PROFILE.lower_name("Service", "shop", "web")
    error = Forbidden(f"services {lower!r} is forbidden: service {lower!r} has", status=403, reason="Forbidden")
    found = upper_words(error, PROFILE, "Service", "shop", "web")
    assert str(found) == "services 'web' is forbidden: service 'web' has"
    assert (type(found), found.status, found.reason) == (Forbidden, 403, "Forbidden")


TOKENS: Json = {
    **POD,
    "spec": {
        **POD["spec"],
        "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    },
}


def test_a_pod_has_its_tokens_as_soon_as_it_is_created() -> None:
    """Kubelet starts no container without them."""
    mirrored = Mirrored()
    mirrored.put(TOKENS)
    mirrored.above.settle()
    secret = mirrored.below_of(COPIED["Secret"], "web", kind="Token")
    assert [each["name"] for each in secret["metadata"]["ownerReferences"]] == [_name("Pod", "web")]
    revision = mirrored.lower.revision
    mirrored.settle()
    assert mirrored.lower.revision == revision


def test_a_refused_secret_of_tokens_is_an_event_and_tried_again_later() -> None:
    """Until then no token is requested, however often the pod changes."""
    mirrored = Mirrored()
    mirrored.lower.forbidden = {"secrets": f"secret {_name('Token', 'web')!r}: exceeded quota"}
    mirrored.put(TOKENS)
    mirrored.settle()
    for number in range(3):
        status = {"phase": "Pending", "message": str(number)}
        mirrored.lower.patch(PODS, f"{PROFILE.namespace}/{_name('Pod', 'web')}", {"status": status})
        mirrored.settle()
    (note,) = _reasons(mirrored)
    assert note == "the tokens of its ServiceAccount, which take a Secret: secret 'web': exceeded quota"
    assert mirrored.upper.get(PODS, "shop/web")["status"]["message"] == "2"
    mirrored.lower.forbidden = {}
    mirrored.above.settle(seconds=11.0)
    assert mirrored.below_of(COPIED["Secret"], "web", kind="Token")["data"]


def test_what_the_binding_has_told_is_not_written_again() -> None:
    mirrored = Mirrored()
    mirrored.put(POD)
    mirrored.settle()

    def scheduled(time: str, **more: object) -> Json:
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
        return {"status": {"phase": "Pending", "conditions": [condition], **more}}

    mirrored.upper.patch(PODS, "shop/web", scheduled("2026-01-01T00:00:00Z"))
    lower = f"{PROFILE.namespace}/{_name('Pod', 'web')}"
    mirrored.lower.patch(PODS, lower, scheduled("2026-01-01T00:00:01Z"))
    revision = mirrored.upper.revision
    mirrored.settle()
    assert mirrored.upper.revision == revision
    mirrored.lower.patch(PODS, lower, scheduled("2026-01-01T00:00:01Z", podIP="10.0.0.1"))
    mirrored.settle()
    assert mirrored.upper.get(PODS, "shop/web")["status"]["podIP"] == "10.0.0.1"


def adopting() -> Mirrored:
    """Two worlds with a mirror that adopts, and a lower pod and a ConfigMap that wait for their upper ones."""
    mirrored: list[Mirrored] = []
    bare = replace(PROFILE)
    names = adoption.adopted_names(bare, lambda resource: mirrored[0].below.cache_of(resource) if mirrored else None)
    mirrored.append(Mirrored(replace(PROFILE, is_adopted=names)))
    world = mirrored[0]
    config: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}
    for value in (POD, config):
        name = value["metadata"]["name"]
        meta = {"name": name, "namespace": PROFILE.namespace, **adoption.marks(value["kind"], "shop", name, PROFILE)}
        resource = PODS if value["kind"] == "Pod" else CONFIG_MAPS
        world.lower.put_in(resource, {**copied(value), "metadata": meta})
    return world


def test_an_adopted_pod_goes_on_as_the_lower_pod_of_its_upper_one() -> None:
    """H01: it waits for its upper pod, keeps its name and uid, and ends with its upper pod."""
    world = adopting()
    before = world.lower.get(PODS, f"{PROFILE.namespace}/web")["metadata"]["uid"]
    world.settle()
    assert world.lower.get(PODS, f"{PROFILE.namespace}/web")["metadata"]["uid"] == before
    world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": SETTINGS, "data": {"a": "2"}})
    world.put(POD)
    world.settle()
    after = world.lower.get(PODS, f"{PROFILE.namespace}/web")
    assert after["metadata"]["uid"] == before
    upper = world.upper.get(PODS, "shop/web")["metadata"]["uid"]
    assert after["metadata"]["annotations"][PROFILE.mark("uid")] == upper
    assert [each["metadata"]["name"] for each in world.lower.list(PODS)].count("web") == 1
    settings = world.lower.get(CONFIG_MAPS, f"{PROFILE.namespace}/settings")
    assert settings["data"] == {"a": "2"}
    assert settings["metadata"]["annotations"][PROFILE.mark(adoption.ADOPTED)] == "true"
    world.upper.delete(PODS, "shop/web")
    world.settle()
    names = [each["metadata"]["name"] for each in (*world.lower.list(PODS), *world.lower.list(CONFIG_MAPS))]
    assert "web" not in names
    assert "settings" not in names


@pytest.mark.parametrize("immutable", [False, True])
def test_an_adopted_object_follows_the_source_that_is_made_anew(*, immutable: bool) -> None:
    """H01: pods that run name it; one that cannot change ends, and leaves no second one of its name."""
    world = adopting()
    world.put(_settings(data={"a": "1"}, **({"immutable": True} if immutable else {})))
    world.put(POD)
    world.settle()
    before = world.lower.get(CONFIG_MAPS, f"{PROFILE.namespace}/settings")["metadata"]
    world.upper.delete(CONFIG_MAPS, "shop/settings")
    world.put(_settings(data={"a": "2"}))
    world.settle()
    world.below.look()
    world.above.settle(60)
    made = {
        each["metadata"]["name"]: each
        for each in world.lower.list(CONFIG_MAPS)
        if PROFILE.mark("uid") in each["metadata"].get("annotations", {})
    }
    name = _name("ConfigMap", "settings") if immutable else "settings"
    assert {key: each["data"] for key, each in made.items()} == {name: {"a": "2"}}
    assert (made[name]["metadata"]["uid"] == before["uid"]) is not immutable
    assert (PROFILE.mark(adoption.ADOPTED) in made[name]["metadata"]["annotations"]) is not immutable

"""Services that are mirrored to another cluster: a mirror between two worlds without I/O."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import things
from tenantry.mirror.kinds import services
from tenantry.mirror.objectmirror import ObjectMirror
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import Thing
from tenantry.mirror.upperobjects import UpperObjects
from testkit.mirroredpods import PAIRED, PREFIX
from testkit.mirroring import copied
from testkit.mirrorstory import MirrorStory
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

SERVICES = services.RESOURCE
KEY, BELOW = "shop/web", "shop-below/web"


class LowerServices:
    """Holds the watch of the lower side."""

    name = "below"
    kind = Thing

    def watches(self) -> list[Watch]:
        """Return it."""
        selectors = things.selector(PREFIX)
        return [Watch(resource=SERVICES, decode=things.whole, keys=lambda _: (), selectors=selectors)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


async def _no_node(_name: str) -> Json | None:
    return None


class ServiceStory(MirrorStory):
    """Two worlds with a mirror of Services between them; a world knows the kinds of its objects."""

    def __init__(self) -> None:
        super().__init__()
        for world, name in ((self.upper, "shop"), (self.lower, "shop-below")):
            world.create(Namespace(metadata=ObjectMeta(name=name)))
            world.put_in(SERVICES, service("first", name))
        self.restart()

    def restart(self) -> None:
        """Start an operator."""
        profile = replace(PAIRED, is_apart=True)
        self.below = WorldCluster(self.lower, [LowerServices()])
        self.below.is_synced = True
        self.watched = (self.below,)
        self.above = WorldCluster(self.upper, [])
        side = LowerSide(
            cluster=self.below,
            writer=self.below.writer,
            node=_no_node,
            nodes={},
            reason="Refused",
            unfit_reason="NotFit",
        )
        self.add(
            ObjectMirror(services.KIND.apart(), profile, self.above, side, UpperObjects(SERVICES, profile, self.above))
        )

    def lower_spec(self) -> Json:
        """Return the spec of the lower Service; {} if there is none."""
        try:
            return self.lower.get(SERVICES, BELOW)["spec"]
        except NotFound:
            return {}


def service(name: str, namespace: str = "shop", **spec: object) -> Json:
    """Return a Service with a selector."""
    wanted: Json = {"selector": {"app": name}, "ports": [{"port": 80}], **copied(spec)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": wanted,
    }


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"selector": None}, "spec.selector"),
        ({"selector": None, "type": "ExternalName", "externalName": "db.example.com"}, "spec.type"),
    ],
)
def test_a_service_that_cannot_go_there_any_more_ends_there_and_comes_back(changed: Json, path: str) -> None:
    """The other side is what the upper Service is now, not what it once was."""
    story = ServiceStory()
    story.upper.put_in(SERVICES, service("web"))
    story.settle()
    assert story.lower_spec()["selector"] == {"app": "web"}
    story.upper.patch(SERVICES, KEY, {"spec": changed})
    story.settle()
    assert story.lower_spec() == {}
    (told,) = [note for key, _, reason, note in story.above.said if (key, reason) == (KEY, "NotFit")][:1]
    assert told.startswith(path)
    story.upper.patch(SERVICES, KEY, {"spec": {"selector": {"app": "new"}, "type": "ClusterIP"}})
    story.settle(60.0)
    assert story.lower_spec()["selector"] == {"app": "new"}


def test_the_last_form_stays_while_the_other_side_refuses_the_next_one() -> None:
    """A refusal may pass, as one by a quota does."""
    story = ServiceStory()
    story.upper.put_in(SERVICES, service("web"))
    story.settle()
    story.lower.forbidden = {"": "the policy refuses it"}
    story.upper.patch(SERVICES, KEY, {"spec": {"selector": {"app": "new"}}})
    story.settle()
    assert story.lower_spec()["selector"] == {"app": "web"}
    story.lower.forbidden = {}
    story.settle(60.0)
    assert story.lower_spec()["selector"] == {"app": "new"}

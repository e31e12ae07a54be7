"""Copies of objects in other namespaces, carried out in a world without I/O."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api.errors import Invalid, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.engine.apply import Applier, Outcome
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Inheritable, Observed, observe
from tenantry.engine.plan import Blocked, CopyStep, Plan, StepAction
from tenantry.engine.request import ApiRequest, Verb
from tenantry.world.inheritance import CONFIG_MAPS, SECRETS
from testkit.model import Caches, Json, SeenThrough, World, drive
from testkit.runs import run

KEPT = {"kept": "in-sync"}


class _StrictWorld(World):
    """A World that counts reads, keeps immutable objects, and has a webhook that adds a label to new objects."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.webhook: dict[str, str] = {}
        for name in ("core", "a", "b", "c"):
            self.put_in(Namespace.resource, {"metadata": {"name": name}})

    def answer(self, asked: ApiRequest) -> bytes:
        """Answer a request."""
        self.reads += asked.verb is Verb.GET
        key = f"{asked.namespace}/{asked.name}"
        if asked.verb is Verb.REPLACE and self.get(asked.resource, key).get("immutable"):
            raise Invalid("data: field is immutable when `immutable` is set", status=422)
        if asked.verb is Verb.CREATE and self.webhook and isinstance(asked.body, bytes):
            body: Json = msgspec.json.decode(asked.body)
            body["metadata"]["labels"] = {**body["metadata"].get("labels", {}), **self.webhook}
            asked = msgspec.structs.replace(asked, body=msgspec.json.encode(body))
        return super().answer(asked)

    def observed(self, resource: Resource, key: str) -> Inheritable:
        """Return an object as a cache has it."""
        found = observe(resource, msgspec.json.encode(self.get(resource, key)))
        assert isinstance(found, Inheritable)
        return found


def _source(world: World, resource: Resource = SECRETS, **fields: Any) -> Inheritable:  # noqa: ANN401 - any field
    value: Json = {"metadata": {"name": "s", "namespace": "core"}, "data": {"key": "one"}, **fields}
    return _as_cached(resource, world.put_in(resource, value))


def _as_cached(resource: Resource, value: Json) -> Inheritable:
    found = observe(resource, msgspec.json.encode(value))
    assert isinstance(found, Inheritable)
    return found


def _nothing(_: Observed | None) -> None:
    """Decide that nothing is needed."""


def _step(source: Inheritable | None, namespace: str, found: Observed | None = None, **fields: Any) -> CopyStep:  # noqa: ANN401 - any field
    action = StepAction.DELETE if source is None else StepAction.CREATE if found is None else StepAction.UPDATE
    given: dict[str, Any] = {"resource": SECRETS, "labels": KEPT, "again": _nothing, **fields}
    return CopyStep(action=action, namespace=namespace, name="s", source=source, observed=found, **given)


def _run(world: World, *waves: list[CopyStep], applier: Applier | None = None) -> Outcome:
    plan = Plan(copies=tuple(tuple(wave) for wave in waves))
    outcome = run(drive(world, (applier or _applier()).run(plan)), lambda: "none")
    assert outcome is not None
    return outcome


def _applier() -> Applier:
    caches: Caches = {SECRETS: Cache(), CONFIG_MAPS: Cache()}
    return Applier(SeenThrough(caches))


def test_a_source_is_read_once_for_all_of_its_copies() -> None:
    world = _StrictWorld()
    source = _source(world)
    outcome = _run(world, [_step(source, name) for name in ("a", "b", "c")])
    assert (world.reads, outcome.error) == (1, None)
    copies = [world.get(SECRETS, f"{name}/s") for name in ("a", "b", "c")]
    assert [(each["data"], each["metadata"]["labels"]) for each in copies] == [({"key": "one"}, KEPT)] * 3


def test_a_source_is_read_again_after_a_change() -> None:
    world, applier = _StrictWorld(), _applier()
    _run(world, [_step(_source(world), "a")], applier=applier)
    _run(world, [_step(world.observed(SECRETS, "core/s"), "b")], applier=applier)
    assert world.reads == 1, "its content is known"
    world.patch(SECRETS, "core/s", {"data": {"key": "two"}})
    _run(world, [_step(world.observed(SECRETS, "core/s"), "c")], applier=applier)
    assert (world.reads, world.get(SECRETS, "c/s")["data"]) == (2, {"key": "two"})


def test_an_immutable_copy_is_deleted_and_created_again() -> None:
    world = _StrictWorld()
    _run(world, [_step(_source(world, immutable=True), "a")])
    old = world.observed(SECRETS, "a/s")
    world.delete(SECRETS, "core/s")
    source = _source(world, data={"key": "two"}, immutable=True)
    outcome = _run(world, [_step(source, "a", old)])
    assert (outcome.error, world.get(SECRETS, "a/s")["data"]) == (None, {"key": "two"})
    assert world.get(SECRETS, "a/s")["metadata"]["uid"] != old.uid


def test_an_addition_of_a_webhook_is_not_fought() -> None:
    world, applier = _StrictWorld(), _applier()
    world.webhook = {"added": "by-a-webhook"}
    source = _source(world)
    assert not applier.is_like(SECRETS, source, b"another")
    _run(world, [_step(source, "a")], applier=applier)
    copy = world.observed(SECRETS, "a/s")
    assert copy.likeness != source.likeness
    assert applier.is_like(SECRETS, copy, source.likeness)
    world.patch(SECRETS, "a/s", {"data": {"key": "edited"}})
    assert not applier.is_like(SECRETS, world.observed(SECRETS, "a/s"), source.likeness)


def test_what_another_client_wrote_meanwhile_is_decided_again_and_a_clash_blocks_only_its_own_copy() -> None:
    world = _StrictWorld()
    source = _source(world)
    world.put_in(SECRETS, {"metadata": {"name": "s", "namespace": "a"}, "data": {"key": "own"}})
    seen: list[Observed | None] = []

    def clash(found: Observed | None) -> Blocked:
        seen.append(found)
        return Blocked(reason="Clash", message="taken")

    outcome = _run(world, [_step(source, "a", again=clash), _step(source, "b")])
    assert [result for _, result in outcome.copied] == [Blocked(reason="Clash", message="taken"), None]
    assert [found.key for found in seen if found is not None] == ["a/s"]
    assert (world.get(SECRETS, "a/s")["data"], world.get(SECRETS, "b/s")["data"]) == ({"key": "own"}, {"key": "one"})


def test_a_copy_that_changes_all_the_time_is_left_to_the_queue() -> None:
    world = _StrictWorld()
    source = _source(world)
    _run(world, [_step(source, "a")])
    stale = world.observed(SECRETS, "a/s")
    world.patch(SECRETS, "a/s", {"data": {"key": "edited"}})

    def again(_: Observed | None) -> CopyStep:
        return _step(source, "a", stale, again=again)

    outcome = _run(world, [again(None)])
    assert "modified" in str(outcome.error)


def test_copies_into_a_namespace_that_is_gone_and_of_a_source_that_is_gone_end_in_silence() -> None:
    world = _StrictWorld()
    source = _source(world)
    assert _run(world, [_step(source, "absent")]).error is None
    world.delete(SECRETS, "core/s")
    assert _run(world, [_step(source, "a")]).error is None
    assert (SECRETS, "a/s") not in world.objects


def test_a_copy_is_deleted_by_its_uid() -> None:
    world = _StrictWorld()
    _run(world, [_step(_source(world), "a")])
    copy = world.observed(SECRETS, "a/s")
    world.delete(SECRETS, "a/s")
    world.put_in(SECRETS, {"metadata": {"name": "s", "namespace": "a"}, "data": {"key": "own"}})
    _run(world, [_step(None, "a", copy)])
    assert world.get(SECRETS, "a/s")["data"] == {"key": "own"}
    _run(world, [_step(None, "a", world.observed(SECRETS, "a/s"))])
    assert (SECRETS, "a/s") not in world.objects


def test_a_refused_copy_ends_the_plan_after_its_wave() -> None:
    world = _StrictWorld()
    source = _source(world)
    world.delete(Namespace.resource, "a")  # it terminates now
    outcome = _run(world, [_step(source, "a"), _step(source, "b")], [_step(source, "c")])
    assert outcome.error is not None
    assert not isinstance(outcome.error, NotFound)
    assert [result is None for _, result in outcome.copied] == [False, True]
    assert (SECRETS, "c/s") not in world.objects

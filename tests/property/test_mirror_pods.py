"""Whatever a pod contains, only listed fields and lower names reach the lower side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tenantry.mirror import shapes
from tenantry.mirror.names import lower_name
from tenantry.mirror.podchanges import PodChanges
from tenantry.mirror.podlimits import PodLimits, unfit
from tenantry.mirror.pods import TOKEN, down
from tenantry.mirror.podstatus import refused
from tenantry.mirror.references import CLAIM, places, references
from testkit.examples import examples
from testkit.mirroredpods import PAIRED
from testkit.mirroring import FULL, OWNER, PROFILE, changed, copied, lower_pod, status_up
from testkit.rfc7396 import merged

Json = dict[str, Any]
Path = tuple[str | int, ...]

# Fields listed here a second time, so that an addition is deliberate.
_SPEC = (
    "containers initContainers volumes restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy"
    " dnsConfig nodeSelector affinity topologySpreadConstraints tolerations securityContext hostname subdomain"
    " hostAliases hostNetwork hostPID hostIPC hostUsers shareProcessNamespace imagePullSecrets priorityClassName"
    " preemptionPolicy runtimeClassName enableServiceLinks readinessGates setHostnameAsFQDN os resources"
    " schedulingGates automountServiceAccountToken"
)
_CONTAINER = (
    "name image command args workingDir ports env envFrom resources resizePolicy restartPolicy volumeMounts"
    " volumeDevices livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath"
    " terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty"
)
SPEC, CONTAINER = set(_SPEC.split()), set(_CONTAINER.split())
_NOT_EPHEMERAL = "ports resources resizePolicy restartPolicy livenessProbe readinessProbe startupProbe lifecycle"
EPHEMERAL = CONTAINER - set(_NOT_EPHEMERAL.split()) | {"targetContainerName"}
METADATA = {"name", "namespace", "labels", "annotations", "ownerReferences"}
# Objects whose keys are data: a new key in them is no new field.
MAPS = ("labels", "annotations", "nodeSelector", "matchLabels", "requests", "limits", "volumeAttributes")
FORBIDDEN = (
    "nodeName",
    "serviceAccountName",
    "serviceAccount",
    "priority",
    "overhead",
    "ephemeralContainers",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "generateName",
    "status",
    "claims",
    "junk",
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from([*FORBIDDEN, *sorted(SPEC), *sorted(CONTAINER), "secretRef", "name", "key"]) | st.text(
    max_size=4
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def inside(value: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield all values of an object with their paths, the object itself first."""
    yield path, value
    parts: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        parts = [*cast("Json", value).items()]
    elif isinstance(value, list):
        parts = [*enumerate(cast("list[Any]", value))]
    for key, part in parts:
        yield from inside(part, (*path, key))


def at(whole: Json, path: Path) -> Json:
    """Return the object, or list, at a path."""
    value: Any = whole
    for key in path:
        value = value[key]
    return value


OBJECTS = [path for path, value in inside(FULL) if isinstance(value, dict) and (not path or path[-1] not in MAPS)]
PLACES = [path for path, _ in inside(FULL)]


@st.composite
def replaced(draw: st.DrawFn, whole: Json = FULL) -> Json:
    """Return a pod, the full one unless another is given, with anything in a few places."""
    pod: Any = copied(whole)
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        value = draw(ANYTHING)
        if not path:
            pod = value
            continue
        try:
            holder: Any = at(pod, path[:-1])
            holder[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    return pod


def check(lower: Json) -> None:
    """Assert that an object has only fields that the lower side may get."""
    assert set(lower) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(lower["metadata"]) <= METADATA
    assert lower["metadata"]["ownerReferences"] == [OWNER]
    assert lower["metadata"]["namespace"] == "lower"
    assert set(lower["spec"]) <= SPEC
    assert lower["spec"]["automountServiceAccountToken"] is False
    for container in [*lower["spec"].get("containers", []), *lower["spec"].get("initContainers", [])]:
        assert set(container) <= CONTAINER


@examples(200)
@given(st.lists(st.tuples(st.sampled_from(OBJECTS), st.sampled_from(FORBIDDEN), ANYTHING), min_size=1, max_size=6))
def test_unlisted_fields_have_no_effect(junk: list[tuple[Path, str, Any]]) -> None:
    pod = copied(FULL)
    # Found before the first write, which may replace what a later path leads through.
    holders = [at(pod, path) for path, _, _ in junk]
    for holder, (path, key, value) in zip(holders, junk, strict=True):
        if path == ("spec",) and (key.startswith("serviceAccount") or key == "ephemeralContainers"):
            continue  # The value of the one is shown to containers; the other goes down on its own, or is refused.
        holder[key] = value
    made = down(pod, PROFILE)
    assert made == down(FULL, PROFILE)
    check(made.object)


@examples(400)
@given(replaced())
def test_any_values_are_translated_or_refused(pod: Json) -> None:
    made = down(pod, PROFILE)
    assert bool(made.refusal) != bool(made.object)
    if made.refusal:
        assert (made.tokens, "\n" in made.refusal) == ((), False)
        return
    check(made.object)
    metadata = pod["metadata"]
    expected = {PROFILE.lower_name(each.kind, each.namespace, each.name) for each in references(pod)}
    if made.tokens:
        expected.add(PROFILE.lower_name(TOKEN, metadata["namespace"], metadata["name"]))
    found = {place.name for place in places(made.object["spec"]) if place.kind != CLAIM}
    assert found == expected


TRAVELS = PodLimits()
_FITTING_VOLUMES = [
    each
    for each in FULL["spec"]["volumes"]
    if not {"persistentVolumeClaim", "ephemeral", "hostPath", "projected"} & set(each)
]
_ROOT = {"serviceAccountToken": {"path": "token"}}
_INJECTED: Json = {"name": "kube-api-access-x", "projected": {"sources": [_ROOT, {"downwardAPI": {"items": []}}]}}
FITTING: Json = {**FULL, "spec": {**FULL["spec"], "volumes": [*_FITTING_VOLUMES, _INJECTED]}}
FITTING["metadata"] = {**FULL["metadata"], "namespace": "shop"}


@examples(300)
@given(replaced(FITTING))
def test_any_values_are_within_the_limits_or_refused(pod: Json) -> None:
    made = down(pod, PAIRED)
    assert bool(made.refusal) != bool(made.object)
    if made.refusal:
        return
    spec = made.object["spec"]
    assert unfit(spec, TRAVELS) == ""
    assert not set(TRAVELS.dropped) & set(spec)
    assert made.tokens == ()
    assert "serviceAccountToken" not in repr(spec.get("volumes"))
    expected = {each.name for each in made.needs}
    assert {place.name for place in places(spec) if place.kind != CLAIM and place.name} == expected


@examples(200)
@given(ANYTHING, ANYTHING, ANYTHING)
def test_no_input_stops_the_mirror(first: Json, second: Json, third: Json) -> None:
    for pod in (first, {"metadata": first, "spec": second, "status": third}, {**FULL, "spec": second}):
        down(pod, PROFILE)
        down(pod, PAIRED)
        unfit(shapes.part(pod, "spec"), TRAVELS)
        references(pod)
        for other in (lower_pod(FULL, phase="Running"), {"metadata": second, "spec": third, "status": first}):
            changed(pod, other)
            changed(FULL, other)
            status_up(pod, other)
            status_up(FULL, {**lower_pod(FULL), "spec": second, "status": {"conditions": third, "a": first}})
        refused(pod, "HostRefused", "too large", "2026-01-01T00:00:00Z")


@examples(200)
@given(st.lists(ANYTHING | st.dictionaries(st.sampled_from(sorted(CONTAINER)), ANYTHING, max_size=4), max_size=3))
def test_ephemeral_containers_have_only_listed_fields(containers: list[Any]) -> None:
    pod = copied(FULL)
    pod["spec"]["ephemeralContainers"] = containers
    made = down(pod, PROFILE)
    assert made.object == down(FULL, PROFILE).object
    assert not (made.ephemeral and made.ephemeral_refusal)
    for each in made.ephemeral:
        assert set(each) <= EPHEMERAL
    references(pod)


@examples(100)
@given(replaced())
def test_a_translation_is_repeatable_and_leaves_its_input_alone(pod: Json) -> None:
    before = repr(pod)
    made = down(pod, PROFILE)
    assert repr(pod) == before
    assert down(pod, PROFILE) == made
    # Nor does it share anything with its input: changing the result leaves the input alone, too.
    for _, value in [*inside(made.object)]:
        if isinstance(value, dict):
            value["changed"] = True
        elif isinstance(value, list):
            cast("list[object]", value).append("changed")
    assert repr(pod) == before
    assert "changed" not in OWNER


LABEL_KEYS = st.sampled_from(
    ["app", "a/b", "example.dev/owner", "x.example.dev/a", "tenantry.dev/zone", "A.Tenantry.DEV/b"]
)
LABELS = st.dictionaries(LABEL_KEYS, st.sampled_from(["1", "2", ""]), max_size=5)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.sampled_from(["1", "2", 2]))
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})


@st.composite
def edited(draw: st.DrawFn) -> Json:
    """Return the full pod as its users may have changed it."""
    pod = copied(FULL)
    pod["metadata"] |= {"labels": draw(LABELS), "annotations": draw(LABELS), "generation": draw(st.integers(2, 9))}
    spec = pod["spec"]
    spec["containers"][0]["image"] = draw(st.sampled_from(["web:1", "web:2"]))
    spec["tolerations"] = draw(
        st.lists(
            st.fixed_dictionaries({"key": st.sampled_from("abc"), "tolerationSeconds": st.integers(1, 3)}), max_size=4
        )
    )
    spec["schedulingGates"] = draw(st.sampled_from([[], FULL["spec"]["schedulingGates"]]))
    spec["activeDeadlineSeconds"] = draw(st.integers(1, 9))
    spec["ephemeralContainers"] = draw(st.lists(st.fixed_dictionaries({"name": st.sampled_from("abc")}), max_size=2))
    spec["containers"][0]["resources"] = draw(RESOURCES)
    spec["resources"] = draw(RESOURCES)
    return pod


@examples(200)
@given(LABELS, LABELS)
def test_marks_of_users_do_not_pass(labels: dict[str, str], annotations: dict[str, str]) -> None:
    pod = copied(FULL)
    pod["metadata"] |= {"labels": labels, "annotations": annotations}
    metadata = down(pod, PROFILE).object["metadata"]
    free = {"app", "a/b"}
    assert {key for key in metadata["labels"] if not key.startswith("example.dev/")} == free & set(labels)
    assert {key for key in metadata["annotations"] if not key.startswith("example.dev/")} == free & set(annotations)
    assert metadata["labels"]["example.dev/owner"] == "u-plane"


@examples(200)
@given(edited(), edited())
def test_a_lower_pod_follows_in_one_patch(first: Json, second: Json) -> None:
    live = lower_pod(first)
    live["metadata"]["labels"]["lower"] = "own"
    found = changed(second, live)
    after = merged(merged(merged(live, found.pod), found.ephemeral), found.resize)
    assert changed(second, after) == PodChanges()
    expected = lower_pod(second)["metadata"]
    assert after["metadata"]["labels"] == {**expected["labels"], "lower": "own"}
    assert after["metadata"]["annotations"] == expected["annotations"]


CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Ready", "PodScheduled", "example.com/ready"]),
            "status": st.sampled_from(["True", "False"]),
        },
        optional={"observedGeneration": st.integers(1, 3)},
    ),
    max_size=4,
    unique_by=lambda each: str(each["type"]),
)
STATUSES = st.fixed_dictionaries(
    {"phase": st.sampled_from(["Pending", "Running"])},
    optional={
        "conditions": CONDITIONS,
        "observedGeneration": st.integers(1, 3),
        "qosClass": st.sampled_from(["BestEffort", "Burstable"]),
        "nominatedNodeName": st.just("n"),
        "containerStatuses": st.just([{"name": "web", "ready": True}]),
    },
)


@examples(200)
@given(edited(), edited(), STATUSES, STATUSES, st.integers(1, 3))
def test_a_status_goes_up_once(pod: Json, before: Json, old: Json, found: Json, generation: int) -> None:
    lower = lower_pod(before, **found)
    lower["metadata"]["generation"] = generation
    pod["status"] = old
    status = status_up(pod, lower)
    if status is not None:
        pod["status"] = status
        assert "nominatedNodeName" not in status
    assert status_up(pod, lower) is None


PARTS = st.tuples(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6), st.text(max_size=50))


@examples(200)
@given(PARTS, PARTS)
def test_lower_names_are_valid_and_do_not_collide(
    first: tuple[str, str, str, str], second: tuple[str, str, str, str]
) -> None:
    one, other = lower_name(*first), lower_name(*second)
    assert (one == other) == (first == second)
    assert len(one) <= 57
    for label in one.split("."):
        assert label
        assert label.strip("-") == label
        assert set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")

"""X10: what an import refuses of untrusted or incomplete input, each in one sentence that names the object."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result

from tenantry.api.errors import InputError
from tenantry.cli.imports.command import import_
from tenantry.world.imports.form import ImportOptions
from tenantry.world.imports.objects import read
from tenantry.world.imports.sources import SOURCES
from testkit.imports import STORIES, ImportStory, documents

Json = dict[str, Any]


def namespace(name: str, **metadata: object) -> tuple[str, object]:
    return "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def claim(story: ImportStory) -> Json:
    """Return the metadata by which a namespace of a story names its tenant."""
    return {key: value for key, value in next(iter(story.namespaces.values())).items() if key != "ownerReferences"}


def refusal(story: ImportStory, found: list[tuple[str, object]], options: ImportOptions | None = None) -> str:
    with pytest.raises(InputError) as error:
        story.source.plan(read(story.source, found), options or ImportOptions())
    text = str(error.value)
    assert text.isprintable(), "one line, and no control characters"
    return text


every_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.source.name)


@every_story
@pytest.mark.parametrize("name", ["kube-system", "default", "tenantry-system"])
def test_a_namespace_of_the_cluster_is_not_taken(story: ImportStory, name: str) -> None:
    """X10: whatever its labels say."""
    text = refusal(story, [*documents(story), namespace(name, **claim(story))])
    assert f"claims the namespace '{name}', which belongs to the cluster or to Tenantry" in text


@every_story
def test_a_namespace_of_another_tenant_is_not_taken(story: ImportStory) -> None:
    """X10: a label of Tenantry decides."""
    given = claim(story)
    labels = {**given.get("labels", {}), "tenantry.dev/tenant": "other"}
    text = refusal(story, [*documents(story), namespace("theirs", **{**given, "labels": labels})])
    assert "claims the namespace 'theirs', which belongs to the tenant 'other' already" in text


@every_story
def test_labels_of_our_domain_are_refused(story: ImportStory) -> None:
    """X10: a namespace cannot bring rights with it."""
    given = claim(story)
    labels = {**given.get("labels", {}), "tenantry.dev/control-plane": "stolen"}
    text = refusal(story, [*documents(story), namespace("marked", **{**given, "labels": labels})])
    assert "the namespace 'marked'" in text
    assert "has the label 'tenantry.dev/control-plane', which only Tenantry sets: remove it" in text


@every_story
def test_a_name_with_escapes_is_refused(story: ImportStory) -> None:
    """X10: and shown without them."""
    text = refusal(story, [*documents(story), namespace("x\x1b[2J\nlost: all", **claim(story))])
    assert "\\x1b[2J\\nlost: all" in text


@every_story
def test_a_tenant_that_was_not_read_is_named(story: ImportStory) -> None:
    """X10: files are incomplete."""
    found = [each for each in documents(story) if cast("Json", each[1])["kind"] == "Namespace"]
    text = refusal(story, found)
    assert "which was not read: add it to the files" in text


@every_story
def test_an_unknown_tenant_is_refused(story: ImportStory) -> None:
    """X10: with those that there are."""
    text = refusal(story, documents(story), ImportOptions(roots=("nothing",)))
    assert "'nothing'; there are " in text
    assert story.tenant in text


@every_story
def test_an_object_that_is_there_twice_is_refused(story: ImportStory) -> None:
    """X10: which of the two counts is not known."""
    found = documents(story)
    text = refusal(story, [*found, found[0]])
    assert "is there twice; leave one of the two out" in text


@every_story
def test_two_namespaces_of_one_name_are_refused_if_they_differ(story: ImportStory) -> None:
    """X10: they are of two clusters, and which of the two counts is not known."""
    found = documents(story)
    text = refusal(story, [*found, namespace("kube-system", uid="1"), namespace("kube-system", uid="2")])
    assert "two Namespaces 'kube-system' differ; leave one of the two out" in text
    same = read(story.source, [*found, *found[len(story.objects) :]])
    assert same.namespaces == read(story.source, found).namespaces


@pytest.mark.parametrize("story", STORIES[:2], ids=lambda story: story.source.name)
def test_two_tenants_that_claim_a_namespace_are_refused(story: ImportStory) -> None:
    """X10: it can belong to one only."""
    found = documents(story)
    first = copy.deepcopy(cast("Json", found[0][1]))
    first["metadata"]["name"] = "second"
    owner = {"apiVersion": first["apiVersion"], "kind": first["kind"], "name": "second", "uid": "u"}
    text = refusal(story, [*found, ("second", first), namespace("both", **claim(story), ownerReferences=[owner])])
    assert "both claim the namespace 'both'" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"namespaceOptions": {"additionalMetadata": {"labels": {"tenantry.dev/tenant": "x"}}}},
            "'tenantry.dev/tenant'",
        ),
        ({"owners": [{"kind": "Group", "name": "system:masters"}]}, "has no owner that may own a Tenant"),
        ({"owners": "alice"}, "spec.owners must be a list"),
        ({"namespaceOptions": {"quota": -1}}, "spec.namespaceOptions.quota must be a whole number"),
        ({"resourceQuotas": {"scope": "World"}}, "spec.resourceQuotas.scope is 'World'"),
        ({"cordoned": "yes"}, "spec.cordoned must be true or false"),
    ],
)
def test_wrong_fields_are_named(change: Json, message: str) -> None:
    """X10: with the object and the path."""
    story = STORIES[0]
    found = documents(story)
    tenant = copy.deepcopy(cast("Json", found[0][1]))
    tenant["spec"] |= change
    text = refusal(story, [("t", tenant), *found[1:]])
    assert message in text
    assert "Capsule Tenant 'oil'" in text


def test_a_view_right_never_becomes_an_owner() -> None:
    """X10: an import gives no one more than the other tool did."""
    story = STORIES[0]
    found = documents(story)
    tenant = copy.deepcopy(cast("Json", found[0][1]))
    tenant["spec"]["owners"] = [{"kind": "User", "name": "eve", "clusterRoles": ["view"]}]
    assert "has no owner" in refusal(story, [("t", tenant), *found[1:]])


# -- the command ----------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(import_, arguments)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_files_without_namespaces_name_the_command_that_reads_all(tmp_path: Path, source: Any) -> None:  # noqa: ANN401
    """X10: incomplete input says what to do."""
    story = next(each for each in STORIES if each.source is source)
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all([value for _, value in documents(story)[: len(story.objects)]]))
    done = run(source.name, "-f", str(file))
    assert isinstance(done.exception, InputError)
    assert f"the files have no Namespaces: write all that the import reads with `{source.listing}`" in str(
        done.exception
    )
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply", "--undo"], "give only one of --apply, --undo and --commit"),
        (["--undo", "-f", "x"], "--undo and --commit read the cluster: leave out -f"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(arguments: list[str], message: str) -> None:
    """X10: before anything is read."""
    done = run("capsule", *arguments)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)

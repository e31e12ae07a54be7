"""Files of tenants: all of it is right, or the error names each place and field, and nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import InputError
from tenantry.cli.documents import read_manifests

GOOD = (
    "apiVersion: tenantry.dev/v1alpha1\nkind: Tenant\nmetadata: {name: %s}\nspec: {owners: [{kind: User, name: ada}]}\n"
)


def read(folder: Path, text: str) -> list[str]:
    file = folder / "t.yaml"
    file.write_text(text)
    return [tenant.metadata.name for tenant in read_manifests([str(file)]).tenants]


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    return str(caught.value).replace(str(folder), "")


def test_documents_in_their_order(tmp_path: Path) -> None:
    assert read(tmp_path, f"---\n{GOOD % 'b'}---\n{GOOD % 'a'}---\n") == ["b", "a"]


def test_what_kubectl_get_prints_is_taken(tmp_path: Path) -> None:
    text = """
apiVersion: v1
kind: List
items:
- apiVersion: tenantry.dev/v1alpha1
  kind: Tenant
  metadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z, managedFields: [{manager: x}], generation: 1}
  spec: {owners: [{kind: User, name: ada}], quota: null}
  status: {observedGeneration: 1, conditions: []}
"""
    assert read(tmp_path, text) == ["a"]


def test_json_is_yaml(tmp_path: Path) -> None:
    text = (
        '{"apiVersion":"tenantry.dev/v1alpha1","kind":"Tenant",\n'
        ' "metadata":{"name":"a"},"spec":{"owners":[{"kind":"User","name":"ada"}]}}'
    )
    assert read(tmp_path, text) == ["a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "/t.yaml: has no documents; it must hold Tenants"),
        ("a: [", "/t.yaml: is not YAML: line 1, column 5: expected the node content, but found '<stream end>'"),
        ("a: 1\na: 2", "/t.yaml: is not YAML: line 2, column 1: key 'a' stands twice"),
        ("!!python/object:os.system x", "is not YAML"),
        ("just words", "/t.yaml: must be a map with apiVersion, kind, metadata and spec, not 'just words'"),
        ("kind: Pod\napiVersion: v1", "kind is 'Pod'; it must be 'Tenant'"),
        (GOOD % "a" + "---\n" + GOOD % "a", "/t.yaml, document 2: metadata.name must not be 'a' again"),
        (GOOD % "kube-a", "metadata.name is 'kube-a'; it must not"),
        (GOOD % "a" + "status: {phase: x}", "status.phase must not be set: the field is unknown; fields are"),
        (
            GOOD.replace("owners", "owner") % "a",
            "spec.owner must not be set: the field is unknown; did you mean owners?",
        ),
        (GOOD.replace("name: ada", "name: 5") % "a", "spec.owners[0].name must be a string, not 5; put it in quotes"),
        ("a: &a [*a]", "holds more than 2,000,000 values"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    """E15: the place, the field and the fix."""
    assert said in complaint(tmp_path, text)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    said = complaint(tmp_path, GOOD % "kube-a" + "---\n" + GOOD.replace("User", "Usr") % "b")
    assert said.splitlines() == [
        "nothing was done, because of:",
        (
            "  /t.yaml, document 1: metadata.name is 'kube-a'; it must not be default nor begin with kube- or tenantry-"
            ", which are reserved: choose another name"
        ),
        (
            "  /t.yaml, document 2: spec.owners[0].kind is 'Usr'; it must be one of User, Group, ServiceAccount;"
            " did you mean User?"
        ),
    ]


def test_shapes_and_rules_are_reported_at_once(tmp_path: Path) -> None:
    """E15: the API server evaluates no rules on an object of a wrong shape; here, one step fixes all."""
    said = complaint(
        tmp_path,
        """
apiVersion: tenantry.dev/v1alpha1
kind: Tenant
metadata: {name: kube-a}
spec:
  owners: [{kind: Robot, name: "system:x"}, {kind: User, name: "system:y"}]
  suspended: maybe
  quota: {hard: {cpu: many}}
  rules: {images: {allowed: ["a("]}}
""",
    )
    fields = [line.split()[1] for line in said.splitlines()[1:]]
    assert fields == [
        *("spec.owners[0].kind", "spec.suspended", "metadata.name"),
        *("spec.owners[1].name", "spec.quota.hard[cpu]", "spec.rules.images.allowed[0]"),
    ]


def test_rules_that_depend_on_a_wrong_field_are_not_reported(tmp_path: Path) -> None:
    """E15: whether a Subnamespace needs owners depends on its mode."""
    text = (
        "apiVersion: tenantry.dev/v1alpha1\nkind: Subnamespace\nmetadata: {name: web, namespace: acme}\n"
        "spec: {mode: Workspce, inheritance: {roleBindings: Sync}}\n"
    )
    assert complaint(tmp_path, text).splitlines() == [
        "/t.yaml: spec.mode is 'Workspce'; it must be one of Workspace, Subtenant; did you mean Workspace?"
    ]


def test_the_files_of_a_folder_are_read(tmp_path: Path) -> None:
    """E15: with folders below it, and without files of other kinds."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "b.yaml").write_text(GOOD % "b")
    (tmp_path / "inner/a.yml").write_text(GOOD % "a")
    (tmp_path / "README.md").write_text("no YAML: [")
    assert [tenant.metadata.name for tenant in read_manifests([str(tmp_path)]).tenants] == ["b", "a"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: has no files that end in \.yaml"):
        read_manifests([str(tmp_path / "empty")])


def test_a_laugh_is_cut_short(tmp_path: Path) -> None:
    text = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert "holds more than" in complaint(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.yaml: cannot be read: No such file"):
        read_manifests([str(tmp_path / "no.yaml")])


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_bytes(b"kind: \xff")
    with pytest.raises(InputError, match="must be UTF-8; byte 6 is not"):
        read_manifests([str(file)])

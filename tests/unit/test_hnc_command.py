"""X10: `tenantry import hnc` with files: no cluster is needed or asked."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from tenantry.api.errors import InputError
from tenantry.cli.imports.command import import_

ANCHOR = """\
apiVersion: hnc.x-k8s.io/v1alpha2
kind: SubnamespaceAnchor
metadata: {namespace: acme, name: %s}
"""


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(import_, ["hnc", "--owner", "ada", *arguments], input=stdin)


def test_files_folders_and_stdin_are_read_together(tmp_path: Path) -> None:
    """X10: what is in a folder and below it, too."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "one.yaml").write_text(ANCHOR % "one")
    (tmp_path / "inner" / "two.yml").write_text(ANCHOR % "two")
    (tmp_path / "notes.txt").write_text("no: [yaml")
    done = run("-f", str(tmp_path), "-f", "-", stdin=ANCHOR % "three")
    assert done.exit_code == 0, done.exception
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(done.stdout)]
    assert names == ["acme", "one", "three", "two"]


def test_json_is_one_list_and_stderr_says_what_is_different(tmp_path: Path) -> None:
    """X10: data on stdout, talk on stderr."""
    file = tmp_path / "hnc.yaml"
    file.write_text(ANCHOR % "one")
    done = run("-f", str(file), "--network", "isolated", "-o", "json")
    items = msgspec.json.decode(done.stdout)["items"]
    assert [item["kind"] for item in items] == ["Tenant", "Subnamespace"]
    assert done.stderr == ("note: HNCConfiguration: not found: only Roles and RoleBindings are propagated\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no files that end in .yaml, .yml, .json"),
        ("a: [b", "is not YAML"),
        ("", "has no documents; it must hold HNC's objects"),
        ("kind: 3", "must be a Kubernetes object"),
        ("{apiVersion: v1, kind: Namespace, metadata: {name: a}}", "no HNC tree found"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    """X10: with the place."""
    if text is not None:
        (tmp_path / "x.yaml").write_text(text)
    done = run("-f", str(tmp_path))
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
    assert done.stdout == ""

"""The grammar of the command line (H04): the same verbs for every noun, one flag for one thing, old spellings warn."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import tenantry
from tenantry.api.kinds import KINDS
from tenantry.cli import kinds
from tenantry.cli.main import HIDDEN, OLD, TASKS, VERBS, load
from tenantry.cli.nouns import NOUNS
from tenantry.cli.nouns import VERBS as NOUN_VERBS
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.spellings import RespelledOption, moved, option

LISTS = [(noun, verb) for noun in NOUNS for verb in ("list", "get")]


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and those in it, without old spellings."""
    yield path, command
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        if not inner.hidden:
            yield from commands(inner, f"{path} {name}")


ALL = [found for verb in VERBS for found in commands(load(verb), verb)]


def options(command: click.Command, flag: str) -> list[click.Parameter]:
    return [each for each in command.params if flag in each.opts]


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_has_the_same_verbs(noun: str) -> None:
    group = load(noun)
    assert isinstance(group, click.Group)
    assert [verb for verb in NOUN_VERBS if verb not in group.commands or group.commands[verb].hidden] == []


def test_a_group_with_the_verbs_of_a_noun_is_a_noun() -> None:
    """A new group that creates and lists objects is added to NOUNS, and so gets all verbs."""
    groups = [verb for verb in VERBS if isinstance(load(verb), click.Group)]
    both = [verb for verb in groups if {"create", "get"} <= set(getattr(load(verb), "commands", {}))]
    assert sorted(both) == sorted(NOUNS)


def test_no_verb_is_the_plural_of_a_noun() -> None:
    assert {f"{noun}s" for noun in NOUNS} & set(VERBS) == set()


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_a_flag_means_the_same_everywhere(path: str, command: click.Command) -> None:
    """H04: --for is a duration outside of `wait`, --cluster is the local cluster, and --name and --because are old."""
    assert options(command, "--name") == []
    assert options(command, "--because") == []
    for each in options(command, "--for"):
        metavar = each.metavar or ""
        assert metavar.startswith("ready|") if path.endswith("wait") else "DURATION" in metavar
    for each in options(command, "--cluster"):
        assert isinstance(each, RespelledOption)
        assert each.old == "--name"


def test_no_message_names_the_old_flag_of_a_local_cluster() -> None:
    """H04: only the spellings `old="--name"` contain it; `--name=local` is a flag of etcd."""
    found: list[str] = []
    for file in sorted(Path(tenantry.__path__[0]).rglob("*.py")):
        tree = ast.parse(file.read_text())
        old = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg == "old"}
        texts = [each for each in ast.walk(tree) if isinstance(each, ast.Constant) and id(each) not in old]
        found += [f"{file.name}:{each.lineno}" for each in texts if re.search(r"--name(?![\w=-])", str(each.value))]
    assert found == []


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_a_path_names_an_object_wherever_a_namespace_and_a_name_do(path: str, command: click.Command) -> None:
    """H04: `sub get acme/web/staging` is `sub get staging -n acme/web`; `words` are resolved by `place.settle`."""
    names = [each for each in command.params if isinstance(each, click.Argument) and each.name != "words"]
    is_placed = [each.type is NAMESPACED_NAME for each in names if each.metavar in {"NAME", "NAME..."}]
    has_words = any(each.name == "words" for each in command.params)
    # A new cluster may have no host yet, in which a path could lead anywhere; `name` takes a parent.
    apart = {"cluster create", "name", "explain who-can"}
    if options(command, "--namespace") and not has_words and path not in apart:
        assert all(is_placed)
    elif not has_words:
        assert not any(is_placed)


def test_the_help_has_the_tasks_of_a_user_in_order() -> None:
    assert list(TASKS) == [
        "Manage tenants",
        "Work inside a tenant",
        "Nodes",
        "Look and explain",
        "Local clusters",
        "Install",
    ]
    listed = [verb for verbs in TASKS.values() for verb in verbs]
    assert sorted(listed) == sorted(set(listed))


@pytest.mark.parametrize("old", OLD)
def test_an_old_verb_is_hidden_and_names_the_new_one(old: str) -> None:
    assert old not in {**VERBS, **HIDDEN}
    said = CliRunner().invoke(load(old), ["--kubeconfig", "/nowhere"])
    assert f"is now `tenantry {' '.join(OLD[old])}`" in said.stderr


@pytest.mark.parametrize(
    ("group", "old", "new"),
    [
        ("slice", "claim", "create"),
        ("slice", "release", "delete"),
        ("peer", "connect", "create"),
        ("peer", "remove", "delete"),
        ("node", "add", "create"),
        ("node", "remove", "delete"),
        ("request", "tenant", "create"),
        ("request", "role", "create"),
        ("request", "clusterrole", "create"),
    ],
)
def test_an_old_command_is_hidden(group: str, old: str, new: str) -> None:
    found = load(group)
    assert isinstance(found, click.Group)
    assert found.commands[old].hidden
    assert not found.commands[new].hidden
    assert f"  {old}  " not in found.get_help(click.Context(found))


def test_an_old_flag_works_and_warns_on_stderr() -> None:
    @click.command()
    @option("--reason", "given", old="--because", default="")
    @option("--subnamespace", "names", old="--for", multiple=True)
    def command(given: str, names: tuple[str, ...]) -> None:
        click.echo(f"{given} {','.join(names)}")

    run = CliRunner().invoke
    new = run(command, ["--reason", "why", "--subnamespace", "web"])
    assert (new.stdout, new.stderr) == ("why web\n", "")
    old = run(command, ["--because=why", "--for", "web", "--subnamespace", "shop"])
    assert old.stdout == "why web,shop\n"
    assert "`--because` is now `--reason`" in old.stderr
    assert "`--for` is now `--subnamespace`" in old.stderr
    assert "--because" not in run(command, ["--help"]).stdout
    assert run(command, ["--reason", "new", "--because", "old"]).stdout == "new \n"


def test_an_old_command_works_and_warns_on_stderr() -> None:
    @click.command()
    @click.argument("name")
    def create(name: str) -> None:
        click.echo(name)

    group = click.Group("slice", commands=[create, moved(create, "claim", "tenantry slice create")])
    said = CliRunner().invoke(group, ["claim", "web"])
    assert said.stdout == "web\n"
    assert "is now `tenantry slice create`" in said.stderr
    assert CliRunner().invoke(group, ["create", "web"]).stderr == ""


def test_a_name_that_is_printed_names_a_kind_of_kubernetes_too() -> None:
    node = kinds.find_kind("nodes")
    assert kinds.full_name(node, "n1") == "node/n1"
    assert node not in KINDS

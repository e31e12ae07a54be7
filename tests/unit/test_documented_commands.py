"""Every `tenantry` command that a document shows exists, with the flags that it is shown with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tenantry.cli.main import HIDDEN, VERBS, load

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
LINE = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?tenantry (?P<words>.+)$", re.MULTILINE)
QUOTED = re.compile(r"`(?:\.venv/bin/)?tenantry (?P<words>[^`]+)`")
END = re.compile(r"\s(?:#|\||>|&&|\\)")
"""What follows in a shell is no part of the command."""


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a document, without the name of the program."""
    for pattern in (LINE, QUOTED):
        for found in pattern.finditer(text):
            yield END.split(found["words"])[0].strip()


def problems(words: list[str]) -> Iterator[str]:
    """Yield the verbs and the long flags of a command line that do not exist."""
    verb, *rest = words
    if verb not in {**VERBS, **HIDDEN}:
        yield verb
        return
    command = load(verb)
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
        if command.hidden:
            yield f"old spelling {command.name}"
    known = {each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word == "--":
            return
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in {*known, "--help"}:
            yield flag


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_in_a_document_exists(path: Path) -> None:
    """X05: a reader can type what a page shows."""
    missing: list[str] = []
    for command in commands(path.read_text()):
        if re.match(r"[a-z]", command):
            words = shlex.split(command.replace("'", "") if command.count("'") % 2 else command)
            missing += [f"tenantry {command}: {problem}" for problem in problems(words)]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$ tenantry tre umbrella", "tre"),
        ("Run `tenantry up --node 3`.", "--node"),
        ("`tenantry slice claim fast`", "old spelling claim"),
        (".venv/bin/tenantry slice create fast --parts cpu=2  # no such flag", "--parts"),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, found: str) -> None:
    (command,) = commands(text)
    assert list(problems(shlex.split(command))) == [found]

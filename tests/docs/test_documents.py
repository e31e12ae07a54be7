"""Run the commands of the documentation as a reader would type them. tests/e2e/test_newcomer.py runs the README.

In a block ```` ```console ````, a line that begins with "$ " is a command, and the lines below are its output. Each of
them must occur in the real output, in this order; "..." stands for any text. A command with an error in its output
must fail, every other one must succeed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from testkit.shell import ROOT, Session

RELEASE = {"tutorial-hierarchy.md", "tutorial-slices.md"}
"""Tests of the same commands run in `make test`: these documents and all how-to wait for `make test-release`."""
FILES = sorted(path for path in (ROOT / "docs").glob("*.md") if "```console" in path.read_text())
DOCUMENTS = [path for path in FILES if path.name not in RELEASE]
LATER = [
    *(path for path in FILES if path.name in RELEASE),
    *sorted(path for path in (ROOT / "docs" / "how-to").glob("*.md") if "```console" in path.read_text()),
]

FAILED = re.compile(r"^(error|Error|tenantry: )", re.MULTILINE)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a block, each with the expected lines of its output."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and line.strip():
            found[-1][1].append(line)
    return found


def check(command: str, expected: list[str], code: int, output: str) -> None:
    """Compare the result of a command with the document."""
    should_fail = bool(FAILED.search("\n".join(expected)))
    assert (code != 0) == should_fail, f"$ {command}\nexit code {code}\n{output}"
    rest = output.splitlines()
    for line in expected:
        pattern = re.compile(r"\s*".join(".*" if part == "..." else re.escape(part) for part in _parts(line)))
        while rest and not pattern.search(rest[0]):
            rest.pop(0)
        assert rest, f"$ {command}\nprints no line like {line!r} (in this order):\n{output}"
        rest.pop(0)


def _parts(line: str) -> list[str]:
    return [part for piece in re.split(r"(\.\.\.)", line) for part in ([piece] if piece == "..." else piece.split())]


def test_expectations_can_fail() -> None:
    check("true", ["a ... c"], 0, "x\na b c\n")
    with pytest.raises(AssertionError, match="prints no line like"):
        check("true", ["a ... d"], 0, "a b c\n")
    with pytest.raises(AssertionError, match="exit code 1"):
        check("false", [], 1, "")
    with pytest.raises(AssertionError, match="exit code 0"):
        check("true", ["Error from server: no"], 0, "Error from server: no\n")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "path",
    [*DOCUMENTS, *(pytest.param(path, marks=pytest.mark.long) for path in LATER)],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_commands_do_what_the_document_says(path: Path, tmp_path: Path) -> None:
    """E01, E02, B03: as a reader of the documentation runs them."""
    session = Session(tmp_path)

    def evaluate(example: Example) -> None:
        for command, expected in commands(example.parsed):
            check(command, expected, *session.run(command))

    document = Sybil(parsers=[CodeBlockParser(language="console", evaluator=evaluate)]).parse(path)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        session.down()


def test_links_of_the_readme_exist() -> None:
    """The site does not contain the README, so `make docs` does not check its links."""
    links = re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_hints_of_the_demo_work(tmp_path: Path) -> None:
    session = Session(tmp_path)
    try:
        code, output = session.run(f"cd {ROOT} && {sys.executable} tools/demo.py")
        assert code == 0, output
        hints = output.partition("To try next:")[2].split("\n  ")[1:]
        assert len(hints) > 2, output
        for hint in hints:
            # The command asks for confirmation before it deletes data.
            command = hint.strip() + (" --yes" if "--purge" in hint else "")
            code, output = session.run(f"cd {ROOT} && {command}")
            assert code == 0, f"$ {command}\nexit code {code}\n{output}"
    finally:
        session.down()

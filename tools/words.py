"""Find pronouns for unnamed people in source and documentation; with `--report`, only list them.

A sentence with such a pronoun hides the actor: a tenant, an owner, an administrator, the operator, a kubelet. A word in
backquotes is a quotation. In Markdown, so is a fenced block of a command with its output.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SUGGESTIONS = {
    "somebody": "name the actor (a user, an administrator, another client), or the owner of the thing",
    "anybody": 'write "any user", "another client" or "other tenants"',
    "nobody": 'write "no user", "no tenant" or "only administrators"',
    "everybody": 'write "every tenant", "all users" or "any client"',
    "whoever": 'name the actor: "the caller", "the creator", "a user who …"',
}

ALLOWED = {
    ("tools/words.py", ""): "the words themselves",
    ("src/tenantry/local/real/images.py", "65534"): "the Unix user and group of that name",
}
"""A file (or a folder that ends with "/") and a fragment of the line: why the word may stand there."""

_API = re.compile(
    r"for[-_]everybody|Users\.EVERYBODY|EVERYBODY = \"Everybody\"|\"Everybody\"|users: Everybody|- Everybody$"
    r"|Everybody: this namespace"
)
"""The value of SliceClaim.spec.users and its flag: another name would make the API server reject stored claims.

Each alternative is one spelling in code, YAML or help, so that a message such as "kept for everybody" is still found.
"""

_WORD = re.compile("|".join(SUGGESTIONS), re.IGNORECASE)
_QUOTED = re.compile(r"`[^`\n]*`")
_OUTPUT = re.compile(r"^```(?:console|text)\n.*?^```", re.MULTILINE | re.DOTALL)


def files() -> list[Path]:
    """Return the text files of the repository, without lock files and licence."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    skipped = ("requirements/", "LICENSE")
    return [ROOT / name for name in names if name and not name.startswith(skipped) and not name.endswith(".sum")]


def findings(path: Path) -> list[str]:
    """Return a line for each word that may not stand in a file: where, what, and a suggestion."""
    try:
        text = path.read_text()
    except (UnicodeDecodeError, FileNotFoundError):
        return []  # A binary file, or one that was deleted and not committed yet.
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md":
        text = _OUTPUT.sub(lambda block: "\n" * block[0].count("\n"), text)
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = _WORD.findall(_API.sub("", _QUOTED.sub("", line)))
        if words and not is_allowed(name, line):
            found.append(f"{name}:{number}: {words[0]!r}: {SUGGESTIONS[words[0].lower()]}")
    return found


def is_allowed(name: str, line: str) -> bool:
    """Return whether the list of exceptions covers a line."""
    return any(
        (name.startswith(place) if place.endswith("/") else name == place) and fragment in line
        for place, fragment in ALLOWED
    )


def main() -> int:
    """Print all findings; return 1 if there are any, except with --report."""
    found = [line for path in files() for line in findings(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found and "--report" not in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Run all checks that need no cluster: `make check`. Every check runs; the failed ones are listed at the end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"


def checks() -> list[tuple[str, list[str | Path]]]:
    """Return each check's name and command."""
    found: list[tuple[str, list[str | Path]]] = [
        ("ruff check", [BIN / "ruff", "check", "--quiet"]),
        ("ruff format", [BIN / "ruff", "format", "--check", "--quiet"]),
        ("basedpyright", [BIN / "basedpyright"]),
        ("import-linter", [BIN / "lint-imports", "--no-logo"]),
        ("gofmt", [BIN / "python", ROOT / "tools" / "go.py", "gofmt"]),
        ("go vet", [BIN / "python", ROOT / "tools" / "go.py", "vet", "./..."]),
        # The first run reads all of Kubernetes, which takes two minutes; later ones take a second.
        ("staticcheck", [BIN / "python", ROOT / "tools" / "go.py", "staticcheck"]),
    ]
    generate = ROOT / "tools" / "generate.py"
    if generate.exists():
        found.append(("generated files", [BIN / "python", generate, "--check"]))
    found.append(("conventions", [BIN / "python", ROOT / "tools" / "conventions.py"]))
    found.append(("words", [BIN / "python", ROOT / "tools" / "words.py"]))
    return found


def main() -> int:
    """Run all checks; return 1 if one failed."""
    failed: list[str] = []
    for name, command in checks():
        started = time.monotonic()
        print(f"check: {name}", flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
        print(f"check: {name} {'FAILED' if name in failed else 'ok'} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"check: failed: {', '.join(failed)}" if failed else "check: all passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

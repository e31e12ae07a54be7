"""Start a local cluster with tenants: `make demo`. Each command is printed before it runs, as a user would type it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TENANTRY = Path(".venv/bin/tenantry")
# The environment of every command: the demo must not use the viewer's own KUBECONFIG.
NAME = "default"


def tenantry(*arguments: str, show: bool = True) -> str:
    """Run one command of Tenantry, print its output and return it; if it fails, the demo ends."""
    command = [str(TENANTRY), *arguments]
    if show:
        print(f"\n$ {shlex.join(command)}", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if show:
        print(done.stdout, end="", flush=True)
    if done.returncode:
        print(f"demo: this failed (exit code {done.returncode}); see `{TENANTRY} status`", file=sys.stderr)
        sys.exit(done.returncode)
    return done.stdout


def main() -> None:
    """Start a cluster, create the tenants of examples/quickstart, show them, and suggest further commands."""
    started = time.monotonic()
    tenantry("up", "--cluster", NAME, "--nodes", "3")
    tenantry("kubectl", "--cluster", NAME, "--", "apply", "-f", "examples/quickstart/")
    tenantry(
        *("kubectl", "--cluster", NAME, "--", "wait", "tenants.tenantry.dev", "--all"),
        *("--for=condition=Ready", "--timeout=60s"),
    )
    tenantry("tree", "--cluster", NAME)
    listed = ("kubectl", "--cluster", NAME, "--", "get", "tenants.tenantry.dev", "-o", "name")
    first = tenantry(*listed, show=False).split()[0].rpartition("/")[2]
    chosen = os.environ.get("KUBECONFIG") or os.environ.get("TENANTRY_NAME", NAME) != NAME
    name = f" --cluster {NAME}" if chosen else ""
    print(f"""
{time.monotonic() - started:.1f} s. To try next:

  {TENANTRY} describe{name} tenant {first}
  {TENANTRY} tenant create{name} mine --owner User:me@example.com --quota cpu=2,memory=4Gi
  {TENANTRY} kubectl{name} -- get namespaces,resourcequotas -A
  {TENANTRY} down{name} --purge
""")


if __name__ == "__main__":
    main()

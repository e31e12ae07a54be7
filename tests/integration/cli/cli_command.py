"""The command as a user runs it, for the tests of this folder."""

from __future__ import annotations

import gc
import io
import os
import pty
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tenantry.cli.main import main
from tenantry.local import build
from tenantry.local.cluster import LocalCluster

NAME = "cli"
SECONDS = 120.0
PATIENCE = f"--timeout={SECONDS - 20:.0f}s"
"""For `kubectl wait`, which otherwise gives up after 30 s: it ends before its caller does."""

_COMPLETE = "_TENANTRY_COMPLETE"
_LATER = ("status unknown for quota", "error looking up service account")

_POD = msgspec.json.encode(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "honest"},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/web",
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
).decode()


class Said(NamedTuple):
    """The output of a command."""

    stdout: str
    stderr: str


class Cli:
    """The command, on one local cluster.

    Args:
        home: TENANTRY_HOME.
        folder: For the kubeconfigs of people.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.admin_kubeconfig = LocalCluster(NAME, root=home).kubeconfig_path

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables that a user on this cluster has."""
        kept = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "NO_COLOR"}}
        return {**kept, "TENANTRY_HOME": str(self.home), "TENANTRY_NAME": NAME, **(more or {})}

    def run(
        self, *arguments: str, code: int = 0, stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> Said:
        """Run the command in this process and return its output; another exit code fails the test."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        before = dict(os.environ), sys.argv, sys.stdin
        variables = self.environment(environment)
        ended: object = None
        try:
            # So that what the command leaves stays in the youngest generation, where _let_go looks.
            gc.disable()
            os.environ.clear()
            os.environ.update(variables)
            sys.argv, sys.stdin = ["tenantry", *arguments], io.TextIOWrapper(io.BytesIO(stdin.encode()))
            with redirect_stdout(out), redirect_stderr(err):
                main()
        except SystemExit as end:
            ended = end.code or 0
        finally:
            os.environ.clear()
            os.environ.update(before[0])
            sys.argv, sys.stdin = before[1:]
            _let_go()
        said = Said(_text(out), _text(err))
        assert ended == code, f"{arguments}: exit code {ended}\n{said.stdout}\n{said.stderr}"
        return said

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Run the command in a process of its own, which can be interrupted."""
        # Tests that run in the background of a shell have interrupts ignored, and would hand that down.
        return subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, "-u", "-m", "tenantry", *arguments],  # noqa: S607 - coreutils
            env=self.environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def in_terminal(self, typed: str, *arguments: str) -> tuple[int, str]:
        """Run the command with a terminal for stdin, and return its exit code and stderr.

        Args:
            typed: What the user types.
            arguments: Of the command.
        """
        ours, theirs = pty.openpty()
        with self.start(*arguments, stdin=theirs) as process:
            os.close(theirs)
            os.write(ours, typed.encode())
            _, stderr = process.communicate(timeout=SECONDS)
        os.close(ours)
        return process.returncode, stderr

    def json(self, *arguments: str, code: int = 0) -> Any:  # noqa: ANN401 - JSON is anything
        """Run the command and return the JSON that it printed."""
        return msgspec.json.decode(self.run(*arguments, code=code).stdout)

    def kubectl(
        self, *arguments: str, kubeconfig: Path | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the cluster's own kubectl, as an administrator or as the user of a kubeconfig."""
        # Not by `tenantry kubectl`: many tests poll with this, and each start of Python takes longer than kubectl.
        binaries = build.built()
        assert binaries is not None
        return subprocess.run(
            [str(binaries.kubectl), *arguments],
            env=self.environment({"KUBECONFIG": str(kubeconfig or self.admin_kubeconfig)}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def made(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of kubectl that creates an object, once Kubernetes has added what the namespace needs."""
        end = time.monotonic() + SECONDS
        while (done := self.kubectl(*arguments, stdin=stdin)).returncode:
            if not any(words in done.stderr for words in _LATER) or time.monotonic() > end:
                break
        return done

    def await_right(self, user: str, verb: str, resource: str, namespace: str) -> None:
        """Wait until the API server's authorizer has seen a binding: it learns of one a moment after it is made."""
        asked = ("auth", "can-i", verb, resource, "-n", namespace, "--as", user)
        end = time.monotonic() + SECONDS
        while self.kubectl(*asked).returncode:  # it returns before the object exists
            assert time.monotonic() < end, f"{user!r} may not {verb} {resource} in {namespace!r}"

    def await_pods(self, user: str, namespace: str, *groups: str) -> None:
        """Wait until the API server would take a user's pod in a namespace that was just made.

        It learns of rights, rules and quotas a moment after they were written, and the pod's account is made by others.
        """
        who = ("--as", user, *(word for group in groups for word in ("--as-group", group)))
        tried = ("create", "--dry-run=server", "-f", "-", "-n", namespace, *who)
        end = time.monotonic() + SECONDS
        while (done := self.kubectl(*tried, stdin=_POD)).returncode:
            assert time.monotonic() < end, done.stderr

    def completed(self, words: str) -> list[str]:
        """Return the shell's suggestions for words, of which the last one is incomplete."""
        count = str(len(words.split(" ")) - 1)
        asked = {_COMPLETE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
        return self.run(environment=asked).stdout.split()

    def offered(self, words: str) -> list[str]:
        """Return the suggestions once there are any: a cluster that does not answer in a second yields none."""
        end = time.monotonic() + SECONDS
        while not (found := self.completed(words)):
            assert time.monotonic() < end, f"nothing is offered for {words!r}"
        return found


def _let_go() -> None:
    """Close what a command has left open, as the end of its process would.

    Python 3.11 forgets a connection whose making is cancelled before the TLS handshake begins, as when a command ends
    a watch; found by whatever test runs when garbage is collected, it would fail that one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect(0)
    gc.enable()


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()

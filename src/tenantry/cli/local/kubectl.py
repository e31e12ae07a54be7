"""`tenantry kubectl -- ...`: the kubectl of the control plane's own version, on the chosen cluster."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from tenantry.cli.target import Target, takes_target
from tenantry.local import build
from tenantry.local.progress import StreamProgress


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@takes_target
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(target: Target, arguments: tuple[str, ...]) -> None:
    """Run kubectl against the chosen cluster, and return its exit code.

    Everything from the first word that is not a flag of this command goes to kubectl: `tenantry kubectl get pods -A`.
    """
    if target.kubeconfig:
        os.environ["KUBECONFIG"] = str(target.kubeconfig)
    context = (f"--context={target.context}",) if target.context else ()
    sys.stdout.flush()
    # kubectl replaces this process: signals reach it, and its exit code is the command's.
    os.execv(_binary(), ["kubectl", *context, *arguments])


def _binary() -> Path:
    built = build.built()
    if built:
        return built.kubectl
    installed = shutil.which("kubectl")
    if installed:
        return Path(installed)
    with StreamProgress() as progress:
        return build.ensure(progress).kubectl

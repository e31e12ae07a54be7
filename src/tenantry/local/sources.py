"""The folder of the Go sources and the locked Go toolchain: a checkout, or the inside of an installed wheel."""

from __future__ import annotations

from pathlib import Path

import tenantry
from tenantry.api.errors import LocalError


def root() -> Path:
    """Find the folder that holds `go/` and `requirements/go.txt`.

    A wheel carries them as `tenantry/_sources` (pyproject.toml, force-include); an editable install points into the
    checkout itself.

    Raises:
        LocalError: Neither is there.
    """
    package = Path(tenantry.__file__).resolve().parent
    for candidate in (package / "_sources", package.parent.parent):
        if (candidate / "go" / "controlplane" / "go.mod").is_file():
            return candidate
    raise LocalError(
        f'the Go sources of the local control plane are not beside "{package}": install Tenantry from a wheel or a '
        "checkout (an sdist without them was made by hand), or use a cluster of yours with --kubeconfig"
    )

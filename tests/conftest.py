"""What all tests share: a temporary home of local clusters; and how properties are tried.

These have no deadline, wherever they stand, since the machine that runs them may be busy.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("tenantry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tenantry")


@pytest.fixture(scope="session")
def tenantry_home() -> Iterator[Path]:
    """A fresh TENANTRY_HOME, so that a test never meets a developer's clusters, nor their kubeconfig."""
    kept = {name: os.environ.pop(name, None) for name in ("TENANTRY_HOME", "TENANTRY_NAME", "KUBECONFIG")}
    with tempfile.TemporaryDirectory(prefix="tenantry-tests-") as folder:
        os.environ["TENANTRY_HOME"] = folder
        # Clusters stop with this process, however it ends.
        os.environ["TENANTRY_LIVES_WITH"] = str(os.getpid())
        yield Path(folder)
        del os.environ["TENANTRY_HOME"], os.environ["TENANTRY_LIVES_WITH"]
    os.environ.update({name: value for name, value in kept.items() if value is not None})

"""Shared by all tests: a temporary home of local clusters, the settings of properties, the order of files, and skips.

Properties have no deadline, wherever they stand, since the machine that runs them may be busy.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from testkit import sharing

# `--hypothesis-profile=release` tries five times as many examples; see testkit.examples.
for profile, examples in (("tenantry", 100), ("release", 500)):
    settings.register_profile(
        profile, deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("tenantry")

TESTS = Path(__file__).parent
# `make test` lacks CPU, not memory: a third of the collections save a tenth of the API servers' CPU [measured].
# The limit, for each process, bounds the memory; close to it the collector runs more often again.
COLLECTOR = {"TENANTRY_GOGC": "300", "GOMEMLIMIT": "1GiB"}
LONGEST_FIRST = ("docs", "e2e", "integration/cli", "integration", "property", "unit")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the version of Kubernetes."""
    parser.addoption(
        "--kubernetes-version",
        default="",
        metavar="VERSION",
        help="minor version of Kubernetes of clusters that integration tests share, as in 1.34 (default: the newest)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the version of clusters, and let their Go processes collect garbage less often."""
    config.pluginmanager.register(sharing.SharedClusters())
    for name, value in COLLECTOR.items():
        os.environ.setdefault(name, value)
    version = str(config.getoption("--kubernetes-version") or "")
    if version:
        # testkit.versions reads it.
        os.environ["TENANTRY_TEST_KUBERNETES"] = version


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders whose files take longest, and there with files that share no cluster.

    A worker runs one file at a time: if a long file came last, the other workers would wait for it. Files that share a
    cluster follow each other, so that the cluster ends early. The first of these change what concerns all tenants:
    later files leave hundreds. The order is random apart from that.
    """
    used: dict[Path, set[str]] = {}
    early: set[Path] = set()
    for item in items:
        used.setdefault(item.path, set()).update(sharing.used_by(item))
        if item.get_closest_marker("early") is not None:
            early.add(item.path)

    def place(item: pytest.Item) -> tuple[int, list[int], bool]:
        folder = item.path.parent.relative_to(TESTS).as_posix()
        clusters = sorted(sharing.SHARED.index(each) for each in used[item.path])
        return LONGEST_FIRST.index(folder), clusters, item.path not in early

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report in one line why tests were skipped."""
    skipped: list[pytest.TestReport] = terminalreporter.getreports("skipped")
    reasons = Counter(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple))
    if reasons:
        found = (f"{count} because {reason.removeprefix('Skipped: ')}" for reason, count in sorted(reasons.items()))
        terminalreporter.write_line(f"skipped: {'; '.join(found)}")


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

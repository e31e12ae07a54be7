"""`tools/conventions.py` finds what it is for, and nothing in the project breaks a convention."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from testkit import tools


@pytest.fixture(name="tool", scope="module")
def load() -> ModuleType:
    """Import the tool, which is not in a package."""
    return tools.load("conventions")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("asyncio.create_task(work())", "ask a TaskGroup"),
        ("asyncio.get_running_loop().create_task(work())", "ask a TaskGroup"),
        ("def start(loop): loop.create_task(work())", "ask a TaskGroup"),
        ("start = asyncio.create_task", "ask a TaskGroup"),
        ("text = f'{names} and {count} more'", "shorten the list"),
        ("text = f'{names} and {count} more; ask for less'", "shorten the list"),
        ("def f(value: dict[str, Any]) -> None: ...", "use the model"),
        ("from tenantry.api.model import Json, Resource", "use the model"),
    ],
)
def test_a_broken_convention_is_found(tool: ModuleType, text: str, problem: str) -> None:
    """STYLE 4, 17, 21."""
    (found,) = tool.findings("world/quota.py", text)
    assert found.startswith("src/tenantry/world/quota.py:1: ")
    assert problem in found


@pytest.mark.parametrize(
    "text",
    [
        "def f(peer_namespace): ...",
        "class PeerSide: ...",
        "from tenantry.api.peercluster import PREFIX",
        "profile = Profile(is_peer=True)",
        "value = side.peers",
    ],
)
def test_a_mirror_does_not_know_what_its_sides_are(tool: ModuleType, text: str) -> None:
    """One mirror serves control planes and peers."""
    assert any("upper or lower" in each for each in tool.findings("mirror/pods.py", text))
    assert list(tool.findings("mirror/kinds/networkpolicies.py", text)) == []
    assert list(tool.findings("controllers/peering/link/link.py", text)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("world/quota.py", "async def f():\n async with asyncio.TaskGroup() as group:\n  group.create_task(work())"),
        ("world/quota.py", "def f(group: asyncio.TaskGroup): group.create_task(work())"),
        ("world/quota.py", "self._group: asyncio.TaskGroup | None = None\nself._group.create_task(work())"),
        ("world/quota.py", "text = f'{count} more than {limit}'"),
        ("api/wording.py", "text = f'and {count} more'"),
        ("kube/client.py", "def f(value: dict[str, Any]) -> None: ..."),
    ],
)
def test_what_keeps_the_conventions_passes(tool: ModuleType, name: str, text: str) -> None:
    """A lint that cries wolf is switched off."""
    assert list(tool.findings(name, text)) == []


def test_the_project_keeps_its_conventions(tool: ModuleType) -> None:
    """STYLE 4, 17, 21."""
    assert tool.main() == 0


def test_files_of_tests_have_names_of_their_own() -> None:
    """Tests are no packages: pytest imports a file by its name, and refuses another one of that name."""
    names = Counter(each.name for each in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    "text", ["# Of a DedicatedCluster.", "is_dedicated = True", "from tenantry.api import dedicatedcluster"]
)
def test_what_hosts_control_planes_does_not_know_of_dedicated_clusters(tool: ModuleType, text: str) -> None:
    """H04: in Python, comments included."""
    assert any("name what it needs" in each for each in tool.findings("hosting/plane.py", text))
    assert not any("name what it needs" in each for each in tool.findings("local/hosted.py", text))


def test_the_same_holds_for_go(tool: ModuleType, tmp_path: Path) -> None:
    """H04: go/hosted, with its tests."""
    folder = tmp_path / "go" / "hosted"
    (folder / "internal").mkdir(parents=True)
    (folder / "internal" / "a.go").write_text("package a\n\n// Of a dedicated cluster.\n")
    (found,) = tool.hosted(folder)
    assert found.startswith("go/hosted/internal/a.go:3: ")

"""End a cluster that test files share as soon as no later file of the run uses it.

    items in the order of the run ─► last use of each cluster
    fixture is set up ─► remembered ─► an item after the last use begins ─► its clusters end

A cluster without any work takes 5 % of a processor [measured]; each worker has up to five, and a fixture of the session
would keep them until the last test.
"""

from __future__ import annotations

from typing import Any

import pytest

SHARED = ("host_cluster", "plane_cluster", "cluster", "tenancy", "cli")
"""Fixtures of clusters that files share, in the order in which the run uses them."""


def used_by(item: pytest.Item) -> set[str]:
    """Return which shared clusters an item uses."""
    names: list[str] = getattr(item, "fixturenames", [])
    return {*SHARED} & {*names}


class SharedClusters:
    """A plugin of pytest. Workers run the items in their order, but each of them only some."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._places: dict[str, int] = {}
        # The requests are of a class that pytest does not export.
        self._running: dict[str, tuple[pytest.FixtureDef[Any], Any]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note where each cluster is used for the last time."""
        for place, item in enumerate(session.items):
            self._places[item.nodeid] = place
            self._last |= dict.fromkeys(used_by(item), place)

    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
        """Remember a cluster that starts."""
        if fixturedef.argname in SHARED and fixturedef.scope == "session":
            self._running[fixturedef.argname] = fixturedef, request

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """End clusters that neither this item nor a later one uses, and with them all that is made of them."""
        place = self._places[item.nodeid]
        for name in [each for each in self._running if self._last[each] < place]:
            fixture, request = self._running.pop(name)
            fixture.finish(request)

"""Properties of the upgrades of control planes (H01, X11)."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tenantry.api.virtualcontrolplane import PlanePhase
from tenantry.controllers.virtualcontrolplane.upgrade import AGAIN_SECONDS
from tenantry.hosting import versions
from testkit.upgradeworld import KNOWN, Workshop
from testkit.worldclient import Crash

NAMES = ["", *(each.name for each in KNOWN), "1.37"]
EVENTS = {
    "version": NAMES,
    "back": NAMES,
    "sleep": [""],
    "wake": [""],
    "restart": [""],
    "ready": [""],
    "trouble": ["", "the disk is full"],
    "missing": ["", "1.34 1.35 1.36"],
    "crash": ["0", "1", "2", "3", "5"],
}
RUNS = st.lists(st.sampled_from([(kind, text) for kind, texts in EVENTS.items() for text in texts]), max_size=7)


@settings(max_examples=20, deadline=None)
@given(first=st.sampled_from(["", "1.34", "1.35"]), events=RUNS)
def test_no_program_finds_objects_of_a_later_version(first: str, events: list[tuple[str, str]]) -> None:
    """X11: whatever changes and fails; the place checks it at each start, and that a snapshot leads back."""
    shop = Workshop(first)
    shop.settle(20)
    for kind, argument in events:
        _happens(shop, kind, argument)
        try:
            shop.settle(20)
        except Crash:
            shop.fault = lambda: "none"
            shop.restart()
            shop.settle(20)
    for kind in ("trouble", "missing", "wake"):
        _happens(shop, kind, "")
    # What has failed is tried again.
    shop.fault = lambda: "none"
    shop.settle(3 * AGAIN_SECONDS)
    wanted, running = shop.get().spec.version, shop.status().get("version", "")
    assert running == shop.forge.objects
    names = [each.name for each in KNOWN]
    if wanted in names and running:
        # Only what the API server refuses may be left: a way of several steps, or back.
        assert names.index(wanted) - names.index(versions.minor(running)) != 1


def _happens(shop: Workshop, kind: str, argument: str) -> None:
    """Let something happen; what the API server refuses, or is not possible now, does not."""
    running, is_asleep = shop.status().get("version", ""), shop.status().get("phase") == PlanePhase.ASLEEP
    kept = sorted(shop.forge.kept_files)
    is_back = bool(argument and running and kind == "version" and versions.is_before(argument, running))
    left = iter(["none"] * int(argument or 0) + ["crash"]) if kind == "crash" else iter([])
    possible: dict[str, Callable[[], None]] = {
        "version": lambda: None if is_back else shop.change(argument),
        "back": lambda: shop.change(argument, f"{kept[-1]}@{len(shop.forge.starts)}") if kept else None,
        "sleep": lambda: shop.sleep() if running else None,
        "wake": lambda: shop.wake() if is_asleep else None,
        "restart": shop.restart,
        "ready": shop.complete,
        "trouble": lambda: setattr(shop.forge, "trouble", argument),
        "missing": lambda: setattr(shop.forge, "missing", set(argument.split())),
        "crash": lambda: setattr(shop, "fault", lambda: next(left, "none")),
    }
    possible[kind]()

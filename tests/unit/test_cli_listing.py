"""What a list prints, and what a watch prints of its changes, as kubectl does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tenantry.api.tenant import Tenant
from tenantry.cli import session
from tenantry.cli.get import get
from tenantry.cli.listing import ChangePrinter, ListedObjects, ListOptions, show
from testkit.model import World
from testkit.watchclient import Ended, WatchClient
from testkit.worlds import tenant


def listed(objects: Mapping[str, int]) -> ListedObjects:
    """Return a list of objects by name, each with a size."""
    return ListedObjects(
        headers=("NAME", "SIZE"),
        rows=[(name, str(size)) for name, size in objects.items()],
        objects=[{"name": name, "size": size} for name, size in objects.items()],
        names=[f"thing/{name}" for name in objects],
        keys=list(objects),
    )


Printed = Callable[[], list[str]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Return a function that returns the lines on stdout since its last call."""
    return lambda: [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_watch_prints_what_is_new_has_changed_or_is_gone(printed: Printed) -> None:
    printer = ChangePrinter(ListOptions(watches=True))
    printer.take(listed({"a": 1, "b": 2}))
    assert printed() == ["NAME SIZE", "a 1", "b 2"]
    printer.take(listed({"a": 1, "b": 2}))
    assert printed() == []
    printer.take(listed({"a": 3, "c": 4}))
    assert printed() == ["b 2", "a 3", "c 4"]
    printer.take(listed({"a": 3, "b": 2, "c": 4}))
    assert printed() == ["b 2"], "it is there again"


def test_an_event_about_one_object_leaves_the_others(printed: Printed) -> None:
    printer = ChangePrinter(ListOptions(form="name", watches=True))
    printer.take(listed({"a": 1, "b": 2}))
    assert printed() == ["thing/a", "thing/b"]
    printer.change(listed({"a": 1}))
    assert printed() == [], "an event that repeats what is printed"
    printer.change(listed({"a": 2}))
    printer.change(listed({"b": 2}), gone=True)
    assert printed() == ["thing/a", "thing/b"]
    printer.take(listed({"a": 2}))
    assert printed() == [], "b is printed only once as gone"


def test_a_list_that_was_empty_gets_its_headers_with_the_first_row(printed: Printed) -> None:
    printer = ChangePrinter(ListOptions(watches=True))
    printer.take(listed({}))
    assert printed() == []
    printer.take(listed({"a": 1}))
    printer.take(listed({"a": 2}))
    assert printed() == ["NAME SIZE", "a 1", "a 2"]


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("json", ["{", '"name": "a",', '"size": 1', "}"]),
        ("yaml", ["---", "name: a", "size: 1"]),
        ("jsonpath={.size}", ["1"]),
    ],
)
def test_each_changed_object_is_printed_by_itself(printed: Printed, form: str, lines: list[str]) -> None:
    """No List is around them: it would never end."""
    printer = ChangePrinter(ListOptions(form=form, watches=True))
    printer.take(listed({"a": 1}))
    printer.take(listed({}))
    assert printed() == [*lines, *lines]


def test_custom_columns_have_their_headers_once(printed: Printed) -> None:
    printer = ChangePrinter(ListOptions(form="custom-columns=SIZE:.size", watches=True))
    printer.take(listed({"a": 1}))
    printer.take(listed({"a": 2}))
    assert printed() == ["SIZE", "1", "2"]


def test_one_object_that_was_requested_and_is_missing_prints_no_list(printed: Printed) -> None:
    show(listed({}), ListOptions(form="json"), single=True)
    assert printed() == []
    show(listed({}), ListOptions(form="json"))
    assert '"items": []' in printed()


def test_get_prints_a_deleted_object_once(monkeypatch: pytest.MonkeyPatch, printed: Printed) -> None:
    """The event of the deletion, and the list after the end of the watch, which lacks another object."""
    world = World()
    for name in ("acme", "globex", "initech"):
        world.create(tenant(name))
    gone = {**world.get(Tenant.resource, "acme"), "metadata": {"name": "acme", "resourceVersion": "99"}}

    class Client(WatchClient):
        def open(self, *words: Any, **given: Any) -> Any:  # noqa: ANN401 - as WatchClient
            for name in ("acme", "globex"):
                world.objects.pop((Tenant.resource, name), None)
            return super().open(*words, **given)

    def run(_target: object, todo: Callable[[WatchClient], Any], **_options: object) -> object:
        return asyncio.run(todo(Client(world, [("DELETED", gone)])))

    monkeypatch.setattr(session, "run", run)
    with pytest.raises(Ended):
        get.main(["--kubeconfig", "nowhere", "tenants", "-w", "-o", "name"], standalone_mode=False)
    assert printed() == [f"tenant.tenantry.dev/{name}" for name in ("acme", "globex", "initech", "acme", "globex")]

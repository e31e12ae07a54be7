"""The cache beside a server whose answers and events come late, twice or never: it ends with the truth.

The machine does what `Informer` and `Applier` do to a cache, one step at a time; the server is a counter, a dict and a
log. What is true of the real API server and relied on here: events of one kind come in the order of their
resourceVersions, and an event or a bookmark means that everything before it was sent.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenantry.engine.cache import EVERYWHERE, Cache, Change
from testkit.examples import examples

KEYS = st.sampled_from(["a", "b", "c"])
COLOURS = st.lists(st.sampled_from("rgb"), max_size=2).map(tuple)


class Thing(msgspec.Struct, frozen=True):
    """An object: `colours` is what it is indexed by."""

    key: str
    version: int
    colours: tuple[str, ...]


class Write(msgspec.Struct):
    """A write of ours under way.

    Args:
        based_on: The version that it needs to find, 0 for a creation.
        answer: What the server says; None while it has not, or where it refuses.
        arrived: The server has decided.
    """

    based_on: int
    answer: Thing | None = None
    arrived: bool = False


class CacheMachine(RuleBasedStateMachine):
    """A server, what is on its way from it, and a cache.

    `known` is the version of each key that a reconciler has been told of or has made itself (0: that there is none):
    in the end they must match the server, or a change has woken no reconciler.
    """

    place = EVERYWHERE

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.new_cache()
        self.revision = 1
        self.truth: dict[str, Thing] = {}
        self.log: list[tuple[int, Thing | None, str]] = []
        self.position = 0
        self.writes: dict[str, Write] = {}
        self.missing: list[tuple[str, int]] = []
        self.listing: tuple[int, list[Thing], set[str]] | None = None
        self.lossy = False
        self.newest: dict[str, int] = {}
        self.known: dict[str, int] = {}

    def new_cache(self) -> Cache[Thing]:
        """Return an empty cache."""
        return Cache({"colour": lambda thing: thing.colours})

    # -- the server ---------------------------------------------------------------------------

    def _store(self, key: str, colours: tuple[str, ...]) -> Thing:
        self.revision += 1
        thing = Thing(key, self.revision, colours)
        self.truth[key] = thing
        self.log.append((self.revision, thing, key))
        return thing

    @rule(key=KEYS, colours=COLOURS)
    def another_client_writes(self, key: str, colours: tuple[str, ...]) -> None:
        """Another client writes."""
        self._store(key, colours)

    @rule(key=KEYS)
    def another_client_deletes(self, key: str) -> None:
        """Any client deletes."""
        if self.truth.pop(key, None) is not None:
            self.revision += 1
            self.log.append((self.revision, None, key))

    # -- writes of our own: one at a time for a key ---------------------------------------------

    @rule(key=KEYS)
    def we_begin_to_write(self, key: str) -> None:
        """As the applier does: a creation where the cache has nothing, a patch at a version otherwise."""
        if key in self.writes:
            return
        found = self.cache.get(key)
        self.cache.expect(key)
        self.writes[key] = Write(found.version if found else 0)

    @precondition(lambda self: any(not write.arrived for write in self.writes.values()))
    @rule(data=st.data(), colours=COLOURS)
    def the_server_decides_on_our_write(self, data: st.DataObject, colours: tuple[str, ...]) -> None:
        """It stores it, or refuses since the object is not what we thought."""
        key = data.draw(st.sampled_from(sorted(key for key, write in self.writes.items() if not write.arrived)))
        write = self.writes[key]
        found = self.truth.get(key)
        write.arrived = True
        if write.based_on == (found.version if found else 0):
            write.answer = self._store(key, colours)

    @precondition(lambda self: any(write.arrived for write in self.writes.values()))
    @rule(data=st.data(), lost=st.booleans())
    def our_write_is_answered(self, data: st.DataObject, lost: bool) -> None:  # noqa: FBT001
        """The answer comes over a connection of its own, before or after the watch's events, or never."""
        key = data.draw(st.sampled_from(sorted(key for key, write in self.writes.items() if write.arrived)))
        self._settle(key, None if lost else self.writes[key].answer)

    def _settle(self, key: str, answer: Thing | None) -> None:
        del self.writes[key]
        change = self.cache.settle(key, answer)
        if answer is not None:
            self.known[key] = max(self.known.get(key, 0), answer.version)
        self._tell(change)

    # -- reads of our own -------------------------------------------------------------------------

    @rule(key=KEYS)
    def we_read_that_there_is_none(self, key: str) -> None:
        """The answer is on its way."""
        found = self.cache.get(key)
        if found is not None and key not in self.truth:
            self.missing.append((key, found.version))

    @precondition(lambda self: self.missing)
    @rule(data=st.data())
    def the_answer_that_there_is_none_arrives(self, data: st.DataObject) -> None:
        """It is about the object as it was known when we asked."""
        key, version = self.missing.pop(data.draw(st.integers(0, len(self.missing) - 1)))
        self.cache.forget(key, version)
        if self.cache.get(key) is None:
            self.known[key] = 0

    # -- the watch ------------------------------------------------------------------------------

    @precondition(lambda self: self.listing is None)
    @rule(count=st.integers(1, 5))
    def events_arrive(self, count: int) -> None:
        """The next ones, in order."""
        for _ in range(count):
            if self.position < len(self.log):
                self._deliver(self.position)
                self.position += 1

    @precondition(lambda self: self.listing is None and self.position and not self.lossy)
    @rule(data=st.data())
    def events_are_repeated(self, data: st.DataObject) -> None:
        """A watch that was cut begins a little before where it ended."""
        begin = data.draw(st.integers(0, self.position - 1))
        for index in range(begin, self.position):
            self._deliver(index)

    @precondition(lambda self: self.listing is None and self.position < len(self.log))
    @rule()
    def an_event_is_lost(self) -> None:
        """What must not be; a list heals it."""
        self.position += 1
        self.lossy = True

    @precondition(lambda self: self.listing is None and self.position == len(self.log))
    @rule()
    def a_bookmark_arrives(self) -> None:
        """Everything until now was sent."""
        self.cache.advance(self.revision, self.place)

    def _deliver(self, index: int) -> None:
        version, thing, key = self.log[index]
        self._tell(self.cache.put(thing) if thing is not None else self.cache.remove(key, version))
        self.cache.advance(version, self.place)

    # -- a list, in pages, while everything else goes on ------------------------------------------

    @precondition(lambda self: self.listing is None)
    @rule()
    def a_list_begins(self) -> None:
        """All pages are of one moment."""
        self.listing = (self.revision, sorted(self.truth.values(), key=lambda thing: thing.key), set())

    @precondition(lambda self: self.listing is not None)
    @rule(size=st.integers(1, 2))
    def a_page_arrives(self, size: int) -> None:
        """The last one ends the list, and the watch begins where it stands."""
        assert self.listing is not None
        version, rest, listed = self.listing
        for thing in rest[:size]:
            listed.add(thing.key)
            self._tell(self.cache.put(thing, listed=version))
        if rest[size:]:
            self.listing = (version, rest[size:], listed)
            return
        for change in self.cache.finish_list(listed, version, self.place):
            self._tell(change)
        self.listing = None
        self.lossy = False
        self.position = sum(1 for entry in self.log if entry[0] <= version)

    # -- what has to be so ------------------------------------------------------------------------

    def _tell(self, change: Change[Thing] | None) -> None:
        if change is None:
            return
        assert change.before != change.after, "a change changes something"
        value = change.after or change.before
        assert value is not None
        assert self.cache.get(value.key) == change.after
        self.known[value.key] = change.after.version if change.after else 0

    @invariant()
    def never_back_in_time(self) -> None:
        """A key's version never falls, nor does an old one come back."""
        for thing in self.cache:
            assert thing.version >= self.newest.get(thing.key, 0)
            self.newest[thing.key] = thing.version

    @invariant()
    def indexes_agree_with_the_objects(self) -> None:
        """Everything is found under what it says, and under nothing else."""
        objects = sorted(self.cache, key=lambda thing: thing.key)
        assert len(self.cache) == len(objects)
        for colour in "rgb":
            assert self.cache.by_index("colour", colour) == [thing for thing in objects if colour in thing.colours]

    def teardown(self) -> None:
        """Once everything has arrived, the cache matches the server, and every listener was woken."""
        if self.lossy and self.listing is None:
            self.a_list_begins()
        while self.listing is not None:
            self.a_page_arrives(2)
        while self.position < len(self.log):
            self.events_arrive(5)
        for key in list(self.writes):
            self._settle(key, self.writes[key].answer)
        while self.missing:
            self.cache.forget(*self.missing.pop())
        self.never_back_in_time()
        self.indexes_agree_with_the_objects()
        assert {thing.key: thing for thing in self.cache} == self.truth
        for key in "abc":
            found = self.truth.get(key)
            assert self.known.get(key, 0) == (found.version if found else 0), "a change that woke no reconciler"


class PlacesMachine(CacheMachine):
    """The same, in one of two places: what happens in the other one has no effect on it."""

    place = "here"

    def new_cache(self) -> Cache[Thing]:
        """Return an empty cache with two places."""
        cache: Cache[Thing] = Cache(place_of=lambda key: "there" if key.startswith("there") else "here")
        cache.add_index("colour", lambda thing: () if thing.key.startswith("there") else thing.colours)
        cache.open("here")
        cache.open("there")
        return cache

    @rule(ahead=st.integers(0, 20))
    def a_list_of_the_other_place_is_empty(self, ahead: int) -> None:
        """The server may be ahead of what the watch of this place has reported."""
        assert self.cache.finish_list(set(), self.revision + ahead, "there") == []

    @rule(ahead=st.integers(0, 20))
    def the_watch_of_the_other_place_is_ahead(self, ahead: int) -> None:
        """It has reported more."""
        self.cache.advance(self.revision + ahead, "there")

    @rule()
    def the_data_of_the_other_place_are_restored(self) -> None:
        """Its list is older than its watch."""
        self.cache.restart(0, "there")

    @rule(is_open=st.booleans())
    def the_other_place_comes_or_goes(self, is_open: bool) -> None:  # noqa: FBT001
        """It leaves with all its objects."""
        if is_open:
            self.cache.open("there")
        else:
            self.cache.close("there")


CacheMachine.TestCase.settings = examples(100, steps=40)
PlacesMachine.TestCase.settings = examples(100, steps=40)
TestCache = CacheMachine.TestCase
TestPlaces = PlacesMachine.TestCase

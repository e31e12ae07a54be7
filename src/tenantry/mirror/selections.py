"""Which namespaces the label selectors of one control plane select, kept until labels change: pure.

    namespaces ─► compared with those of the last evaluation ─► names whose labels have changed since
    selectors  ─► kept selections ─► only these names are evaluated again ─► the names that each selector selects

Users of the upper side choose the selectors, the labels and how many there are of both. `check` refuses what costs too
much, `steps` divides the rest, and equal selectors of all objects share one kept selection. So after the labels of one
of 1,000 namespaces have changed, a selector of 3 expressions costs 3 comparisons instead of 3,000.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

import msgspec

from tenantry.api.model import Json
from tenantry.mirror.shapes import NotTranslated, items, part
from tenantry.mirror.things import LabelledNamespace
from tenantry.world.selectors import meets

MOST_NAMESPACES = 1000
"""With more namespaces, no selector of namespaces is evaluated."""

MOST_SELECTORS = 100
"""How many different selectors of namespaces an object may have."""

MOST_COMPARISONS = 200_000
"""How many expressions, in all different selectors of an object, times how many namespaces may be evaluated."""

STEP = 5000
"""About so much work is done at once, which takes a few milliseconds; see `Selections.steps`."""

_BYTES = 64
"""So many bytes of labels take as long to read as one comparison."""

MOST_KEPT = 20_000
"""How many selections and names in them are kept: about 5 MB."""

MOST_KEYS = 16
"""How many labels of a selecting object are told apart; one with more is evaluated after a change of any label."""

EVERY_OBJECT = ""
ANY_LABEL = "*"
"""Values beside labels in an index by `labels_of`; neither is the key of a label."""

_labels = msgspec.json.Decoder(dict[str, str])


class _Requirement(msgspec.Struct, frozen=True, gc=False):
    """One expression, with its values in a form whose evaluation does not depend on their number."""

    key: str
    operator: str
    values: frozenset[str]


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """The names that a selector selects, as of a generation."""

    generation: int
    names: tuple[str, ...]


class _Pending(msgspec.Struct):
    """A selector that is being evaluated."""

    key: bytes
    requirements: Sequence[_Requirement]
    names: set[str]


def key_of(selector: Json) -> bytes:
    """Return what identifies a selector; equal ones have the same."""
    return sha256(msgspec.json.encode(selector)).digest()


def different(selectors: Iterable[Json]) -> list[Json]:
    """Return selectors without those that are equal to an earlier one."""
    return list({key_of(each): each for each in selectors}.values())


def labels_of(selectors: Iterable[Json]) -> list[str]:
    """Return the values that an index finds a selecting object under; [] if there are no selectors.

    Args:
        selectors: Of any content.
    """
    found, is_selecting = set[str](), False
    for each in selectors:
        is_selecting = True
        keys = (expression.get("key") for expression in items(each, "matchExpressions"))
        found.update(part(each, "matchLabels"), (key for key in keys if isinstance(key, str)))
        if len(found) > MOST_KEYS:
            return [EVERY_OBJECT, ANY_LABEL]
    return [EVERY_OBJECT, *sorted(found)] if is_selecting else []


def values_of(before: LabelledNamespace | None, after: LabelledNamespace | None) -> Sequence[str]:
    """Return the values of `labels_of` that a change of a namespace concerns; [] if no labels have changed."""
    if before is None or after is None or (before.labels is None) != (after.labels is None):
        # Selectors may select a namespace for labels that it lacks.
        return [EVERY_OBJECT]
    if before.labels == after.labels or before.labels is None or after.labels is None:
        return []
    past, now = _labels.decode(before.labels), _labels.decode(after.labels)
    return [ANY_LABEL, *sorted(key for key in past.keys() | now.keys() if past.get(key) != now.get(key))]


def check(selectors: Sequence[Json], namespaces: int) -> None:
    """Refuse to evaluate selectors that cost too much.

    Args:
        selectors: The different selectors of one object.
        namespaces: How many namespaces there are.

    Raises:
        NotTranslated: There are too many selectors, expressions or namespaces.
    """
    if len(selectors) > MOST_SELECTORS:
        raise NotTranslated(f"spec must not have more than {MOST_SELECTORS} different namespaceSelectors: divide it")
    if selectors and namespaces > MOST_NAMESPACES:
        raise NotTranslated(
            f"spec must not select namespaces by labels, because more than {MOST_NAMESPACES} namespaces exist: delete"
            " some, or use an empty namespaceSelector"
        )
    expressions = sum(_size(each) for each in selectors)
    if expressions * namespaces > MOST_COMPARISONS:
        raise NotTranslated(
            f"spec must not compare more than {MOST_COMPARISONS} labels, which are the {expressions} expressions of all"
            f" namespaceSelectors times the {namespaces} namespaces: use fewer expressions, or divide the policy"
        )


def _size(selector: Json) -> int:
    return len(selector.get("matchLabels", {})) + len(items(selector, "matchExpressions"))


class Selections:
    """The kept selections of one control plane.

    Args:
        most_kept: How many selections and names in them are kept.
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._most = most_kept
        # The namespaces as of the last generation: their labels as JSON, None for too many.
        self._seen: Mapping[str, bytes | None] = {}
        # By name: the generation in which a namespace has changed or gone, the latest last.
        self._changes: dict[str, int] = {}
        self._generation = 0
        # The earliest generation since which `_changes` has all changes.
        self._floor = 0
        # By selector, the last used one last.
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._weight = 0

    def steps(
        self, namespaces: Iterable[LabelledNamespace], selectors: Sequence[Json], found: dict[bytes, Sequence[str]]
    ) -> Iterator[int]:
        """Find the namespaces that selectors select; yield after each step how much work it was.

        One unit of work is a comparison of a label, or the reading of up to 64 bytes of labels.

        Other evaluations may run between two steps. A namespace that changes meanwhile may count as before or as after.

        Args:
            namespaces: All namespaces.
            selectors: Label selectors as an allow-list builds them, all different.
            found: Gets the sorted names, by `key_of` a selector.
        """
        self._see(namespaces)
        generation = self._generation
        groups: dict[int, list[_Pending]] = {}
        for selector in selectors:
            key = key_of(selector)
            kept = self._kept.get(key)
            if kept is not None and kept.generation == generation:
                self._kept.move_to_end(key)
                found[key] = kept.names
                continue
            if kept is None or kept.generation < self._floor:
                kept = _Kept(-1, ())
            groups.setdefault(kept.generation, []).append(_Pending(key, _requirements(selector), set(kept.names)))
        # Now: other evaluations may make `_changes` forget.
        changed = {since: self._changed(since) for since in groups}
        work = 0
        for since, pending in groups.items():
            for name in changed[since]:
                labels = self._labels_of(name)
                work += 1 + len(self._seen.get(name) or b"") // _BYTES
                for each in pending:
                    work += _select(each, name, labels)
                    if work >= STEP:
                        yield work
                        work = 0
            for each in pending:
                found[each.key] = names = tuple(sorted(each.names))
                self._keep(each.key, _Kept(generation, names))
        yield work

    def _see(self, namespaces: Iterable[LabelledNamespace]) -> None:
        """Begin a generation if namespaces have changed."""
        now, past = {each.key: each.labels for each in namespaces}, self._seen
        changed = [name for name in past if name not in now]
        changed += [name for name, labels in now.items() if name not in past or past[name] != labels]
        self._seen = now
        if not changed:
            return
        self._generation += 1
        for name in changed:
            self._changes.pop(name, None)
            self._changes[name] = self._generation
        while len(self._changes) > 2 * MOST_NAMESPACES:
            self._floor = self._changes.pop(next(iter(self._changes)))

    def _changed(self, since: int) -> list[str]:
        """Return the namespaces that have changed or gone after a generation; all for one below 0."""
        if since < 0:
            return list(self._seen)
        found: list[str] = []
        for name, generation in reversed(self._changes.items()):
            if generation <= since:
                break
            found.append(name)
        return found

    def _labels_of(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if no selector selects it."""
        labels = self._seen.get(name)
        return _labels.decode(labels) if labels is not None else None

    def _keep(self, key: bytes, selection: _Kept) -> None:
        past = self._kept.pop(key, None)
        self._weight += 1 + len(selection.names) - (1 + len(past.names) if past is not None else 0)
        self._kept[key] = selection
        while self._weight > self._most:
            _, last = self._kept.popitem(last=False)
            self._weight -= 1 + len(last.names)


def _select(pending: _Pending, name: str, labels: Mapping[str, str] | None) -> int:
    """Evaluate a selector for one namespace; return how many comparisons it took, at least 1."""
    if labels is None:
        pending.names.discard(name)
        return 1
    for made, each in enumerate(pending.requirements, 1):
        if not meets(labels, each.key, each.operator, each.values):
            pending.names.discard(name)
            return made
    pending.names.add(name)
    return len(pending.requirements) or 1


def _requirements(selector: Json) -> list[_Requirement]:
    matched: Mapping[str, str] = selector.get("matchLabels", {})
    return [
        *(_Requirement(key, "In", frozenset([value])) for key, value in matched.items()),
        *(
            _Requirement(each.get("key", ""), each.get("operator", ""), frozenset(each.get("values", ())))
            for each in items(selector, "matchExpressions")
        ),
    ]

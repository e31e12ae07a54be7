"""Lines out of a stream of bytes, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import TooLarge
from tenantry.kube.watch import LineBuffer

LINES = st.lists(st.binary(min_size=1, max_size=40).filter(lambda line: b"\n" not in line), max_size=8)


@given(LINES, st.data())
def test_lines_come_out_whole_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    buffer = LineBuffer()
    found: list[bytes] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += buffer.feed(stream[begin:end])
    assert found == lines


def test_what_has_no_end_yet_waits() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b'{"a":') == []
    assert buffer.feed(b"1}") == []
    assert buffer.feed(b"\n") == [b'{"a":1}']


def test_empty_lines_and_no_bytes_are_nothing() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b"\n\n") == []
    assert buffer.feed(b"") == []
    assert buffer.feed(b"a\n\nb\n") == [b"a", b"b"]


def test_a_line_without_an_end_is_refused() -> None:
    """VCP-58: a program of a tenant may send one; what arrived is not kept."""
    buffer = LineBuffer(limit=4)
    assert buffer.feed(b"ab\ncdef\nab") == [b"ab", b"cdef"]
    assert buffer.feed(b"cd") == []
    with pytest.raises(TooLarge, match="longer than 4 bytes"):
        buffer.feed(b"e")


def test_a_long_line_among_others_is_refused() -> None:
    with pytest.raises(TooLarge):
        LineBuffer(limit=4).feed(b"ab\nabcde\nab")

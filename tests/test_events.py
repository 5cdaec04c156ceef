"""Events: what is written is read back, and nothing else is taken for one."""

import json
import os

import pytest

from framework_compare.errors import ProtocolError
from framework_compare.events import MAX_LINE_BYTES, MAX_TEXT, EventReader, EventWriter


def written(**fields):
    read_end, write_end = os.pipe()
    EventWriter(write_end).send("warning", **fields)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        return file.read()


def test_an_event_arrives_whole_in_whatever_pieces():
    line = written(message="caf\u00e9\nof two lines", steps=[1, 2])
    reader = EventReader()
    events = [event for i in range(len(line)) for event in reader.feed(line[i : i + 1])]
    assert [(e["message"], e["steps"]) for e in events] == [("caf\u00e9\nof two lines", [1, 2])]


def test_numbers_that_json_has_not_become_null():
    event = json.loads(written(loss=float("nan"), all=[float("inf"), 1.5]))
    assert event["loss"] is None and event["all"] == [None, 1.5]


def test_long_text_is_cut():
    assert len(json.loads(written(message="x" * 10**6))["message"]) == MAX_TEXT


@pytest.mark.parametrize("half", [b'"\\ud800"', b'"\xed\xa0\x80"'], ids=["escaped", "bytes"])
def test_half_of_a_surrogate_pair_is_replaced_wherever_it_stands(half):
    line = b'{"event": "warning", "t_ns": 1, "message": %s, "deeper": [{%s: %s}]}\n' % (half, half, half)
    (event,) = EventReader().feed(line)
    json.dumps(event, ensure_ascii=False).encode()


def test_a_whole_surrogate_pair_is_the_character_it_stands_for():
    (event,) = EventReader().feed(b'{"event": "warning", "t_ns": 1, "message": "\\ud83d\\udd25 and \\\\ud800"}\n')
    assert event["message"] == "\U0001f525 and \\ud800"


@pytest.mark.parametrize(
    "line",
    [b"Segmentation fault", b"[1]", b'{"event": "launch", "t_ns": 1}', b'{"event": "hello"}', b"\xff\xfe", b"[" * 9999],
    ids=["text", "list", "kind", "no-time", "bytes", "nested"],
)
def test_what_is_no_event_is_refused(line):
    with pytest.raises(ProtocolError, match="the worker sent"):
        list(EventReader().feed(line + b"\n"))


def test_a_line_without_end_is_refused_before_it_fills_memory():
    reader = EventReader()
    with pytest.raises(ProtocolError, match="not an event"):
        for _ in range(100):
            list(reader.feed(b"x" * (MAX_LINE_BYTES // 10)))

"""What a worker tells of its phases and epochs, each field checked for type and range."""

import json
import os
import time

import pytest

from framework_compare.errors import ProtocolError
from framework_compare.events import MAX_LINE_BYTES, MAX_TEXT, EventReader, EventWriter
from framework_compare.launch.transcript import Grant, Transcript

EPOCH = {
    "event": "epoch", "t_ns": 9, "number": 1, "start_ns": 0, "end_ns": 8, "data_wait_ns": 1, "images": 2, "steps": 1,
    "loss": 1.0, "step_ns": [1, 2, 3],
}  # fmt: skip


def told(**fields):
    transcript = Transcript(0, epochs=1)
    transcript.add({**EPOCH, **fields})
    return transcript.epochs[0]


def test_latencies_and_device_times_of_an_epoch_are_kept_in_seconds():
    epoch = told(copy_ns=250_000_000, compute_ns=1_500_000_000)
    assert (epoch.copy_s, epoch.compute_s) == (0.25, 1.5)
    for fields in ({}, {"copy_ns": None, "compute_ns": None}):
        epoch = told(**fields)
        assert epoch.copy_s is epoch.compute_s is None
    inference = {"loss": None, "t_ns": 40, "step_ns": [9, 12, 30]}
    assert told(**inference).step_s_p95 == 30e-9
    with pytest.raises(ProtocolError, match="malformed epoch event"):
        told(**inference | {"step_ns": [9, 12, 33]})  # longer than the time since the epoch's end


WRONG = {
    **dict.fromkeys(("copy_ns", "compute_ns"), (-1, 1.5, "7", True, 1 << 63, [1])),
    **{"start_ns": (8, 9), "end_ns": ((1 << 63) - 1,), "data_wait_ns": (9,), "step_ns": ([1, 2, 9],)},
    **{"images": (0, 1 << 62), "steps": (0,)},
}


@pytest.mark.parametrize("name", WRONG)
def test_an_epoch_that_cannot_have_been_is_malformed(name):
    for value in WRONG[name]:
        with pytest.raises(ProtocolError, match="malformed epoch event"):
            told(**{name: value})


@pytest.mark.parametrize("loss", [None, 1.0], ids=["inference", "training"])
def test_what_a_turn_left_uncounted_does_not_depend_on_when_its_parent_hears_of_it(loss):
    """A parent that has to wait for the CPU hears late of an epoch, while its worker has long begun the next."""
    transcript = Transcript(0, epochs=2)
    began = time.monotonic_ns()
    transcript.grant = Grant(1, 2, 1, began)
    time.sleep(0.1)
    ms = 1_000_000
    end, told_ns = began + 20 * ms, began + (30 if loss is None else 20) * ms
    transcript.add({**EPOCH, "start_ns": began, "end_ns": end, "t_ns": told_ns, "loss": loss})
    if loss:
        values = {"loss": 1.0}
        transcript.add({"event": "quality", "t_ns": end + 10 * ms, "epoch": 1, "split": "validation", "values": values})
    measured = {"steps": 2, "samples": 2, "measured_ns": 60 * ms, "cpu_ns": 0, "major_faults": 0, "last": False}
    transcript.add({"event": "slice", "number": 1, "start_ns": began, "end_ns": end + 70 * ms, "t_ns": end, **measured})
    assert transcript.turn.uncounted_s == pytest.approx(transcript.turn.seconds - 0.060 - 0.010)


def test_an_epoch_may_not_begin_before_the_run_nor_before_the_last_one_ended():
    now = time.monotonic_ns()
    with pytest.raises(ProtocolError, match="malformed epoch event"):
        Transcript(now, epochs=1).add(EPOCH)
    transcript = Transcript(0, epochs=2)
    transcript.add(EPOCH)
    with pytest.raises(ProtocolError, match="malformed epoch event"):
        transcript.add({**EPOCH, "number": 2, "start_ns": 7})
    transcript.add({**EPOCH, "number": 2, "start_ns": 8, "end_ns": 20})


def test_other_events_that_cannot_have_been_are_malformed():
    for end_ns in (8, 1 << 62):  # before its start, later than now
        transcript = Transcript(0, epochs=1)
        transcript.add({"event": "phase", "name": "build", "edge": "start", "t_ns": 9})
        with pytest.raises(ProtocolError, match="malformed phase event"):
            transcript.add({"event": "phase", "name": "build", "edge": "end", "t_ns": end_ns})
    for t_ns in (-5, 1 << 62, True, 1.5):
        with pytest.raises(ProtocolError, match="malformed progress event"):
            Transcript(0, epochs=1).add({"event": "progress", "t_ns": t_ns, "epoch": 1, "steps": 1})
    settings = {}
    for _ in range(900):
        settings = {"deeper": settings}
    with pytest.raises(ProtocolError, match="malformed framework event: .* more than 20 levels"):
        Transcript(0, epochs=1).add({"event": "framework", "t_ns": 1, "version": "1", "settings": settings})


@pytest.mark.parametrize("rank, phase", [(0, "release"), (1, "epochs")])
def test_a_rank_ends_in_the_phase_that_its_end_made_rank_0_leave(rank, phase):
    transcript = Transcript(0, epochs=1, ranks=2)
    transcript.add({"event": "hello", "t_ns": 1, "python": "3"})
    for name in ("epochs", "release"):
        transcript.add({"event": "phase", "name": name, "edge": "start", "t_ns": 2})
    assert transcript.phase_of_end(rank) == phase


def written(**fields):
    read_end, write_end = os.pipe()
    EventWriter(write_end).send("warning", **fields)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        return file.read()


def test_events_arrive_whole_in_whatever_pieces_and_cut():
    line = written(message="caf\u00e9\nof two lines", steps=[1, 2])
    reader = EventReader()
    events = [event for i in range(len(line)) for event in reader.feed(line[i : i + 1])]
    assert [(e["message"], e["steps"]) for e in events] == [("caf\u00e9\nof two lines", [1, 2])]
    event = json.loads(written(loss=float("nan"), all=[float("inf"), 1.5]))
    assert event["loss"] is None and event["all"] == [None, 1.5]
    assert len(json.loads(written(message="x" * 10**6))["message"]) == MAX_TEXT
    for half in (b'"\\ud800"', b'"\xed\xa0\x80"'):
        line = b'{"event": "warning", "t_ns": 1, "message": %s, "deeper": [{%s: %s}]}\n' % (half, half, half)
        (event,) = EventReader().feed(line)
        json.dumps(event, ensure_ascii=False).encode()
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

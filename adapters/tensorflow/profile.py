"""The events of traces that TensorBoard's profile plug-in reads, in TensorFlow's own format."""

from __future__ import annotations

import functools
import re
from typing import Any, Iterator, List, Tuple

from framework_compare.adapters.common.profile import Event


def read_trace(path: str) -> Iterator[Tuple[str, str, List[Event]]]:
    """Yield the plane's name, the line's name and the events of each line."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    with open(path, "rb") as file:
        space = XSpace.FromString(file.read())
    for plane in space.planes:
        for line in plane.lines:
            yield plane.name, line.name, [_event(plane, line, event) for event in line.events]


def _event(plane: Any, line: Any, event: Any) -> Event:
    start_ns, name = line.timestamp_ns + event.offset_ps // 1000, plane.event_metadata[event.metadata_id].name
    return name, functools.partial(_counted_as, plane, event), start_ns, start_ns + event.duration_ps // 1000


def _counted_as(plane: Any, event: Any, kind: str) -> str:
    """Return the name of an event: of a host's line the type of an operator, "" for others."""
    known = plane.event_metadata[event.metadata_id]
    if kind != "operator":
        return str(known.name)
    facts = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
    stat = facts.get("hlo_op") or facts.get("eager_op")
    found = known.display_name if stat is None else stat.str_value or plane.stat_metadata[stat.ref_value].name
    # a whole function, called __inference_..., waits for its operators
    return "" if found.startswith("__") else re.sub(r"\.\d+$", "", found)

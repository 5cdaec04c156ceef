"""Counts of Paddle's profiler, as rows."""

from typing import Any, List, Tuple

from framework_compare.protocol import ProfileRow


def profile_rows(node: Any) -> Tuple[List[ProfileRow], int]:
    """Rows of a host event and all within it, and the nanoseconds that those rows of the host stand for.

    An operator is its kernel's launch, which on a CPU is its computing: static and dynamic graphs have these alike,
    and what holds them in one thread waits in another.
    """
    rows, within = [], 0
    for child in node.children_node:
        found, covered = profile_rows(child)
        rows += found
        within += covered
    for call in node.runtime_node:
        rows.append(ProfileRow("cuda-runtime", call.name, 1, call.end_ns - call.start_ns))
        within += call.end_ns - call.start_ns
        rows += [ProfileRow("kernel", work.name, 1, work.end_ns - work.start_ns) for work in call.device_node]
    if not node.name.endswith(" kernel launch"):
        return rows, within
    took = node.end_ns - node.start_ns
    return [*rows, ProfileRow("operator", node.name[: -len(" kernel launch")], 1, took - within)], took

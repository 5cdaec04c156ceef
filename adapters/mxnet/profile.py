"""Counts of MXNet's profiler: operators of the engine, which runs each alone, so that no time includes another's."""

import json
from typing import Any, Callable, List

from framework_compare.protocol import ProfileRow


def profile_rows(profiler: Any, step: Callable[[], None], folder: str) -> List[ProfileRow]:
    trace = f"{folder}/trace.json"
    profiler.set_config(profile_symbolic=True, profile_imperative=True, aggregate_stats=True, filename=trace)
    profiler.set_state("run")
    step()
    profiler.set_state("stop")
    found = json.loads(profiler.dumps(format="json"))["Time"].get("operator", {})
    profiler.dump()
    return [ProfileRow("operator", name, int(v["Count"]), round(v["Total"] * 1e6)) for name, v in found.items()]

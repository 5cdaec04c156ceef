"""With threads=1 one thread computes. Measured over steps on one batch in memory, while no loader is open.

So loader workers, threads or processes, need no telling apart: there are none yet. A thread counts by the time it ran
and the time it was ready to run, so that other load on the machine hides none.
"""

import pytest

# A second compute thread would want another whole core; handing steps to an engine thread takes less than a third.
ALLOWED_CORES = 1.5


def test_one_compute_thread(ready):
    if ready.config.device != "cpu":
        pytest.skip("config.threads limits compute threads of the CPU; run with --device cpu to test them")
    found = ready.conduct["threads"]
    wall = found["wall_ns"]
    cores = sum(cpu + waited for _, cpu, waited in found["threads"]) / wall
    busiest = ", ".join(f"{name} {(cpu + waited) / wall:.2f}" for name, cpu, waited in found["threads"][:4])
    assert cores < ALLOWED_CORES, (
        f"with config.threads=1 the worker's threads wanted {cores:.2f} cores during {found['steps']} steps"
        f" ({busiest}), expected at most one busy: limit every pool, by environment() if its library reads it when loaded"
    )

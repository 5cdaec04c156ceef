"""Options that several commands share, and how their text becomes arguments of the library."""

from __future__ import annotations

from typing import Annotated, Any, Dict, List, Optional

import typer

from framework_compare.errors import UsageError
from framework_compare.plan.values import pairs, split

Timeout = Annotated[Optional[float], typer.Option(help="Seconds after which a run is ended.")]
PhaseTimeout = Annotated[
    Optional[str], typer.Option(help="Seconds a phase may take (all but epochs), or PHASE=SECONDS,... by name.")
]
SilenceTimeout = Annotated[Optional[float], typer.Option(help="Seconds without an event or output that end a run.")]
MemoryLimit = Annotated[Optional[str], typer.Option(help="Of a run with all its processes: bytes, or 4GiB, 1500MB.")]
Retry = Annotated[Optional[str], typer.Option(help="Statuses to run again, comma-separated: failed,timed-out.")]
Index = Annotated[Optional[List[str]], typer.Option(help="FRAMEWORK=URL of an extra package index. Repeatable.")]


def phase_timeout(text: Optional[str]) -> Any:
    """30.0 from "30", {"import": 30.0} from "import=30"; UsageError for anything else."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        return {name: float(value) for name, value in pairs("--phase-timeout", split(text)).items()}
    except ValueError:
        raise UsageError(f"--phase-timeout is {text!r}; allowed: seconds, or PHASE=SECONDS,...") from None


def statuses(text: Optional[str]) -> List[str]:
    """The statuses of --retry; UsageError where it is there and names none."""
    found = split(text or "")
    if text is not None and not found:
        raise UsageError(f"--retry is {text!r}; allowed: statuses, comma-separated, such as failed,timed-out")
    return found


def limit_options(
    timeout: Optional[float], phase: Optional[str], silence: Optional[float], memory: Optional[str]
) -> Dict[str, Any]:
    """The limits of `compare()` from the options of that name."""
    return {
        "timeout_s": timeout,
        "phase_timeout_s": phase_timeout(phase),
        "silence_timeout_s": silence,
        "memory_limit": memory,
    }

"""Why a GPU holds its clocks down, as NVML's bit mask says it."""

from typing import Dict

# nvmlClocksEventReason* of nvml.h.
REASONS: Dict[int, str] = {
    0x1: "idle",
    0x2: "clocks set by the user",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clock",
}
# Those that slow down work that is there: not idleness, and not what somebody asked for.
SLOWING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


def words(mask: int) -> str:
    """ "power cap, hardware thermal slowdown" for 0x44; "none" for 0; bits that are not known by their value."""
    known = [text for bit, text in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return ", ".join(known + ([f"{rest:#x}"] if rest else [])) or "none"

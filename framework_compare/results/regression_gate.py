"""Two studies side by side, cell by cell, and whether a competitor is slower than a gate in CI allows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from framework_compare.protocol import Fields
from framework_compare.results import speed_verdicts
from framework_compare.results.block_times import block_seconds
from framework_compare.results.columns import IDENTITY
from framework_compare.results.intervals import UNKNOWN, Interval, SessionVariance, session_variance, unpaired_ratio

if TYPE_CHECKING:
    import pandas as pd

# FAILED: it does not work or fails parity. UNJUDGED: no verdict can stand, whatever the times are.
NOT_SLOWER, SLOWER, INCONCLUSIVE, FAILED, UNJUDGED = "not slower", "slower", "inconclusive", "failed", "not judged"
CODE_FAILS, CODE_INCONCLUSIVE = 1, 3


Sides = tuple["pd.DataFrame", "pd.DataFrame"]  # the cell frame and the epoch frame of a study
COLUMNS = (
    *IDENTITY,
    "status_a",
    "status_b",
    "parity_a",
    "parity_b",
    "epoch_s_median_a",
    "epoch_s_median_b",
    "ratio",
    "ratio_ci_low",
    "ratio_ci_high",
    "disturbed_share_a",
    "disturbed_share_b",
    "session_sd",
    "sessions",
    "failed",
    "barred",
    "verdict",
)


def side_by_side(a: Sides, b: Sides, history: Sequence[Sides] = ()) -> pd.DataFrame:
    """One row per cell that both studies have, in the order of the first; each side is its cell and epoch frames.

    ratio is the epoch time of B over that of A. Where both have 2 runs or more it has a 95 % interval: Welch's, as
    runs of two studies share no block, with what two sessions differ by though nothing changed. verdict is "faster" or
    "slower" (B) where that excludes 1, "not_shown" where it does not, "" where there is none. failed: why B does not work
    or trains another function, "" if neither. barred: why no verdict can stand on either cell, "" if one can. Verdicts
    are not corrected for their number.

    history: other sessions of the cells of A, unchanged. session_sd: the standard deviation between sessions, of
    logarithms, by `sessions` of them; 0: it is assumed.
    """
    import pandas as pd

    first, second, *others = (_cells(*side) for side in (a, b, *history))
    by_cell = {key: [cell["seconds"]] for key, cell in first.items()}
    for cells in others:
        for key, cell in cells.items():
            if key not in first or not _other_data(first[key], cell):
                by_cell.setdefault(key, []).append(cell["seconds"])
    between = session_variance(list(by_cell.values()))
    rows = [_row(key, first[key], second[key], between) for key in first if key in second]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _cells(frame: pd.DataFrame, epochs: pd.DataFrame) -> dict[tuple[object, ...], Fields]:
    """Cells by what is asked for, with the `seconds` of their runs."""
    blocks, cells = block_seconds(epochs), {}
    for place, record in enumerate(frame.to_dict("records")):
        seconds = list(blocks.get(place, {}).values())
        cells[tuple(record[name] for name in IDENTITY)] = {**record, "seconds": seconds}
    return cells


def variance(beside: pd.DataFrame) -> SessionVariance:
    """Return what `side_by_side` took sessions to differ by."""
    return SessionVariance(float(beside["session_sd"].iloc[0]), int(beside["sessions"].iloc[0]))


def _row(key: tuple[object, ...], a: Fields, b: Fields, between: SessionVariance) -> Fields:
    ratio = unpaired_ratio(b["seconds"], a["seconds"], between) or UNKNOWN
    low, high = ratio.ends
    verdict = "" if math.isnan(low) else "faster" if high < 1 else "slower" if low > 1 else "not_shown"
    before, now = (speed_verdicts.blocking_reason(SimpleNamespace(**one)) for one in (a, b))
    barred = f"baseline: {before.reason}" if before.reason else now.reason or _other_data(a, b)
    beside = {name: (a[name], b[name]) for name in ("status", "parity", "epoch_s_median", "disturbed_share")}
    return {
        **dict(zip(IDENTITY, key)),
        **{f"{name}_{side}": value for name, both in beside.items() for side, value in zip("ab", both)},
        "ratio": ratio.value,
        "ratio_ci_low": low,
        "ratio_ci_high": high,
        **{"session_sd": between.sd, "sessions": between.sessions},
        "failed": now.reason if now.failed else "",
        "barred": barred,
        "verdict": "" if barred else verdict,
    }


def _other_data(a: Fields, b: Fields) -> str:
    """Return why epochs of two cells do not compare: one has more samples; "" if they do, as far as is known."""
    counts = a["images"], b["images"]
    if counts[0] == counts[1] or any(count is None or math.isnan(count) for count in counts):
        return ""
    return f"{a['dataset']} has {counts[1]:.0f} samples now, and {counts[0]:.0f} in the baseline"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Judgement on B against a limit, one of the outcomes above; the reason if it failed or is not judged, else ""."""

    outcome: str
    reason: str = ""


def judge(beside: pd.DataFrame, max_slowdown: float) -> list[Judgement]:
    """One judgement per row of `baseline.beside(study)`; max_slowdown is a share, 0.05 for 5 %."""
    judged = []
    for row in beside.to_dict("records"):
        ends = (row["ratio_ci_low"], row["ratio_ci_high"])
        ratio = Interval(row["ratio"], *((None, None) if math.isnan(ends[0]) else ends))
        judged.append(judgement(ratio, max_slowdown, row["failed"], row["barred"]))
    return judged


def judgement(ratio: Interval, max_slowdown: float, failed: str, barred: str) -> Judgement:
    """Return the judgement on B by the seconds of B over those of A; failed, barred: as `side_by_side` has them.

    B is slower if the whole interval is above 1 + max_slowdown, and not slower if all of it is below. Only an interval
    that contains the limit is inconclusive; without an interval nothing is judged.
    """
    if failed:
        return Judgement(FAILED, failed)
    if barred:
        return Judgement(UNJUDGED, barred)
    if ratio.low is None or ratio.high is None:
        return Judgement(UNJUDGED, "no epoch time" if math.isnan(ratio.value) else "one run: no interval")
    most = 1 + max_slowdown
    return Judgement(NOT_SLOWER if ratio.high <= most else SLOWER if ratio.low > most else INCONCLUSIVE)


def exit_code(outcomes: Iterable[str], allow_inconclusive: bool) -> int:
    """Return the exit code of a gate: 0 if all are not slower; allow_inconclusive forgives nothing but inconclusive ones."""
    left = {*outcomes} - {NOT_SLOWER}
    if left - {INCONCLUSIVE}:
        return CODE_FAILS
    return CODE_INCONCLUSIVE if left and not allow_inconclusive else 0


def missing(baseline: pd.DataFrame, study: pd.DataFrame) -> pd.DataFrame:
    """The rows of a baseline's cell frame that a study's has not."""
    keys = {tuple(map(str, row)) for row in study[list(IDENTITY)].itertuples(index=False, name=None)}
    absent = [tuple(map(str, row)) not in keys for row in baseline[list(IDENTITY)].itertuples(index=False, name=None)]
    return baseline[absent]


def names(beside: pd.DataFrame) -> list[str]:
    """The columns that name a row: framework, model, and the settings that differ between rows."""
    return [name for name in IDENTITY if name in ("framework", "model") or beside[name].astype(str).nunique() > 1]

"""Verdicts on parity beside a study: those known for each cell when it ran, for the study's tables."""

import json
from pathlib import Path

from framework_compare import registry
from framework_compare.plan.settings import CODE_PATH, FEEDING, NETWORK, SIZES, column, of_verdict
from framework_compare.protocol import Document, Fields
from framework_compare.records import Cell
from framework_compare.results.parity import IMPORT, NOT_EQUAL, UNVERIFIED
from framework_compare.store.folder import write_json

FILE = "parity.json"
MODES = ("require", "warn", "off")
COLUMNS = ("parity", "parity_status", "parity_error", "parity_where")
# What a verdict depends on, of a cell and of a row of its frame.
_KEY = ("framework", "model", *of_verdict(CODE_PATH, NETWORK, FEEDING, SIZES))


def key(row: Document) -> str:
    """Return what a verdict depends on, as one text."""
    task = [row["dataset"]] if registry.of_arrays(row["model"]) else []  # which is its data set's
    tokens = [row["new_tokens"]] if row["mode"] == "generation" else []
    return "|".join(str(value) for value in (*(row[name] for name in _KEY), *task, *tokens))


def write(folder: Path, known: Document) -> None:
    """Store verdicts by key in a study's folder."""
    write_json(folder / FILE, known)


def row_of(cell: Cell) -> Fields:
    """A cell as its row in the cell frame has it."""
    settings = {column(name): value for name, value in cell.config.to_dict().items()}
    named = {"framework": cell.framework, "model": cell.model, "dataset": cell.dataset, "device": cell.device}
    return {**named, **settings, "device": cell.device}


def unknown(mode: str) -> Fields:
    """Return the columns of a cell without a verdict: nothing where none was asked for."""
    text = None if mode == "off" else UNVERIFIED
    return {**dict.fromkeys(COLUMNS), "parity": text, "parity_status": text}


def of_row(row: Document, known: Document, mode: str) -> Fields:
    """The verdict on a cell as its row has it, by key in `known`, but where the ladder is not asked."""
    without_ladder = unasked(row)
    if without_ladder:
        return {**dict.fromkeys(COLUMNS), "parity": without_ladder}
    verdict: Fields = known.get(key(row), unknown(mode)) if known else unknown(mode)
    return verdict


def unasked(row: Document) -> str:
    """Return what is known of a cell without the ladder, by its row; "" where the ladder is to be asked."""
    if row["optimizer_variant"] == "native":
        return NOT_EQUAL
    return IMPORT if row["framework"] in registry.AS_WRITTEN else ""


def read(folder: Path) -> dict[str, Fields]:
    """Verdicts by key, empty for a study that was run without asking for any; a damaged file holds none."""
    try:
        document = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    words = (str, type(None))
    kinds: Fields = dict(zip(COLUMNS, (str, words, (int, float, type(None)), words)))

    def is_sound(verdict: object) -> bool:
        if not isinstance(verdict, dict) or set(verdict) != set(COLUMNS):
            return False
        return all(isinstance(verdict[name], kind) for name, kind in kinds.items())

    verdicts = document.items() if isinstance(document, dict) else ()
    return {name: verdict for name, verdict in verdicts if is_sound(verdict)}

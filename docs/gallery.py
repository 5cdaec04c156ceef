"""Draws the gallery, and the README's figure with its sentence, from studies that the archive has.

python docs/gallery.py                 docs/gallery.md and docs/gallery/*.svg
python docs/gallery.py readme STUDY    docs/frameworks.svg and the top of README.md; a study's folder, or a submission
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from framework_compare.archive import records
from framework_compare.comparison import Comparison
from framework_compare.report import headlines
from framework_compare.report.figures.catalogue import FIGURES, find
from framework_compare.report.figures.subject import Subject
from framework_compare.report.names import title
from framework_compare.report.page import lights
from framework_compare.report.table_notes import unproved

ROOT = Path(__file__).parent.parent
ARCHIVE = ROOT / "archive" / "submissions"
COUNTS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}
CIFAR = "torch-tensorflow-mxnet-paddle-jax-cifar_cnn-5388e9196388"
GPT = "torch-tensorflow-mxnet-paddle-jax-gpt_nano-93a6166544c7"
LSTM = "torch-tensorflow-mxnet-paddle-jax-lstm_google-ff8b9c5476b6"
GPU = "torch-jax-gpt_nano-7f3132c64306"


class Shown(NamedTuple):
    """An image of the gallery: a figure of a submission. width: of the image, with its unit; needs: what few machines have."""

    question: str
    figure: str
    submission: str
    width: str = "150mm"
    view: str = ""
    frameworks: tuple[str, ...] = ()
    needs: str = ""

    @property
    def file(self) -> str:
        return "-".join((self.figure, *self.view.split())) + ".svg"

    @property
    def command(self) -> str:
        words = ["framework-compare", "figure", self.figure, "STUDY", "--out", self.file, "--width", self.width]
        words += ["--view", self.view] if self.view else []
        return shlex.join([*words, *(["--frameworks", ",".join(self.frameworks)] if self.frameworks else [])])


SHOWN = (
    Shown("Which framework is fastest?", "F1", CIFAR, "110mm"),
    Shown("How long does an epoch take, and how sure is that?", "F2", CIFAR),
    Shown("How many samples does it train per second?", "F2", GPT, view="sequences per second"),
    Shown("Is the fastest also the largest?", "F3", CIFAR, "110mm"),
    Shown("How much of a run do the measured epochs take?", "F4", CIFAR, frameworks=("torch", "tensorflow")),
    Shown("Where does the time of a whole run go?", "F5", CIFAR),
    Shown("Does training wait for its data?", "F6", CIFAR),
    Shown("Did the machine change while it measured?", "F7", CIFAR),
    Shown("Do all frameworks learn the same?", "F8", GPT),
    Shown("Which learns faster per second?", "F8", CIFAR, view="by seconds of training"),
    Shown("How good is the model after each epoch?", "F8", LSTM, view="by epoch"),
    Shown("How much energy does a sample take on a GPU?", "F9", GPU, needs="an energy counter"),
)
STUDIES = {CIFAR: "a CNN", GPT: "a language model", LSTM: "an LSTM", GPU: "a language model on an H100"}
LINKS = ",\n".join(f"[{name}](../archive/submissions/{one}/study.toml)" for one, name in STUDIES.items())
HEAD = f"""# Gallery

These twelve figures come from real studies in the [archive](archive.md): {LINKS}.
The sentence above each figure is computed from its data, as in the report. Below it are the caption, and the command that draws
the figure for your own study. `python docs/gallery.py` makes this page from the stored records.

Three of the [figures](report.md#figures) are not here, since no study of the archive has what they show: F10 (speed-ups over
another device, precision, execution mode or rung), F11 (functions, from a profile) and F12 (batch sizes).
"""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Comparison]:
    """The study of a folder: its own, or that of a submission's records."""
    if not (folder / "records.json").is_file():
        yield Comparison.load(folder)
        return
    read = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("records", "parity")}
    with tempfile.TemporaryDirectory() as place:
        yield Comparison(records.restore(read["records"], read["parity"], Path(place) / folder.name))


def gallery(archive: Path = ARCHIVE, *, draw: bool = True) -> str:
    """Return the page, and draw all its images unless `draw` is False; studies are opened once."""
    parts = {}
    for submission in dict.fromkeys(one.submission for one in SHOWN):
        with opened(archive / submission) as study:
            for one in (one for one in SHOWN if one.submission == submission):
                plot = study.plot(one.figure, view=one.view, frameworks=list(one.frameworks) or None)
                if draw:
                    path = plot.save(ROOT / "docs" / "gallery" / one.file, one.width)
                    path.with_suffix(".txt").unlink()
                parts[one] = _part(one, study, plot.caption)
    return "\n".join([HEAD, *(parts[one] for one in SHOWN)])


def _part(one: Shown, study: Comparison, caption: str) -> str:
    figure, subject = FIGURES[find(one.figure)], Subject(study, list(one.frameworks) or None)
    name = subject.worded(f"{figure.title}, {one.view}" if one.view else figure.title)
    finding = textwrap.fill(subject.worded(figure.seen_as(one.view, subject.worded).finding(subject)), 120)
    how = textwrap.fill(caption.partition(". ")[2].partition(" Settings: ")[0], 120)
    example = f"<!-- example: needs {one.needs} -->\n" if one.needs else ""
    image = f"![{name}](gallery/{one.file})"
    return f"## {one.question}\n\n{finding}\n\n{image}\n\n{how}\n\n{example}```bash\n{one.command}\n```\n"


def readme(folder: Path) -> None:
    """Draw the overview of a study, and put its command and its verdicts below it into the README."""
    with opened(folder.absolute()) as study:
        study.plot("overview").save(ROOT / "docs" / "frameworks.svg", "150mm").with_suffix(".txt").unlink()
        text = _sentence(study, folder.absolute())
    file = ROOT / "README.md"
    whole = file.read_text(encoding="utf-8")
    new, count = re.subn(r"(\(docs/frameworks\.svg\)\n\n).*?(?=## Start)", lambda old: old[1] + text, whole, flags=re.S)
    if count != 1:
        raise SystemExit("README.md has no figure docs/frameworks.svg above its heading Start")
    file.write_text(new, encoding="utf-8")


def _sentence(study: Comparison, folder: Path) -> str:
    cells, machine = study.frame, study.machine
    frameworks, models = (list(dict.fromkeys(cells[name])) for name in ("framework", "model"))
    first = cells.iloc[0]
    side = f"{first['image_size']:.0f}"
    images = f"{first['images']:.0f} images ({side} x {side} pixels)"
    what = f"{COUNTS[len(models)].lower()} models" if len(models) > 1 else title(models[0])
    proved = "and verified" if not any(unproved(one) or one is None for one in cells["parity"]) else "but not verified"
    where = f"{machine['cpu']}, {machine['available_cores']} cores"
    source = f"archive/submissions/{folder.name}" if folder.parent == ARCHIVE else "docs/records/fire_smoke.md"
    line = (
        f"{COUNTS[len(frameworks)]} frameworks train {what} on {images}, interleaved {proved}: "
        f"`{_command(study, frameworks, models)}` on {where}, {study.runs['started_at'].dropna().min()[:10]} "
        f"([record]({source})):"
    )
    answers = headlines.answers(list(cells.itertuples()), study.verdicts(), study.modes)
    answers = answers[:1] if len(models) > 1 else answers  # the mean over all models
    answers = [_shortened(one) for one in answers]
    fill = textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)
    untested = f", or not tested (one run: {alone})" if (alone := _with_one_run(cells)) else ""
    badge = lights.standing(lights.lights(cells, study.epochs))[1]
    marks = f"`~`: not significant{untested}; `!`: disturbed. The report's badge: *{badge}*."
    return "\n".join([fill, "", "```text", *answers, "```", "", textwrap.fill(marks, 120), "", ""])


def _shortened(answer: str) -> str:
    """The first part of an answer, with an ellipsis if others follow."""
    first, *rest = re.split(r"; (?:no verdict|ranks) ", answer, maxsplit=1)
    return textwrap.fill(f"{first} ..." if rest else first, 110)


def _with_one_run(cells: pd.DataFrame) -> str:
    """The frameworks with cells of one run, each with the models of these unless that is all."""
    names = []
    for name, rows in cells.groupby("framework", sort=False):
        once = [title(one) for one in rows.loc[rows["runs_ok"] < 2, "model"]]
        if once:
            names.append(title(name) if len(once) == len(rows) else f"{title(name)} in {' and '.join(once)}")
    return ", ".join(names)


def _command(study: Comparison, frameworks: list[str], models: list[str]) -> str:
    """The command of a study of images in a folder; settings at their defaults are left out."""
    words = ["framework-compare", "run", ",".join(frameworks), ",".join(models), "IMAGES"]
    for name in ("limit", "image_size", "batch_size", "threads", "repeats", "budget"):
        found = re.search(rf'^{name} = "?([^"\n]+)', study.to_toml(), re.M)
        words += [f"--{name.replace('_', '-')}", found[1]] if found else []
    return shlex.join(words)


if __name__ == "__main__":
    if sys.argv[1:2] == ["readme"]:
        readme(Path(sys.argv[2]))
    else:
        page = gallery(Path(sys.argv[1]) if len(sys.argv) > 1 else ARCHIVE)
        (ROOT / "docs" / "gallery.md").write_text(page, encoding="utf-8")

"""`reproduce()`: repeat a published study on this machine and compare its figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping

from framework_compare import api, stability_sweep
from framework_compare.api import compare
from framework_compare.comparison import Comparison
from framework_compare.environments import managed
from framework_compare.errors import check_name
from framework_compare.forecast import Forecast
from framework_compare.plan import reproductions
from framework_compare.plan.ladders import OF_GPUS
from framework_compare.plan.planning import Names, check_device, find_all
from framework_compare.plan.reproductions import REPRODUCTIONS, ReproductionPart
from framework_compare.plan.values import listed
from framework_compare.protocol import Document, Fields
from framework_compare.report import renderers, reproduction_tables
from framework_compare.report.tables import Table
from framework_compare.samplers import nvml
from framework_compare.stability_sweep import FOREIGN, Stability, largest_batch
from framework_compare.study.opening import check_folder, new_study_folder
from framework_compare.study.progress import Watcher, default_watcher
from framework_compare.study.run_options import check_flag

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from framework_compare.study.request import RequestOptions

SAMPLED_EPOCHS = 2  # of a run under a budget; one that takes longer than its sample is the only one
Studies = dict[str, Comparison | Stability]


class Reproduced:
    """A published study and its repetition: `studies` by name of the part, each in a folder of that name in `folder`."""

    def __init__(self, name: str, full: bool, folder: Path, studies: Studies) -> None:
        self.name, self.full, self.folder, self.studies = name, full, folder, studies

    def tables(self) -> list[Table]:
        """A table for each part with published figures, theirs next to ours."""
        parts = REPRODUCTIONS[self.name].parts
        made = [self._table(name, parts[name], study) for name, study in self.studies.items() if parts[name].beside]
        return [table for table in made if table.rows]

    def table(self, style: str = "terminal") -> str:
        """Published figures and ours, then the tables of parts without any, as "terminal", "markdown" or "latex"."""
        check_name("style", style, renderers.RENDERERS)
        texts = [renderers.RENDERERS[style](table) for table in self.tables()]
        parts = REPRODUCTIONS[self.name].parts
        for name, study in self.studies.items():
            if not parts[name].beside and isinstance(study, Comparison):
                texts.append(f"{name}: no figures are published." if style != "latex" else f"% {name}: none published")
                texts += [study.table(kind, style) for kind in parts[name].tables]
        return "\n".join(texts)

    def _table(self, name: str, part: ReproductionPart, study: Comparison | Stability) -> Table:
        size = "in full" if self.full else "quick: fewer images and epochs; a check of the pipeline, not of the figures"
        if isinstance(study, Comparison) and study.budget is not None:
            size = "the published sizes, sampled under a budget"
        caption = f"{REPRODUCTIONS[self.name].source}, {name}: published figures and ours ({size})."
        if isinstance(study, Stability):
            return reproduction_tables.sizes(part, study.frame, caption)
        if part.beside == reproductions.GAINS:
            return reproduction_tables.gains(part, study.gains, caption)
        return reproduction_tables.ratios(part, study.frame, study.block_times, caption)

    def __str__(self) -> str:
        return self.table()


def reproduce(
    name: str,
    *,
    full: bool = False,
    frameworks: Names | None = None,
    device: str | None = None,
    parts: Names | None = None,
    data: Document | None = None,
    out: None | str | os.PathLike[str] = None,
    watcher: Watcher | None = None,
    **request: Unpack[RequestOptions],
) -> Reproduced:
    """Repeat a published study of `plan.reproductions.REPRODUCTIONS`, quickly or in full.

    full: use the published sizes, which may take days; otherwise few images and epochs, which take minutes on two cores. With
        a budget, comparisons also use the published sizes and sample their epochs, at most two per run without `full`;
        sweeps and ladders ignore the budget.
    frameworks: default: those of the study. device: "cpu" or "cuda"; default: both if there is a GPU.
    parts: default: all. data: real data by part, as for `dataset` of `compare`; otherwise data are generated.
    out: folder with one study per part; studies in it are resumed. request: as for `compare`, overriding a part's own
        (epochs, repeats, limit, threads, ...); a sweep of batch sizes ignores arguments that `largest_batch` lacks.
    """
    watcher, folder = watcher or default_watcher(), check_folder("out", new_study_folder() if out is None else out)
    asked: Fields = {"full": full, "frameworks": frameworks, "device": device, "parts": parts, "data": data, **request}
    planned = _planned(name, watcher, **asked)
    studies: Studies = {}
    for part, (one, own) in planned.items():
        measure: Callable[..., Comparison | Stability] = largest_batch if one.sweeps else compare
        studies[part] = measure(out=folder / part, watcher=watcher, **own)
    return Reproduced(_find(name), full, folder, studies)


def dry_run(name: str, *, watcher: Watcher | None = None, **asked: Any) -> dict[str, Forecast]:
    """Return a forecast for each part of `reproduce`; for a sweep, which ends when a size fails, the longest case."""
    watcher = watcher or default_watcher()
    planned = _planned(name, watcher, **asked)
    found: dict[str, Forecast] = {}
    for part, (one, own) in planned.items():
        expect: Callable[..., Forecast] = stability_sweep.dry_run if one.sweeps else api.dry_run
        found[part] = expect(watcher=watcher, **own)
    return found


def _find(name: str) -> str:
    return find_all("reproduction", REPRODUCTIONS, name)[0]


def _planned(
    name: str,
    watcher: Watcher,
    full: bool = False,
    frameworks: Names | None = None,
    device: str | None = None,
    parts: Names | None = None,
    data: Document | None = None,
    **request: Any,
) -> dict[str, tuple[ReproductionPart, Fields]]:
    """The parts that run here, with the arguments of `compare`, or of a sweep of `largest_batch`."""
    published = REPRODUCTIONS[_find(name)]
    device = check_device(device) if device else "cuda" if nvml.describe_gpus() else "cpu"
    check_flag("full", full)
    data = data or {}
    asked = _parts(published.parts, parts, data)
    if frameworks is None:
        frameworks = [one for one in published.frameworks if _is_here(one, published.where_installed, watcher)]
    planned: dict[str, tuple[ReproductionPart, Fields]] = {}
    for part_name, part in asked.items():
        if device == "cpu" and "cpu" not in part.devices:
            watcher.say(f"{part_name} is skipped: it needs a GPU")
            continue
        samples = request.get("budget") is not None and not (part.sweeps or part.rungs)
        # a budget would be spent on the epochs of few runs, where these are shorter than a sample
        sampled = {"epochs": min(SAMPLED_EPOCHS, part.settings.get("epochs", SAMPLED_EPOCHS))}
        own = {**part.settings, **({} if full else sampled if samples else part.quick), **request}
        if part_name in data:
            own["dataset"] = data[part_name]
        if samples and part.reference in listed("framework", frameworks):
            own.setdefault("reference", part.reference)
        where = device if "cuda" in part.devices else "cpu"
        planned[part_name] = part, {"models": part.models, **_arguments(part, where, own), "frameworks": frameworks}
    return planned


def _parts(known: Mapping[str, ReproductionPart], wanted: Names | None, data: Document) -> dict[str, ReproductionPart]:
    for name in data:
        check_name("part", name, known)
    names = list(known) if wanted is None else find_all("part", known, wanted)
    return {name: known[name] for name in names}


def _is_here(framework: str, where_installed: Names, watcher: Watcher) -> bool:
    """Return whether a framework takes part; one that only joins where it is installed is named when it does not."""
    if framework not in where_installed or managed.find(framework) is not None:
        return True
    watcher.say(
        f"{framework} is skipped: it has no environment; create one with `framework-compare env create {framework}`"
    )
    return False


def _arguments(part: ReproductionPart, device: str, own: Document) -> Fields:
    """Return what a part is asked for on a device; a budget, which decides on repeats, is for comparisons only."""
    if part.sweeps:
        foreign: tuple[str, ...] = FOREIGN
    elif part.rungs:
        rungs = [rung for rung in part.rungs if device != "cpu" or not rung.settings.keys() & OF_GPUS]
        own, device = {**own, "rungs": rungs or None}, "cpu"
        foreign = ("budget", "precision_target", "reference")
    else:
        foreign = ("repeats",) if own.get("budget") is not None else ()
    return {"device": device, **{name: value for name, value in own.items() if name not in foreign}}

"""A static site of an archive: pages by model, framework, machine, version and month, with JSON beside each.

Ratios are taken within a study only. Across machines the site shows how far these ratios spread; it never compares
seconds of two machines. Pages ask no other host for anything and open from a disk.
"""

import collections
import datetime
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from framework_compare import __version__, registry
from framework_compare.archive import answers, conditions, entries, publish, validate
from framework_compare.archive.documents import REQUEST, Refused
from framework_compare.archive.entries import Entry, Pair, Spread, base, interval, release, slug
from framework_compare.errors import StudyError, UsageError
from framework_compare.json_types import JSON
from framework_compare.protocol import Document, Fields
from framework_compare.report.figures import spread
from framework_compare.report.figures.files import javascript_file, packed
from framework_compare.report.names import in_order, title
from framework_compare.report.renderers import environment
from framework_compare.report.table_notes import plural
from framework_compare.store import schema

PER_PAGE = 300  # submissions or ratios of one page
PER_CHART = 40  # lines of a chart
PER_SCRIPT = 2000  # submissions of one script of the search
MAX_CONDITIONS, MAX_PAIRS = 12, 60  # of a page, and of a condition
MAX_NAMES = 2000  # of a list of the first page; the search finds all
MAX_PAGE = 1_000_000  # characters
MARK = "framework-compare-site.json"  # in a folder that `site` may write again
GROUPS = {
    "models": "Models",
    "frameworks": "Frameworks",
    "machines": "Machines",
    "versions": "Versions",
    "months": "Months",
}


_Member = TypeVar("_Member", Entry, Pair)


class Built(NamedTuple):
    """A site: how many submissions it shows, its pages, and those left out with the reason."""

    submissions: int
    pages: int
    refused: list[validate.Result]


class Chart(NamedTuple):
    """A chart packed for the page's script, with the sentence that stands for it."""

    id: str
    spec: str
    text: str


class Section(NamedTuple):
    """A condition of a model: its pairs over all machines, and their chart."""

    condition: str
    spreads: Sequence[Spread]
    chart: Chart


def build(archive: Path, out: Path, *, recompute: bool = False) -> Built:
    """Write the site of a folder of submissions into a new folder, or one that holds a site.

    Submissions that `validate` refuses are left out; only with `recompute` those whose figures are not what their stored
    rounds give.
    """
    out = out.absolute()
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not a site; allowed: a new folder, an empty one, or a site")
    with schema.study_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".site-", dir=out.parent) as half:
            site = _Site(Path(half) / "site", recompute)
            built = site.fill(validate.validate(archive, recompute=recompute))
            if not built.submissions:
                raise StudyError(f"{archive} has no valid submission: {built.refused[0].refused}")
            shutil.rmtree(out, ignore_errors=True)
            site.folder.rename(out)
    return built


class _Site:
    """The pages of one site, written as submissions are read; what lists need is kept."""

    def __init__(self, folder: Path, recomputed: bool) -> None:
        self.folder, self.pages = folder, 0
        self.entries: list[Entry] = []
        self.pairs: list[Pair] = []
        self._members: dict[str, dict[str, list[Entry]]] = {}
        self._templates = environment("framework_compare.archive")
        self._templates.filters.update(named=title, slug=slug, url=quote, percent=lambda ratio: f"{ratio:.2f}x")
        self._spec = spread.ratios([])
        made = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        self._templates.globals.update(
            version=__version__,
            made=made,
            recomputed=recomputed,
            groups=GROUPS,
            widths=spread.WIDTHS,
            release=release,
            plural=plural,
            interval=interval,
        )

    def fill(self, results: Iterable[validate.Result]) -> Built:
        for name in (*GROUPS, "submissions", "assets"):
            (self.folder / name).mkdir(parents=True)
        refused = []
        for one in results:
            try:
                if one.checked is None:
                    refused.append(one)
                else:
                    self._add(one.checked)
            except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                sentence = (
                    str(error)
                    if isinstance(error, Refused)
                    else f"its {type(error).__name__} prevents it from being shown"
                )
                refused.append(one._replace(refused=sentence))
        if self.entries:
            self.entries.sort(key=lambda one: (one.date, one.id), reverse=True)
            self.pairs.sort(key=lambda one: (one.date, one.id), reverse=True)
            for kind, names_of in _NAMES.items():
                named = _grouped(self.pairs, names_of)
                self._members[kind] = _grouped(self.entries, names_of)
                for name, several in self._members[kind].items():
                    self._write_group(kind, name, several, named.get(name, []))
            self._write_index(refused)
            self._write_assets()
        return Built(len(self.entries), self.pages, refused)

    def _add(self, checked: validate.Checked) -> None:
        entry = entries.entry_of(checked)
        pairs = entries.pairs_of(checked, entry)
        document, manifest = checked.document, checked.manifest
        request = checked.folder / REQUEST if REQUEST in manifest["files"] else None
        several = len(entry.models) > 1
        rows = [
            {**_row(one, ""), "label": f"{one.label}, {title(one.model)}" if several else one.label}
            for one in pairs[:PER_CHART]
        ]
        context = {
            "entry": entry,
            "manifest": manifest,
            "stated": [conditions.ALLOWED[word] for word in entry.allowed],
            "cells": [
                {
                    **cell,
                    "interval": interval(cell["epoch_s_ci_low"], cell["epoch_s_ci_high"], ".4g"),
                    "memory": cell.get("pss_peak_bytes") or cell.get("peak_rss_bytes"),
                }
                for cell in document["cells"][:PER_PAGE]
            ],
            "left": max(0, len(document["cells"]) - PER_PAGE),
            "verdicts": document["verdicts"][:PER_PAGE],
            "chart": self._chart(rows) if rows else None,
            "request": request.read_text(encoding="utf-8") if request else "",
        }
        self._page(f"submissions/{entry.id}", "submission.html", context, {"manifest": manifest, "study": document})
        self.entries.append(entry)
        self.pairs += pairs

    def _chart(self, rows: Sequence[Document], spec: Document | None = None, number: int = 1) -> Chart:
        made = spread.with_rows(self._spec, rows) if spec is None else spec
        return Chart(
            f"spec-{number}", packed(made), f"{len(rows)} ratios of epoch times; the table has the same figures"
        )

    def _page(self, name: str, template: str, context: Document, data: JSON) -> None:
        """A page and the JSON beside it."""
        root = "../" if "/" in name else ""
        text = self._templates.get_template(template).render(root=root, page=name.rpartition("/")[2], **context)
        if len(text) > MAX_PAGE:
            raise Refused(f"its page would have {len(text)} characters; allowed: {MAX_PAGE}")
        (self.folder / f"{name}.html").write_text(text, encoding="utf-8")
        (self.folder / f"{name}.json").write_text(
            json.dumps(data, separators=(",", ":"), default=list), encoding="utf-8"
        )
        self.pages += 1

    def _write_group(self, kind: str, name: str, members: Sequence[Entry], pairs: Sequence[Pair]) -> None:
        sections = self._sections(pairs, {one.model for one in pairs}) if kind != "months" else []
        trends = self._trends(name, pairs) if kind == "frameworks" else []
        context = {
            "kind": GROUPS[kind],
            "name": name,
            "sections": sections,
            "trends": trends,
            "ratios": pairs[:PER_PAGE],
        }
        own: Fields = {"kind": kind, "name": name}
        data = {**own, "submissions": [one.id for one in members], "ratios": [one._asdict() for one in pairs]}
        first = f"{kind}/{slug(name)}"
        numbers = range(0, len(members), PER_PAGE)
        for place, start in enumerate(numbers, 1):
            page = first if place == 1 else f"{first}~{place}"  # no slug ends like that
            pages = [(n, f"{slug(name)}{'' if n == 1 else f'~{n}'}.html") for n in range(1, len(numbers) + 1)]
            more = {
                "members": members[start : start + PER_PAGE],
                "total": len(members),
                "place": place,
                "numbers": pages,
            }
            if place > 1:
                more.update(sections=[], trends=[], ratios=[])
                data = {**own, "submissions": [one.id for one in members[start : start + PER_PAGE]]}
            self._page(page, "group.html", {**context, **more}, data)

    def _sections(self, pairs: Sequence[Pair], models: set[str]) -> list[Section]:
        """A section per model and condition: spread of ratios by pair, and a chart with a point per machine."""
        found: list[Section] = []
        for model in sorted(models):
            for condition, several in entries.spreads(one for one in pairs if one.model == model).items():
                rows = [row for one in several for row in _machine_rows(one)][:PER_CHART]
                chart = self._chart(rows, number=len(found) + 1)
                found.append(Section(f"{title(model)}: {condition}", several[:MAX_PAIRS], chart))
        found.sort(key=lambda one: -sum(len(of.pairs) for of in one.spreads))
        return found[:MAX_CONDITIONS]

    def _trends(self, framework: str, pairs: Sequence[Pair]) -> list[tuple[str, Chart, list[Fields]]]:
        """Return charts of rivals' ratios to a framework over two or more versions, by model and condition."""
        groups: dict[str, list[Fields]] = {}
        for one in reversed(pairs):
            (_, version), rival, ratio = one.versions[0], one.second, one.ratio
            if base(one.first) != framework:
                (_, version), rival, ratio = one.versions[1], one.first, 1 / one.ratio
            row = {**_row(one, "../"), "version": version, "rival": title(rival), "ratio": round(ratio, 4)}
            groups.setdefault(f"{title(one.model)}: {one.condition}", []).append(row)
        found: list[tuple[str, Chart, list[Fields]]] = []
        for name, rows in groups.items():
            versions = sorted({str(row["version"]) for row in rows}, key=entries.version_key)
            if len(versions) > 1:
                rows = rows[-PER_PAGE:]
                chart = self._chart(rows, spread.trend(rows, versions), number=MAX_CONDITIONS + len(found) + 1)
                found.append((name, chart, rows))
        return found[:MAX_CONDITIONS]

    def _write_index(self, refused: Sequence[validate.Result]) -> None:
        lists = {}
        for kind, members in self._members.items():
            order = in_order(list(members)) if kind == "frameworks" else sorted(members, reverse=kind == "months")
            lists[kind] = [(name, len(members[name])) for name in order[:MAX_NAMES]]
        machines = {one.machine for one in self.entries}
        context = {
            "lists": lists,
            "most": MAX_NAMES,
            "latest": self.entries[:PER_PAGE],
            "total": len(self.entries),
            "machines": len(machines),
            "scripts": -(-len(self.entries) // PER_SCRIPT),
            "refused": [(one.folder.name, one.refused) for one in refused[:PER_PAGE]],
            "coverage": _coverage(self.entries),
            "answers": (found := answers.answers(self.pairs)),
            "gaps": answers.gaps(found),
            "compared": in_order([name for one in found for name in one.slowdowns]),
        }
        data = {
            "answers": [one._asdict() for one in found],
            "gaps": context["gaps"],
            "submissions": [{"id": one.id, "date": one.date, "machine": one.machine} for one in self.entries],
            **lists,
        }
        self._page("index", "index.html", context, data)
        self._page("coverage", "coverage.html", context, context["coverage"])

    def _write_assets(self) -> None:
        assets = self.folder / "assets"
        source = self._templates.loader.get_source
        for name in ("report.js", "search.js"):
            (assets / name).write_text(source(self._templates, name)[0], encoding="utf-8")
        styles = (source(self._templates, name)[0] for name in ("report.css", "site.css"))
        (assets / "site.css").write_text("\n".join(styles), encoding="utf-8")
        (assets / "vega.js").write_text(javascript_file(), encoding="utf-8")
        for number, start in enumerate(range(0, len(self.entries), PER_SCRIPT)):
            rows = [(one.id, one.words) for one in self.entries[start : start + PER_SCRIPT]]
            text = json.dumps(rows, separators=(",", ":"), ensure_ascii=True)
            (assets / f"found-{number}.js").write_text(f"window.found({text});\n", encoding="utf-8")
        (self.folder / MARK).write_text(json.dumps({"version": __version__, "schema_version": publish.VERSION}) + "\n")


# Under which names an entry or a pair is listed.
_NAMES: dict[str, Callable[[Any], Iterable[str]]] = {
    "models": lambda one: one.models,
    "frameworks": lambda one: dict.fromkeys(base(name) for name, _ in one.versions),
    "machines": lambda one: (one.machine,),
    "versions": lambda one: dict.fromkeys(release(name, version) for name, version in one.versions),
    "months": lambda one: (one.date[:7],),
}


def _grouped(members: Iterable[_Member], names_of: Callable[[Any], Iterable[str]]) -> dict[str, list[_Member]]:
    """The members by each of their names."""
    found: dict[str, list[_Member]] = {}
    for one in members:
        for name in names_of(one):
            found.setdefault(name, []).append(one)
    return found


def _row(one: Pair, root: str) -> Fields:
    """A ratio for a chart: a click leads to its submission."""
    ends = {name: end and round(end, 4) for name, end in (("low", one.low), ("high", one.high))}
    shown: Fields = {"shown": spread.label_of(one.shown), "interval": one.interval, "where": one.machine}
    href = f"{root}submissions/{one.id}.html" if root else "#repeat"
    return {"label": one.label, "ratio": round(one.ratio, 4), **ends, **shown, "href": href}


def _machine_rows(one: Spread) -> list[Fields]:
    """The latest ratio of each machine."""
    latest: dict[str, Pair] = {}
    for pair in one.pairs:
        latest.setdefault(pair.machine, pair)
    return [_row(pair, "../") for pair in latest.values()]


def _coverage(members: Sequence[Entry]) -> Fields:
    """Submissions by device, model and framework, with zeros where there is none."""
    counts = collections.Counter(
        key for one in members for key in {(kind, model, base(name)) for name, _, model, kind in one.cells}
    )
    frameworks = in_order([*registry.FRAMEWORKS, *sorted({name for _, _, name in counts})])
    models = [*registry.MODELS, *sorted({model for _, model, _ in counts} - set(registry.MODELS))]
    kinds = ["cpu", "cuda", *sorted({kind for kind, _, _ in counts} - {"cpu", "cuda"})]
    tables = {kind: [[model, [counts[kind, model, name] for name in frameworks]] for model in models] for kind in kinds}
    gaps = {kind: sum(not count for _, row in rows for count in row) for kind, rows in tables.items()}
    return {"frameworks": frameworks, "devices": tables, "gaps": gaps}

"""Find the release that changed a framework's speed, memory or parity: a binary search by duels with the oldest one."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from framework_compare import duels, registry
from framework_compare.comparison import Comparison
from framework_compare.environments import interpreters, locks, managed, releases
from framework_compare.environments.interpreters import Minor, Unavailable, range_text
from framework_compare.errors import StudyError, UsageError, check_name
from framework_compare.forecast import ENVIRONMENT_BYTES, ENVIRONMENT_BYTES_OTHERWISE
from framework_compare.parity import verify
from framework_compare.paths import write_whole
from framework_compare.plan import competitors
from framework_compare.plan.data_of_models import DataSets
from framework_compare.plan.values import share
from framework_compare.protocol import Fields
from framework_compare.report import bisection_report
from framework_compare.report.tables import Table
from framework_compare.results import parity, regression_gate, speed_verdicts, version_search
from framework_compare.results.version_search import CHANGED, FAILED, INCONCLUSIVE, LOOKS, UNCHANGED, Found
from framework_compare.store.study_file import Store
from framework_compare.study.opening import study_folder
from framework_compare.study.progress import Watcher, default_watcher

if TYPE_CHECKING:
    from typing_extensions import Unpack

METRICS = ("time", "memory", "parity")
FILE = "bisect.json"  # what is searched; the studies of its duels lie beside it
SAMPLE_S = 4.0  # of each release in a block; on a shared host blocks scatter by 6 %


@dataclasses.dataclass(frozen=True)
class Bisection:
    """The outcome of a search over releases.

    versions: all releases in the range, oldest first; reasons: why some of them did not work. threshold: the change
    to be found, as a share. outcome: "changed", "unchanged", "inconclusive" or "failed".
    """

    framework: str
    model: str
    metric: str
    threshold: float
    versions: tuple[str, ...]
    found: Found
    reasons: dict[str, str]
    folder: Path
    verified: bool = False  # whether all duels were between verified cells
    passed: Mapping[str, bool] = dataclasses.field(default_factory=dict)  # of metric parity: by release

    @property
    def outcome(self) -> str:
        return self.found.outcome

    @property
    def release(self) -> str | None:
        """The first release with the change; None if none is named."""
        return self.versions[self.found.after] if self.outcome == CHANGED else None

    @property
    def sentence(self) -> str:
        return bisection_report.sentence(self)

    def table(self) -> Table:
        """One row per release: its ratio to the oldest, with the interval of the search; or whether its parity holds."""
        return bisection_report.table(self)

    def figure(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the table as an SVG, by default into the folder of the search; return the path."""
        target = Path(path) if path is not None else self.folder / "bisect.svg"
        target.write_text(bisection_report.svg(self), encoding="utf-8")
        return target


@dataclasses.dataclass(frozen=True)
class Plan:
    """The forecast of a search: the largest number of duels, their minutes, and the gigabytes of new environments."""

    versions: tuple[str, ...]
    duels: int
    minutes: tuple[float, float]
    new: tuple[str, ...]
    download_bytes: float

    def __str__(self) -> str:
        least, most = self.minutes
        new = (
            f"{len(self.new)} new environments, about {self.download_bytes / 1e9:.2g} GB at most"
            if self.new
            else "none"
        )
        return (
            f"{len(self.versions)} releases: {', '.join(self.versions)}\n"
            f"at most {self.duels} duels of {LOOKS[0]} to {LOOKS[-1]} blocks: about {least:.0f} to {most:.0f} minutes\n"
            f"environments to install: {new}"
        )


def bisect(
    framework: str,
    versions: str,
    model: str,
    dataset: DataSets | None = None,
    *,
    threshold: str | float = 0.05,
    metric: str = "time",
    out: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
    **request: Unpack[duels.BisectOptions],
) -> Bisection:
    """Search the releases of a framework for the one that changed its speed, memory or parity.

    versions: the range, such as "0.9..0.12"; pre-releases and releases without a wheel for this Python are left out.
    threshold: the change to find, up or down; a smaller one may count as no change. metric: "time" (of an epoch),
    "memory" (the peak of a run) or "parity" (whether the check passes). out: a folder; a search in it is continued. The
    other arguments are those of `duel`. The probability of naming a wrong release is at most `version_search.ALPHA`.
    """
    watcher = watcher or default_watcher()
    folder, settings = study_folder(out), {**request}
    asked = _asked(framework, versions, model, dataset, threshold, metric, settings)
    listed = _kept(folder, asked)
    if not listed:
        listed = _between(asked["framework"], versions, watcher.say)
        write_whole(folder / FILE, json.dumps({"asked": asked, "versions": listed}, indent=1) + "\n")
    state = _Search(asked, listed, dataset, folder, watcher, settings)
    found = version_search.search(len(listed), asked["threshold"], state.measure, looks=LOOKS)
    result = Bisection(
        *(asked["framework"], model, metric, asked["threshold"], listed, found, state.reasons, folder, state.verified),
        passed=state.passed,
    )
    result.figure()
    return result


def dry_run(framework: str, versions: str, model: str, dataset: DataSets | None = None, **request: Any) -> Plan:
    """Return a forecast for `bisect`; nothing is started. Releases are looked up unless a search in `out` has them."""
    watcher, out = request.get("watcher") or default_watcher(), request.pop("out", None)
    asked = _asked(
        framework, versions, model, dataset, request.pop("threshold", 0.05), request.pop("metric", "time"), request
    )
    listed = (_kept(Path(out), asked) if out else ()) or _between(asked["framework"], versions, watcher.say)
    base = asked["framework"]
    names = [f"{base}@{version}" for version in (listed[0], listed[-1])]
    duel = duels.dry_run(names[0], names[1], model, dataset, blocks=LOOKS[0], **{"sample": SAMPLE_S, **request})
    if len(duel.lacks) == len(duel.cells):
        raise UsageError(duel.lacks[0])
    one = duel.seconds
    here = {str(version) for version in managed.versions_here(base)}
    count = version_search.most_duels(len(listed))
    ends = [version for version in (listed[0], listed[-1]) if version not in here]
    middle = [version for version in listed[1:-1] if version not in here][: count - 1]
    size = ENVIRONMENT_BYTES.get(base, ENVIRONMENT_BYTES_OTHERWISE)
    least, most = one.middle / 60, one.middle / 60 * count * LOOKS[-1] / LOOKS[0]
    return Plan(listed, count, (least, most), (*ends, *middle), size * (len(ends) + len(middle)))


def _asked(
    framework: str,
    versions: str,
    model: str,
    dataset: DataSets | None,
    threshold: str | float,
    metric: str,
    request: Fields,
) -> Fields:
    """A search as it is stored, checked."""
    check_name("metric", metric, METRICS)
    name = _framework(framework)
    kept = {key: value for key, value in sorted(request.items()) if key not in ("watcher", "index", "python")}
    return {
        "framework": name,
        "range": versions,
        "model": str(model),
        "dataset": None if dataset is None else str(dataset),
        "threshold": share("threshold", threshold),
        "metric": metric,
        "settings": json.loads(json.dumps(kept, default=str)),
    }


def _framework(named: str) -> str:
    """The framework that is searched, whose releases the range names."""
    (name,) = competitors.find_frameworks(str(named).partition("=")[0])
    if "=" in str(named) or "@" in name:
        base = name.partition("@")[0]
        raise UsageError(f"framework is {named!r}; allowed: a framework without a version, such as {base}")
    return name


def _ends(versions: str) -> tuple[Version, Version]:
    first, dots, last = str(versions).partition("..")
    try:
        ends = Version(first), Version(last)
    except InvalidVersion:
        ends = None
    if not dots or ends is None or not ends[0] < ends[1]:
        raise UsageError(f"versions is {versions!r}; allowed: two, the older first, such as 0.9..0.12")
    return ends


def _between(framework: str, versions: str, say: Callable[[str], None]) -> tuple[str, ...]:
    """Stable releases from one end to the other, both included, that have a wheel for the Python taken here."""
    first, last = _ends(versions)
    spec = registry.framework(framework)
    if not locks.has_versions(spec):
        raise UsageError(f"{spec.name} has one version here; allowed: a framework whose releases an index lists")
    if spec.since and first < Version(spec.since):
        raise UsageError(f"versions is {versions!r}; allowed: {spec.name} from {spec.since} on")
    minor = interpreters.choose(spec.python, framework=spec.name).minor

    def inside(version: Version) -> bool:
        upper = version <= last or version.release[: len(last.release)] == last.release
        return first <= version and upper and not version.is_prerelease

    package = locks.package(spec)
    unread: list[str] = []
    try:
        every = releases.released(package, minor, unread.append)
    except Unavailable as error:
        every = _installed(spec, inside, minor)
        if len(every) < 2:
            raise
        say(f"{error}; searching the installed releases")
    if unread:
        say(f"{unread[0]}; installed releases are searched as well")
        every = sorted({*every, *_installed(spec, inside, minor)})
    listed = tuple(dict.fromkeys(str(one.public) for one in every if inside(one)))
    _say_of_other_pythons(spec, minor, listed, inside, say)
    if len(listed) < 2:
        near = locks.nearest(last, every)
        held = f"{len(listed)} release" + "s" * (len(listed) != 1)
        raise UsageError(f"{spec.name} {versions} contains {held}, but two are needed; {near}")
    return listed


def _installed(spec: registry.Framework, inside: Callable[[Version], bool], minor: Minor) -> list[Version]:
    """Releases of the range whose environments are there, with this Python; others would differ in more than the release."""
    return [one for one in managed.versions_here(spec.name, python=minor) if inside(one)]


def _say_of_other_pythons(
    spec: registry.Framework,
    minor: Minor,
    listed: tuple[str, ...],
    inside: Callable[[Version], bool],
    say: Callable[[str], None],
) -> None:
    """Name releases of the range that only another Python of this machine has."""
    for other in interpreters.minors(spec.python):
        try:
            there = releases.released(locks.package(spec), other)
        except Unavailable:  # said before
            return
        more = {str(one.public) for one in there if inside(one)} - {*listed}
        if more:
            newest = max(more, key=Version)
            say(
                f"{newest} and others have no wheel for Python {range_text((minor, minor))}; to search them as well, run this"
                f" under Python {range_text((other, other))}"
            )
            return


def _kept(folder: Path, asked: Fields) -> tuple[str, ...]:
    """The releases of a search that was begun in this folder; () where there is none."""
    path = folder / FILE
    if not path.exists():
        return ()
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        before, now = ({**one, **one["settings"], "settings": None} for one in (kept["asked"], asked))
        listed = tuple(map(str, kept["versions"]))
    except (ValueError, KeyError, TypeError):
        raise StudyError(f"{path} is not a search over releases; name another folder") from None
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if different:
        name = different[0]
        raise StudyError(
            f"{folder} contains another search, with {name} {before.get(name)!r} instead of {now.get(name)!r}; name another"
            " folder"
        )
    return listed


@dataclasses.dataclass(eq=False)
class _Search:
    """Measures releases, each against the oldest; a duel that has run is read, not run again."""

    asked: Fields
    versions: Sequence[str]
    dataset: DataSets | None
    folder: Path
    watcher: Watcher
    request: Fields
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    verified: bool = True
    passed: dict[str, bool] = dataclasses.field(default_factory=dict)

    def measure(self, place: int, blocks: int) -> list[float] | None:
        """Measure two releases as version_search.Measure asks."""
        if self.asked["metric"] == "parity":
            verdicts = [self._parity(self.versions[one]) for one in (0, place)]
            if None in verdicts:
                return None
            return [0.0 if verdicts[0] == verdicts[1] else math.log(2)] * blocks
        logs: list[float] = []
        for before, until in zip((0, *LOOKS), LOOKS):
            if until > blocks:
                break
            more = self._duel(self.versions[place], before, until)
            if more is None:
                return None
            logs += more
        return logs

    def _duel(self, version: str, before: int, until: int) -> list[float] | None:
        """Log ratios of the blocks after so many, up to so many."""
        base = self.asked["framework"]
        self.watcher.say(
            f"{base} {version} against {self.versions[0]}: blocks {before + 1} to {until} of at most {LOOKS[-1]}"
        )
        result = duels.duel(
            f"{base}@{self.versions[0]}",
            f"{base}@{version}",
            self.asked["model"],
            self.dataset,
            blocks=until - before,
            out=self.folder / f"{version}-{until}",
            watcher=self.watcher,
            retry=["not-installed"],  # perhaps for want of a network
            **{"sample": SAMPLE_S, **self.request},
        )
        if result.outcome == regression_gate.FAILED:
            self._keep_reasons(version, result.comparison)
            return None
        self.verified = self.verified and result.verdict.verified
        if result.verdict.reason:
            self.watcher.say(f"{base} {version}: its duel does not count: {result.verdict.reason}")
            return []
        comparison = result.comparison
        times = comparison.block_times if self.asked["metric"] == "time" else _peaks(comparison)
        first, second = times.get(0, {}), times.get(1, {})
        return [math.log(second[block] / first[block]) for block in sorted(first.keys() & second.keys())]

    def _keep_reasons(self, version: str, comparison: Comparison) -> None:
        """Keep why a duel has no answer, under the release that does not work: it may be the oldest."""
        for one, cell in zip((self.versions[0], version), comparison.frame.itertuples()):
            bar = speed_verdicts.blocking_reason(cell)
            if bar.failed:
                self.reasons[one] = bar.reason

    @functools.cache  # noqa: B019 - lives as long as the search
    def _parity(self, version: str) -> bool | None:
        """Return whether the ladder holds; None where it could not be asked."""
        name = f"{self.asked['framework']}@{version}"
        where = verify.Where(self.request.get("python") or {}, self.request.get("index") or {})
        settings = {
            key: self.request[key] for key in ("device", "precision", "execution", "image_size") if key in self.request
        }
        (verdict,) = verify.verify([name], [self.asked["model"]], where=where, say=self.watcher.say, **settings)
        if verdict.status in (parity.PASSED, parity.FAILED):
            self.passed[version] = verdict.status == parity.PASSED
            return self.passed[version]
        self.reasons[version] = verdict.reason or verdict.status
        return None


def _peaks(comparison: Comparison) -> dict[int, dict[int, float]]:
    """Peak memory of each run that counts, in bytes, by place of its cell and block."""
    with Store.open(comparison.folder) as store:
        peaks = dict(store.select("SELECT run_id, peak_rss_bytes FROM run WHERE peak_rss_bytes > 0"))
    found: dict[int, dict[int, float]] = {}
    for run in comparison.runs.itertuples():
        if run.counts and run.status == "ok" and run.run_id in peaks:
            found.setdefault(int(run.cell), {})[int(run.block)] = float(peaks[run.run_id])
    return found


__all__ = ["CHANGED", "FAILED", "INCONCLUSIVE", "UNCHANGED", "Bisection", "Plan", "bisect", "dry_run"]

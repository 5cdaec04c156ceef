"""The README and docs/: links lead somewhere, pages are short, command lines parse, CI runs the README's test command."""

import configparser
import inspect
import json
import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import typer
from browser_page import NEEDED, Opened
from faulty import FAULTS

import framework_compare
from framework_compare import registry, resume
from framework_compare.archive import cite
from framework_compare.cli.root import app
from framework_compare.protocol import Trainer
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.results.metrics import METRICS
from framework_compare.worker.conformance_answers import OPTIONAL

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
RECORDS = [ROOT / "CHANGELOG.md", *sorted((ROOT / "docs" / "records").glob("*.md"))]  # tables, of any length
WORDS = 1200  # at most in a page; but:
OF_PAGE = {"README.md": 450, "map.md": 660, "columns.md": 1600}
# Scripts that records name and that are in the history alone, as their results stand.
GONE = """as_written calibration disturbances estimates imported_parity overheads parity_time part_overhead real_workloads
replica_variants replicas workload_curves workload_parity xla_programs"""
GONE = {f"benchmarks/{name}.py" for name in GONE.split()}
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
each_page = pytest.mark.parametrize("page", [*PAGES, *RECORDS], ids=lambda page: str(page.relative_to(ROOT)))


def headings(page: Path) -> "set[str]":
    """Anchors of a page's headings, as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@each_page
def test_a_page_is_short_and_the_links_files_tests_and_commands_that_it_names_are_there(page):
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        assert not anchor or anchor in headings(target), f"{page.name} links to {link}, which has no such heading"
    for path, test in NAMED.findall(page.read_text()):
        if page.name == "CHANGELOG.md" or path in GONE or path.endswith("/NAME"):
            continue
        assert (ROOT / path).exists(), f"{page.name} names {path}, which is not there"
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{page.name} names {test}, not in {path}"
    for words in command_lines(page):
        check_command_line(words)
    words, most = len(page.read_text().split()), OF_PAGE.get(page.name, WORDS)
    assert words <= most or page in RECORDS, f"{page.name} has {words} words, at most {most}: move some to docs/records"


def test_every_column_of_a_cell_and_every_figure_has_a_row():
    columns = re.findall(r"\w+", (ROOT / "docs/columns.md").read_text())
    assert not {*METRICS} - {*columns}, "docs/columns.md lacks these"
    assert not [name for name in FIGURES if f"| `{name}` |" not in (ROOT / "docs/report.md").read_text()]


NAMED = re.compile(
    r"`((?:tests|benchmarks|framework_compare|adapters|models|datasets|examples)/[\w./-]*\w/?)(?:::(\w+))?`"
)


def test_every_promise_names_tests_that_are_there_and_as_many_faults_as_there_are():
    text = (ROOT / "docs" / "promises.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise ")]
    assert len(rows) > 20
    for row in rows[1:]:
        named = [path for path, _ in NAMED.findall(row)]
        tests = [path for path in named if "def test_" in (ROOT / path).read_text()]
        assert tests or "each of those tests" in row, f"no test guards: {row}"
    faults = set(FAULTS) - {"fine", "slow", "at-most-25"}
    assert f", {len(faults)} faults of `tests/plugins/faulty.py`" in text


def test_every_page_is_linked_and_records_say_when_and_with_what():
    docs = [page for page in PAGES if page.parent == ROOT / "docs"]
    for index, pages in ((ROOT / "docs" / "index.md", docs), (ROOT / "docs" / "records" / "README.md", RECORDS[1:])):
        linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
        missing = {page.name for page in pages} - {path.name for path in linked} - {index.name}
        assert not missing, f"{index.relative_to(ROOT)} links to no {', '.join(sorted(missing))}"
    for page in RECORDS[1:]:
        text = page.read_text()
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", text), f"{page.name} has no date"
        assert re.search(r"AMD EPYC|Intel Xeon|NVIDIA", text), f"{page.name} names no machine"
    for page in [*PAGES, *RECORDS]:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            compile(block, page.name, "exec")


def command_lines(page: Path) -> "list[list[str]]":
    """Words after `framework-compare` of each command line in a page's code blocks."""
    blocks = "".join(FENCED.findall(page.read_text())).replace("\\\n", " ")
    parts = [part.strip().removeprefix("$ ") for line in blocks.splitlines() for part in line.split("&&")]
    found = [shlex.split(part, comments=True) for part in parts if re.match(r"(\S*/)?framework-compare( |$)", part)]
    return [words[1:] for words in found]


def check_command_line(words: "list[str]") -> None:
    """AssertionError where a sub-command or an option is not there."""
    command = typer.main.get_command(app)
    words = list(words)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"framework-compare has no command {name!r}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    assert not unknown, f"{command.name} has no option {unknown[0]!r}"


def test_the_docs_show_every_main_command_and_a_wrong_command_line_is_seen():
    shown = {words[0] for page in PAGES for words in command_lines(page) if words}
    assert shown >= {"run", "quickstart", "doctor", "resume", "show"}
    for line in ("run --batchsize 4", "quickstar", "env make torch"):
        with pytest.raises(AssertionError):
            check_command_line(line.split())


def test_ci_runs_the_test_command_of_the_guide_and_foreign_programs_apart():
    commands = re.findall(r'^command="(.+)"$', (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert len(commands) == 1
    assert f"\n{commands[0]}\n" in (ROOT / "README.md").read_text()
    text = (ROOT / ".ci" / "run").read_text()
    (listed,) = re.findall(r'^starting="(.+)"$', text, re.MULTILINE)
    programs = re.compile(r"mark\.slurm|scontrol|sbatch|pdflatex|browser_page")
    files = [path for path in (ROOT / "tests").glob("test_*.py") if path != Path(__file__)]
    starting = [path.stem.removeprefix("test_") for path in files if programs.search(path.read_text())]
    assert sorted(starting) == listed.split()
    for script in ("run", "nightly"):
        assert "\n. .ci/programs\n" in (ROOT / ".ci" / script).read_text()
    assert "|| install chromium-headless-shell\n" in (ROOT / ".ci" / "programs").read_text()


def test_the_tables_of_the_fairness_record_are_those_the_command_wrote():
    folder = ROOT / "docs" / "records"
    for name in ("ladder.md", "curves.md"):
        table = (folder / "fairness" / name).read_text().strip()
        assert table in (folder / "fairness-levels.md").read_text(), f"paste fairness/{name} into fairness-levels.md"


def test_intervals_of_false_verdicts_are_of_pairs_that_share_no_cell_and_have_their_data():
    """Pairs of 60 cells that share some are not independent: of them a binomial interval means nothing."""
    results, shares = ROOT / "benchmarks" / "results", set()

    def collect(found, kept):
        for name, value in found.items():
            if name.endswith("_share_95"):
                kept.add(tuple(100 * end for end in value))
            elif isinstance(value, dict) and "all pairs" not in name:
                collect(value, kept)

    for path in results.glob("verdict_rates*.json"):
        collect(json.loads(path.read_text()).get("results", {}), shares)
    record = (ROOT / "docs" / "records" / "intervals.md").read_text()
    quoted = re.findall(r"\[([\d.]+), ([\d.]+) %\]", record + (ROOT / "docs" / "verdicts.md").read_text())
    assert len(quoted) > 4
    for ends in quoted:
        digits = [len(end.partition(".")[2]) for end in ends]
        assert tuple(map(float, ends)) in {tuple(map(round, share, digits)) for share in shares}, ends
    for section in record.split("\n## ")[1:]:
        assert any(name in section for name in (path.name for path in results.iterdir())) or re.search(
            r"`benchmarks/\w+\.py`", section
        ), f"neither script nor data: {section[:60]}"


def test_the_licence_and_the_citation_file_have_what_their_formats_require():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
    text = (ROOT / "CITATION.cff").read_text()
    for line in text.splitlines():
        assert re.match(r"(# .+|[a-z-]+:( .+)?|  - [a-z-]+: .+|  - .+|  .+)$", line), f"CITATION.cff: {line!r}"
    values = dict(re.findall(r"^([a-z-]+): (.+)$", text, re.MULTILINE))
    assert values["cff-version"] == "1.2.0" and values["message"] and values["title"]
    assert re.search(r"^authors:\n  - name: framework_compare contributors$", text, re.MULTILINE)
    assert re.fullmatch(r'"20\d\d-\d\d-\d\d"', values["date-released"])
    assert values["date-released"].strip('"') in (ROOT / "CHANGELOG.md").read_text()
    placeholder = text.partition("repository-code:")[0].splitlines()[-1]
    assert "placeholder" in placeholder and values["repository-code"] == cite.REPOSITORY
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert (values["version"], values["license"]) == (setup["metadata"]["version"], setup["metadata"]["license"])
    assert f"- name: {setup['metadata']['author']}\n" in text


def test_a_source_distribution_has_every_file_and_folder_of_the_repository():
    if not (ROOT / ".git").exists():
        pytest.skip("a source distribution does not know what the repository has: clone that")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    named = {kind: {name for line in lines if line[0] == kind for name in line[1:]} for kind in ("graft", "include")}
    files = filter(None, tracked.split("\0"))
    assert not [name for name in files if name.partition("/")[0] not in named["graft"] and name not in named["include"]]


def test_the_pages_on_limits_studies_and_the_api_name_what_is_there():
    (row,) = re.findall(r"^\| several hosts per cell \| in ([^,]*),", (ROOT / "docs" / "limits.md").read_text(), re.M)
    sources = {
        name: "".join(path.read_text() for path in registry.source_path(entry.trainer).glob("*.py"))
        for name, entry in registry.FRAMEWORKS.items()
    }
    assert set(row.split(" and ")) == {name for name, text in sources.items() if "several_nodes=True" in text}
    text = " ".join((ROOT / "docs" / "environments.md").read_text().split())
    named = set(re.findall(r"`(\w+)`", re.search(r"It accepts new limits, (.*?)\.", text)[1]))
    assert named == set(inspect.signature(resume).parameters) - {"study", "retry", "executor", "watcher", "limits"}
    page = (ROOT / "docs" / "api.md").read_text()
    for name in set(framework_compare.__all__) - {"__version__"}:
        named = f"{getattr(framework_compare, name).__module__}.{name}"
        assert f" framework_compare.{name}\n" in page or f" {named}\n" in page, f"docs/api.md lacks {name}"


def section(page: str, heading: str) -> str:
    """A section of a page, up to the next heading of its level."""
    return re.split(r"^## ", (ROOT / "docs" / page).read_text().partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0]


def test_whoever_writes_an_adapter_finds_every_member_and_those_that_are_optional():
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section("extending.md", "A framework"), re.MULTILINE)
    table = {name: words for names, words in rows for name in re.findall(r"`(\w+)[(`]", names)}
    members = {name for name in vars(Trainer) if not name.startswith("_")} | {"__init__", *Trainer.__annotations__}
    assert members <= set(table)
    assert {name for name, words in table.items() if words.startswith("optional")} == set(OPTIONAL)


def test_whoever_writes_an_adapter_reads_few_lines_and_a_table_of_ops():
    framework = section("extending.md", "A framework")
    first, more = (part.splitlines() for part in framework.partition("### What to read\n")[2].split("\n\n")[:2])
    begun = [*framework.splitlines(), *section("operators.md", "What an adapter computes").splitlines()]
    for words, read in (first, begun), (more, []):
        for path in re.findall(r"(?:\(\.\./|`)(\w+/[\w/]+\.py)", " ".join(words)):
            read += (ROOT / path).read_text().splitlines()
        (most,) = re.findall(r"fewer than (\d+) lines", " ".join(words))
        assert int(most) - 50 < len(read) < int(most)
    page = runpy.run_path(str(ROOT / "docs" / "operators.py"))["page"]()
    assert (ROOT / "docs" / "adapter_operators.md").read_text() == page, "run `python docs/operators.py`"


DOCS = Path(__file__).parent.parent / "docs"
SCRIPT = runpy.run_path(str(DOCS / "published.py"))
PUBLISHED = SCRIPT["IMAGES"]
OUTSIDE = """() => {
    const whole = document.documentElement.getBoundingClientRect();
    const boxes = [...document.querySelectorAll('text')].map(one => [one.textContent.trim(), one.getBoundingClientRect()]);
    return boxes.filter(([text, box]) => text && (box.left < whole.left || box.right > whole.right)).map(([text]) => text);
}"""


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_image_of_a_published_study_has_the_figures_of_the_record(name):
    text = json.dumps(PUBLISHED[name]().to_dict())
    assert text.count('"by": "here"') >= 10 and "NaN" not in text
    assert ('"by": "published"' in text) == (name in ("lerat2021", "abidate2025"))
    assert (DOCS / "reproductions" / f"{name}.svg").is_file()


def test_images_of_records_have_their_ratios_and_intervals():
    (rows,) = PUBLISHED["lerat2021"]().to_dict()["datasets"].values()
    values = {(row["framework"], row["by"]): round(row["value"], 2) for row in rows if "VGG-16, small" in row["model"]}
    assert len(values) == 8 and values["PaddlePaddle", "published"] == 11.54 and values["PaddlePaddle", "here"] == 4.01
    (rows,) = SCRIPT["four_models"]().to_dict()["datasets"].values()
    cells = {(row["framework_label"], row["condition_label"]): (row["text"], row["interval"]) for row in rows}
    assert len(cells) == 25
    assert cells["PyTorch", "VGG-16"] == ("~ 1.28x", "[1.05, 1.55]") and cells["JAX", "VGG-16"] == ("~ 3.14x", "")
    assert cells["PaddlePaddle", "geometric mean"] == ("3.26x", "")


@pytest.mark.nightly
def test_the_page_of_the_gallery_is_what_its_script_writes():
    page = runpy.run_path(str(DOCS / "gallery.py"))["gallery"](draw=False)
    assert (DOCS / "gallery.md").read_text() == page, "run `python docs/gallery.py`"


@NEEDED
@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.svg")), ids=lambda path: path.name)
def test_no_text_of_an_image_is_cut_by_its_edges(browser, path):
    opened = Opened(browser, path)
    assert opened.count("text") > 3 and opened.page.evaluate(OUTSIDE) == []


def test_the_readme_names_cells_of_one_run_and_marks_a_shortened_sentence():
    page = runpy.run_path(str(DOCS / "gallery.py"))
    rows = [("torch", "alexnet", 2), ("jax", "alexnet", 3), ("jax", "vgg16", 1), ("paddle", "vgg16", 1)]
    cells = pd.DataFrame(rows, columns=["framework", "model", "runs_ok"])
    assert page["_with_one_run"](cells) == "JAX in VGG-16, PaddlePaddle"
    assert page["_shortened"]("A is faster than B; no verdict for C") == "A is faster than B ..."
    assert page["_shortened"]("A is faster than B") == "A is faster than B"

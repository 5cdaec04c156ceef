"""One word for one thing: what users read calls an image an image, a model a model, an epoch an epoch."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Tuple

import pytest
from command_line import APP, commands, help_of
from stored_study import recorded

from framework_compare.comparison import Comparison
from framework_compare.parity.training.curves import Curves
from framework_compare.plan.settings import SETTINGS
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, ProfileRow, Quality, Run, Sample
from framework_compare.report import kinds, parity_tables, resource_tables, side_by_side
from framework_compare.report.figures.catalogue import FIGURES
from framework_compare.report.figures.marks import MEANINGS
from framework_compare.report.table_notes import HANDING_OVER, HOW_TO_PROVE
from framework_compare.report.table_spec import NO_CELLS
from framework_compare.report.tables import Table
from framework_compare.results.metrics import METRICS
from framework_compare.results.parity import LEVELS, PASSED, Level, Parity

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
RECORDS = sorted((ROOT / "docs" / "records").glob("*.md"))
SECOND = 1_000_000_000


class Word(NamedTuple):
    """A word to avoid: as a pattern, what to write instead, and places where it is right, with the reason."""

    avoid: str
    use: str
    right: Tuple[Tuple[str, str], ...] = ()


# Code in backticks and fenced blocks is exempt: names that exist stay.
GLOSSARY = (
    Word(r"pictures?|photos?", "image"),
    Word(r"networks?", "model", ((r"check the network", "IT"), (r"(convolutional|recurrent|dense) networks", "kinds"))),
    Word(r"pass(es)? over the (images|data)", "epoch", ((r"epoch\*? (is |\()one pass over the images", "defined"),)),
    Word(r"(rows?|columns?|files?|folders?|seconds|images|joules|readings|\d+ runs?) an? [a-z]+", "per"),
    Word(r"pixels a side", "224 x 224 pixels"),
    Word(r"gone on with|go on with|goes on with", "resumed, continues"),
    Word(r"(is|are|was) (held against|told)", "compared with; reported"),
    Word(r"experiments?|trials?", "study, run"),
    Word(r"climb(s|ed|ing)?", "check the levels"),
    Word(r"others (often )?(take|took|need(ed)?)", "other programs"),
    Word(r"standing", "checks"),
    Word(r"no\s+difference ((is|was) )?shown|no difference between [a-z]+ is shown", "no significant difference"),
    Word(r"(this|it) is mended|were mended", "is fixed"),
    Word(r"no\s+interval stands", "has no interval"),
    Word(r"images so", "in 3 of 9 images"),
    Word(r"make no duel|is sure to", "a plain verb"),
    Word(r",? too(?=[.,;:])", "also, before the verb"),
    Word(r"(arrays|samples|module|model) in hand|models in hand", "in memory, an object"),
    Word(r"still to do|any more|make room", "unfinished, no longer, free some space"),
    Word(r"so (many|few) (batches|steps|images|runs)|of so (short|long|many|few)", "this many, such a"),
    Word(r"index(es)? answers?|driver answers", "responds"),
)  # fmt: skip
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def discouraged(text: str) -> "list[str]":
    """Each discouraged word of a text, with the word to use."""
    text = CODE.sub("", text)
    found = []
    for word in GLOSSARY:
        rest = text
        for pattern, _ in word.right:
            rest = re.sub(pattern, "", rest, flags=re.IGNORECASE)
        matches = re.finditer(rf"\b({word.avoid})\b", rest, re.IGNORECASE)
        found += [f"{match[0]!r}: say {word.use}" for match in matches]
    return found


def prose(page: Path) -> str:
    """The text of a record outside tables and quotes, which are as they were written."""
    return re.sub(r"^[|>].*$", "", page.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, *RECORDS], ids=lambda page: page.name)
def test_pages_and_the_prose_of_records_use_plain_words(page):
    text = prose(page) if page in RECORDS else page.read_text()
    assert discouraged(text) + awkward(text) == []


HELPS = {name: help_of(one) for name, one in (("framework-compare", APP), *APP.commands.items(), *commands())}


@pytest.mark.parametrize("name", HELPS)
def test_help_uses_the_words_of_the_glossary(name):
    assert HELPS[name].strip(), f"{name} has no help"
    assert discouraged(HELPS[name]) == []


def captions(table: Table) -> str:
    """Return the text of a table itself: caption, headings, notes and remarks."""
    titles = [text for group in table.groups for text in (group.title, *group.headings)]
    return "\n".join([table.caption, *table.headings, *titles, *table.below()])


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Comparison:
    """A study on two devices and on both GPUs, in several precisions and batch sizes, profiled; one failed, two are searches."""
    settings = [
        *({}, {"device": "cuda"}, {"device": "cuda", "precision": "bf16"}, {"device": "cuda:0,1"}, {"batch_size": 4}),
        *({"mode": "inference"}, {"mode": "generation"}, {"learning_rate": 0.1}),
    ]
    cells = [
        Cell(
            name,
            "diabetes_search" if "learning_rate" in one else "alexnet",
            "small",
            one.get("device", "cpu"),
            TrainConfig(**one),
        )
        for one in settings
        for name in ("torch", "jax")
    ]
    epochs = tuple(Epoch(n, n * SECOND, (n + 1) * SECOND, 0.1, 8, 2, 1.0, 0.1, 0.1, 0.1) for n in (1, 2, 3))
    profile = tuple(ProfileRow(kind, "gemm", 3, 1.0) for kind in ("operator", "cuda-runtime", "kernel"))
    sample = Sample(2 * SECOND, cpu_percent=90.0, rss_bytes=2**30, threads=4, gpu_power_w=300.0)
    quality = tuple(Quality(3, "validation", name, 0.5) for name in ("loss", "accuracy"))
    quality += tuple(
        Quality(3, "candidate 1", name, 0.5) for name in ("accuracy", "build_s", "first_step_s", "validation_s")
    )
    ok = Run("ok", quality=quality, epochs=epochs, samples=(sample,), profile=profile)
    folder = tmp_path_factory.mktemp("glossary") / "study"
    learnt = {"task": {"metrics": ["accuracy"]}, "baseline": "majority class", "baseline_quality": {"accuracy": 0.4}}
    datasets = {"small": {"images": 8, "skipped": 1, **learnt}}
    rungs = [{"name": f"rung {number}", "changes": {}} for number in range(len(settings))]
    runs = [Run("failed", "no driver") if number == 5 else ok for number in range(len(cells))]
    return recorded(folder, cells, runs, settings={"datasets": datasets, "rungs": rungs})


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_captions_use_the_words_of_the_glossary(comparison, kind):
    frame = getattr(comparison, kinds.KINDS[kind].frame)
    tables = kinds.build(frame, kind)
    assert tables or kind in ("stack", "modes")  # of a library beside its plain framework, of several executions
    for table in tables:
        assert discouraged(captions(table)) == awkward(captions(table)) == []


def other_tables(comparison: Comparison) -> Dict[str, Table]:
    """The tables that are not of a study's kinds."""
    verdict = Parity("torch", "1.0", "alexnet", "default", PASSED, levels=tuple(Level(n, True) for n in LEVELS))
    setting = {"steps": 2, "dataset": "small", "batch_size": 4, "image_size": 64, "learning_rate": 0.1, "momentum": 0.9}
    losses = Curves("alexnet", setting, [1.0, 0.9], [1e-6, 1e-6], {"torch": [1.0, 0.9]}, {"jax": "crashed"}, {})
    both = side_by_side.table(comparison.beside(comparison), ("A", "B"), (1, 1))
    return {
        "parity": parity_tables.parity_table([verdict]),
        "curves": parity_tables.curves_table([losses]),
        "side by side": both,
        "memory": resource_tables.memory_table(comparison.frame, ("framework", "model", "device", "precision")),
    }


def test_tables_labels_and_remarks_use_plain_words(comparison):
    for name, table in other_tables(comparison).items():
        assert (name, discouraged(captions(table)), awkward(captions(table))) == (name, [], [])
    labels = [metric.label for metric in METRICS.values()]
    settings = [setting.meaning for setting in SETTINGS.values()]
    remarks = [HANDING_OVER, HOW_TO_PROVE, *(spec.absent for spec in kinds.KINDS.values()), NO_CELLS]
    for text in (*labels, *settings, *remarks):
        assert discouraged(text) == []
    for text in remarks:
        assert awkward(text) == []


@pytest.mark.parametrize("name", FIGURES)
def test_figures_use_plain_words(name):
    figure = FIGURES[name]
    texts = figure.title, figure.question, figure.absent, *(view.caption for view in figure.views.values())
    for text in (*texts, *(words for words, _ in MEANINGS)):
        assert discouraged(text) == awkward(text) == []


@pytest.mark.parametrize(
    "template", sorted((ROOT / "framework_compare").rglob("templates/*.html")), ids=lambda template: template.name
)
def test_the_pages_of_reports_and_of_the_archive_use_plain_words(template):
    text = re.sub(r"{[{%].*?[}%]}|<(style|script).*?</\1>|<[^>]*>", " ", template.read_text(), flags=re.DOTALL)
    assert discouraged(text) == awkward(text) == []


def literals(source: str) -> Iterator[Tuple[int, str]]:
    """Line and text of each string of Python code that has words of prose, an ellipsis for each value in an f-string.

    Errors, helps, captions and remarks are among them; docstrings are not.
    """
    tree = ast.parse(source)
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)))
    passed = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        text = getattr(node, "value", None) if isinstance(node, ast.Constant) and id(node) not in passed else None
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        if isinstance(text, str) and PROSE.search(text):
            yield node.lineno, text


PROSE = re.compile(r"[A-Za-z…]\S* [a-z]{2,}")
PRODUCT = ("framework_compare", "adapters", "models", "datasets", "examples")
# A docstring states what a thing is or does: "Return ...", "Read ...", or the noun itself.
VAGUE = re.compile(r"[\s\"'`]*(what|of|whether|that|how|which|whom?|whose|where|when|why)\b", re.IGNORECASE)


def test_messages_and_docstrings_use_plain_words():
    found = {
        f"{path.relative_to(ROOT)}:{line}": (text, bad)
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for line, text in literals(path.read_text(encoding="utf-8"))
        if (bad := discouraged(text) + awkward(text))
    }
    assert found == {}
    found = dict(public())
    assert len(found) > 100
    assert {name: bad for name, text in found.items() if (bad := discouraged(text) + awkward(text))} == {}


def vague(source: str) -> "list[str]":
    """Return each docstring of Python code that begins with a word such as "what" or "of"."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    return [text for text in found if VAGUE.match(text)]


def test_docstrings_begin_with_a_verb_or_a_noun():
    files = [path for folder in (*PRODUCT, "tests/plugins") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): vague(path.read_text(encoding="utf-8")) for path in files}
    assert {name: texts for name, texts in found.items() if texts} == {}
    for text in ("What it gives.", ' "whether" it holds.', "Of images."):
        assert vague(f"class A:\n    def b(self):\n        {text!r}") == [text.strip()], text
    assert vague('"""Offset of what is read."""') == []


def test_messages_are_read_from_raised_errors_and_joined_strings():
    source = """def check(name):
    "A docstring of two words."
    if name:
        raise UsageError(f"the pictures of {name} are " "gone", KINDS["no prose"[0]])
"""
    assert [text for _, text in literals(source)] == ["the pictures of … are gone", "no prose"]
    assert discouraged(next(literals(source))[1])


def test_a_discouraged_word_is_seen_but_in_code_and_reasoned_exceptions():
    for text in ("Energy by picture.", "five Networks", "two passes over the images", "a row a cell", "gone on with"):
        assert len(discouraged(text)) == 1, text
    for text in ("`images.json`", "check the network and pip's settings", "one row per cell"):
        assert discouraged(text) == [], text
    for text in ("Intervals are of 95 %.", "The interval goes on", "All but for SINGA", "0 is the least"):
        assert len(awkward(text)) == 1, text


# Phrases that plain English does without.
AWKWARD = re.compile(
    r"\b(pictures?|(is|are) of|by itself|the least(?! recently)|comes? to|goes on|but for|told|tells?|said|is that of which)\b",
    re.I,
)


def awkward(text: str) -> "list[str]":
    """Return each awkward phrase of a text without its code and the meanings of settings."""
    for setting in SETTINGS.values():
        text = text.replace(setting.meaning, "")
    return [match[0] for match in AWKWARD.finditer(CODE.sub("", text))]


def public() -> Iterator[Tuple[str, str]]:
    """Return the name and the docstring of each object that docs/api.md shows, and of its members."""
    page = (ROOT / "docs" / "api.md").read_text()
    for name in re.findall(r"^.. auto(?:class|function):: (\S+)$", page, re.MULTILINE):
        module, _, last = name.rpartition(".")
        one = getattr(importlib.import_module(module), last)
        yield name, inspect.getdoc(one) or ""
        for member, value in inspect.getmembers(one) if inspect.isclass(one) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                yield f"{name}.{member}", inspect.getdoc(value) or ""


def test_messages_are_read_and_the_code_speaks_of_images():
    """A number, a space, %: Python's own format for shares leaves the space out."""
    folders = (ROOT / "framework_compare", ROOT / "adapters")
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(files) > 300
    assert [path.name for path in files if "%}" in path.read_text(encoding="utf-8")] == []
    named = [
        path.relative_to(ROOT).as_posix()
        for folder in ("framework_compare", "adapters", "models", "datasets", "tests", "benchmarks", "docs", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".toml", ".html", ".csv", ".json"} and path != Path(__file__)
        if "picture" in path.name.lower() or "picture" in ELEMENT.sub("", path.read_text(encoding="utf-8").lower())
    ]
    assert named == []


ELEMENT = re.compile("</?picture>")  # of HTML, which has no other name for it

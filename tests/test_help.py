"""The help of the command line: commands and options in panels, and examples that parse; those that train nothing run."""

import functools
import re
import shlex
from pathlib import Path
from typing import Any, Dict

import pytest
from command_line import commands, run
from stored_study import ok, recorded
from typer.testing import CliRunner

from framework_compare import api, registry
from framework_compare.cli import examples, options, root
from framework_compare.cli.words import MATTER
from framework_compare.errors import UsageError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.study.opening import studies_dir

EXAMPLES = [line for lines in examples.EXAMPLES.values() for line in lines]
TRAIN_NOTHING = ("list", "show", "report", "figure", "cost", "check", "export", "env list")


COMMANDS: Dict[str, Any] = dict(commands())


def split(line: str) -> "tuple[str, list[str]]":
    """The command of an example, and its arguments."""
    words = shlex.split(line)
    count = 2 if words[0] == "env" else 1
    return " ".join(words[:count]), words[count:]


def test_every_command_shows_examples_that_parse():
    for name, command in COMMANDS.items():
        lines = [f"framework-compare {line}" for line in examples.EXAMPLES[name]]
        assert lines and set(lines) <= set(command.epilog.split("\n\n")), name
    for name, arguments in map(split, EXAMPLES):
        for option, value in COMMANDS[name].make_context(name, arguments).params.items():
            if option in options.OPTIONS and isinstance(value, (str, list)):  # others are of the command itself
                options.OPTIONS[option].read(value)


@pytest.fixture
def studies(own_cache, tmp_path, monkeypatch) -> None:
    """The studies that examples name, in the cache; the current folder is empty."""
    for study in ("STUDY", "STUDY_A", "STUDY_B"):
        cells = [Cell(name, "alexnet", "small", "cpu", TrainConfig()) for name in ("torch", "jax")]
        recorded(studies_dir() / study, cells, lambda *_: ok(1, 1, 1), 2)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("line", [line for line in EXAMPLES if split(line)[0] in TRAIN_NOTHING])
def test_examples_that_train_nothing_run(line, studies, one_width):
    done = CliRunner().invoke(root.app, shlex.split(line))
    assert done.exit_code == 0, (done.output, done.exception)
    out = re.search(r"--out (\S+)", line)
    assert done.output and (not out or Path(out[1]).exists())


def headings(*arguments: str) -> "list[str]":
    """The panels of a command's help."""
    arguments = arguments or ("--help",)
    text = CliRunner().invoke(root.app, arguments, env={"COLUMNS": "120", "TERM": "dumb"}).output
    return re.findall(r"^╭─ (.+?) ─", text, re.MULTILINE)


def test_commands_and_options_are_in_panels_each_in_one():
    assert headings() == ["Options", *root.COMMANDS]
    assert list(COMMANDS)[:3] == ["quickstart", "doctor", "list"]
    assert headings("run", "--help-all") == ["Arguments", "Options", *options.PANELS]
    shown = [parameter for parameter in COMMANDS["run"].params if parameter.name not in options.PANEL_OF]
    assert {one.name for one in shown} <= {"help", "help_all", "what", "study_file"}
    assert set(options.PANEL_OF) <= set(options.OPTIONS)
    assert len(options.PANEL_OF) == sum(len(names) for names in options.PANELS.values()), "each in one panel"


def flags(*arguments: str) -> "set[str]":
    """The options that a help names at the start of a row."""
    text = CliRunner().invoke(root.app, arguments, env={"COLUMNS": "200", "TERM": "dumb"}).output
    return set(re.findall(r"^│ +(--[a-z0-9-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["run", "ladder", "largest-batch"])
def test_the_help_of_many_options_is_short_and_all_of_them_are_a_word_away(name):
    short, whole = flags(name, "--help"), flags(name, "--help-all")
    assert {"--frameworks", "--models", "--device", "--epochs", "--dry-run", "--help-all"} < short < whole
    given = {parameter.opts[0] for parameter in COMMANDS[name].params if parameter.param_type_name == "option"}
    assert whole == given | {"--help"} and {"--clip-norm", "--label-smoothing", "--epsilon"} < whole
    assert flags(name, "--help") == short, "a help shows the same twice"


def test_the_short_help_of_run_has_a_dozen_options():
    assert len(flags("run", "--help") - {"--help", "--help-all", "--from"}) == 12
    assert set(MATTER) <= set(options.OPTIONS)
    hiding = {name for name, one in COMMANDS.items() if any(getattr(x, "hidden", False) for x in one.params)}
    assert {"run", "verify"} <= hiding
    assert {name for name in hiding if "help_all" not in {one.name for one in COMMANDS[name].params}} == set()


def test_names_of_frameworks_alone_imported_models_and_workloads(own_cache, monkeypatch):
    with pytest.raises(UsageError, match="'jax@0.9.2,torch' names frameworks, but no models are named"):
        COMMANDS["verify"].main(["jax@0.9.2,torch", "--dry-run"], standalone_mode=False)

    def refuse(**_):
        raise AssertionError("an imported model was built")

    monkeypatch.setitem(registry.MODELS, "mine-01234567", registry.Model(refuse))
    assert "mine-01234567" not in run("list").stdout
    text = run("inspect", "diabetes_ann").stdout
    assert "M MACs per row" in text and "jax: has every layer" in text


COMPARE, SWEEP = "framework_compare.study.request.Request.of", "framework_compare.stability_sweep.largest_batch"
CURVES, LEVELS = "framework_compare.parity.training.curves.train_curves", "framework_compare.parity.verify.verify"


@pytest.mark.parametrize(
    ("line", "call", "asked"),
    [
        ("run torch,jax alexnet A B", COMPARE, [["torch", "jax"], ["alexnet"], ["A", "B"]]),
        ("quickstart torch,jax", COMPARE, [["torch", "jax"]]),
        ("ladder torch abidate2025-google A", COMPARE, [["torch"], ["A"]]),
        ("largest-batch torch vgg16 A", SWEEP, [["torch"], ["vgg16"], ["A"]]),
        ("largest-batch torch --models vgg16", SWEEP, [["torch"], ["vgg16"]]),
        ("doctor torch,jax", "framework_compare.cli.doctor.examine", [["torch", "jax"]]),
        ("verify torch,jax alexnet", LEVELS, [["torch", "jax"], ["alexnet"]]),
        ("verify STUDY", "framework_compare.api.verify_study", [studies_dir]),
        ("verify torch@2.12.0 --models alexnet", LEVELS, [["torch@2.12.0"], ["alexnet"]]),
        ("fairness torch,jax alexnet A", CURVES, [["torch", "jax"], ["alexnet"], "A"]),
        ("fairness torch --models alexnet", CURVES, [["torch"], ["alexnet"]]),
    ],
)
def test_what_is_trained_may_be_positional_wherever_it_is_asked_for(line, call, asked, studies, monkeypatch):
    heard = []

    @functools.wraps(api.compare)
    def hear(*positional, **given):
        heard.extend([*positional, *given.values()])
        raise UsageError("heard")

    monkeypatch.setattr(call, hear)
    done = CliRunner().invoke(root.app, shlex.split(line))
    assert str(done.exception) == "heard", done.exception
    for value in asked:
        assert (studies_dir() / "STUDY" if value is studies_dir else value) in heard


def test_positional_arguments_that_do_not_fit_are_told_and_values_complete_after_a_comma():
    for line, said in (
        (
            "largest-batch torch",
            "'torch' names frameworks, but no models are named; allowed: FRAMEWORKS MODELS [DATASET]...",
        ),
        ("largest-batch", "no frameworks are given; give --frameworks, or FRAMEWORKS MODELS [DATASET]..."),
        ("ladder --frameworks torch", "no models are given; give --models, or FRAMEWORKS MODELS [DATASET]..."),
        ("quickstart torch alexnet", "'alexnet' is one argument too many; allowed: FRAMEWORKS"),
        ("doctor torch --frameworks jax", "frameworks are given twice: 'torch' and --frameworks; allowed: FRAMEWORKS"),
    ):
        assert str(CliRunner().invoke(root.app, shlex.split(line)).exception) == said
    for option, begun, offered in (
        ("frameworks", "t", ["torch", "tensorflow"]),
        ("frameworks", "torch,t", ["torch,tensorflow"]),
        ("models", "alexnet,vgg", ["alexnet,vgg16", "alexnet,vgg16_frozen"]),
        ("execution", "g", ["graph"]),
        ("precision", "fp32,b", ["fp32,bf16"]),
        ("verify", "", ["require", "warn", "off"]),
    ):
        (parameter,) = (one for one in COMMANDS["run"].params if one.name == option)
        completed = parameter.shell_complete(COMMANDS["run"].make_context("run", []), begun)
        assert [one.value for one in completed] == offered

"""The help of the command line: commands and options in panels, and examples that parse; those that train nothing run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest
import typer
from typer.testing import CliRunner

from framework_compare import registry
from framework_compare.cli import examples, options, root
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Epoch, Run
from framework_compare.store.study_file import Store
from framework_compare.study.opening import studies_dir

SECOND = 1_000_000_000
EXAMPLES = [line for lines in examples.EXAMPLES.values() for line in lines]
TRAIN_NOTHING = ("list", "show", "report", "figure", "cost", "check", "export", "env list")


def commands(group: Any, before: str = "") -> Iterator[Tuple[str, Any]]:
    """(words, command) of every command that does something itself."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


COMMANDS: Dict[str, Any] = dict(commands(typer.main.get_command(root.app)))


def split(line: str) -> "tuple[str, list[str]]":
    """The command of an example, and its arguments."""
    words = shlex.split(line)
    count = 2 if words[0] == "env" else 1
    return " ".join(words[:count]), words[count:]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_examples(name):
    assert examples.EXAMPLES[name]
    for line in examples.EXAMPLES[name]:
        assert f"framework-compare {line}" in COMMANDS[name].epilog.split("\n\n")


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_parse(line):
    name, arguments = split(line)
    for option, value in COMMANDS[name].make_context(name, arguments).params.items():
        if option in options.OPTIONS and isinstance(value, (str, list)):  # others are of the command itself
            options.OPTIONS[option].read(value)


@pytest.fixture
def studies(own_cache, tmp_path, monkeypatch) -> None:
    """The studies that examples name, in the cache; the current folder is empty."""
    epochs = tuple(Epoch(n, n * SECOND, (n + 1) * SECOND, 0.1, 8, 2, 1.0, 0.1, 0.1, 0.1) for n in (1, 2, 3))
    for study in ("STUDY", "STUDY_A", "STUDY_B"):
        cells = [Cell(name, "alexnet", "small", "cpu", TrainConfig()) for name in ("torch", "jax")]
        with Store.create(studies_dir() / study, settings={}, machine={}, cells=cells, repeats=1) as store:
            for run_id, _, _ in store.plan():
                store.record(run_id, Run("ok", epochs=epochs))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("line", [line for line in EXAMPLES if split(line)[0] in TRAIN_NOTHING])
def test_examples_that_train_nothing_run(line, studies):
    done = CliRunner().invoke(root.app, shlex.split(line))
    assert done.exit_code == 0, (done.output, done.exception)
    out = re.search(r"--out (\S+)", line)
    assert done.output and (not out or Path(out[1]).exists())


def headings(*arguments: str) -> "list[str]":
    """The panels of a command's help."""
    text = CliRunner().invoke(root.app, [*arguments, "--help"], env={"COLUMNS": "120", "TERM": "dumb"}).output
    return re.findall(r"^╭─ (.+?) ─", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("option", "begun", "offered"),
    [
        ("frameworks", "t", ["torch", "tensorflow"]),
        ("frameworks", "torch,t", ["torch,tensorflow"]),
        ("models", "alexnet,vgg", ["alexnet,vgg16"]),
        ("execution", "g", ["graph"]),
        ("precision", "fp32,b", ["fp32,bf16"]),
        ("verify", "", ["require", "warn", "off"]),
    ],
)
def test_the_shell_completes_values_after_a_comma_too(option, begun, offered):
    (parameter,) = (one for one in COMMANDS["run"].params if one.name == option)
    assert [one.value for one in parameter.shell_complete(COMMANDS["run"].make_context("run", []), begun)] == offered


def test_commands_are_in_panels_and_those_for_newcomers_come_first():
    assert headings() == ["Options", *root.COMMANDS]
    assert list(COMMANDS)[:3] == ["quickstart", "doctor", "list"]


def test_options_of_run_are_in_panels():
    assert headings("run") == ["Arguments", "Options", *options.PANELS]
    shown = [parameter for parameter in COMMANDS["run"].params if parameter.name not in options.PANEL_OF]
    assert [parameter.name for parameter in shown if parameter.name not in ("help", "what", "study_file")] == []


def test_panels_name_options_that_are_there():
    assert set(options.PANEL_OF) <= set(options.OPTIONS)
    assert len(options.PANEL_OF) == sum(len(names) for names in options.PANELS.values()), "each in one panel"


def test_models_that_this_process_imported_are_not_listed(own_cache, monkeypatch):
    def refuse(**_):
        raise AssertionError("an imported model was built")

    monkeypatch.setitem(registry.MODELS, "mine-01234567", refuse)
    assert "mine-01234567" not in CliRunner().invoke(root.app, ["list"]).output


def test_a_workload_can_be_inspected():
    done = CliRunner().invoke(root.app, ["inspect", "diabetes_ann"])
    assert done.exit_code == 0, done.output
    assert "M MACs per row" in done.output and "jax: has every layer" in done.output

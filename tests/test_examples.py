"""The examples are requests that the library takes."""

import ast
import json
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from framework_compare import api
from framework_compare.cli import root
from framework_compare.study import study_toml

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_study_file_is_a_request_that_can_be_planned(own_cache):
    forecast = api.dry_run(**study_toml.read(EXAMPLES / "study.toml", {}))
    assert len(forecast.cells) == 3 * 2 * 2


def test_the_script_prints_verdicts_a_table_and_a_report(monkeypatch, tmp_path, capsys, one_width):
    from drawn_study import study

    made, requests = study(tmp_path / "study"), []
    monkeypatch.setattr("framework_compare.api.compare", lambda *names, **request: requests.append(request) or made)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "compare.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "faster than" in printed and r"\label{tab:alexnet}" in printed and (tmp_path / "report.html").is_file()
    assert requests[0]["limit"] == 24


def test_the_package_of_an_adapter_trains_in_less_than_150_lines():
    """Without what only the parity checks call, and without comments."""
    package = EXAMPLES / "adapter_package" / "fc_tinygrad"
    checks = {"gradients", "forward", "weights", "read_batch"}  # the package's README names them
    count = 0
    for path in package.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        left_out = {
            number
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and node.name in checks
            for number in range(node.lineno, node.end_lineno + 1)
        }
        lines = enumerate(text.splitlines(), 1)
        count += sum(bool(line.split("#")[0].strip()) and number not in left_out for number, line in lines)
    assert 0 < count < 150


@pytest.mark.nightly
def test_the_notebook_runs_and_each_of_its_results_is_shown(monkeypatch, capsys):
    """Its cells in order, as Jupyter runs them: the value of a cell's last expression has a rich display, or text."""
    notebook = EXAMPLES.parent / "docs" / "compare.ipynb"
    monkeypatch.chdir(notebook.parent)
    shown, names = [], {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            *body, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(body, []), "notebook", "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
    comparison, _, plot, frame, report = shown
    assert "PyTorch" in comparison._repr_html_() and "faster than" in capsys.readouterr().out
    assert "<svg" in plot._repr_html_() and "pss_peak_bytes" in frame
    assert (names["folder"] / report).is_file()
    shutil.rmtree(names["folder"])


def test_the_commands_of_the_workflow_parse():
    """`run` with the study file, `duel` of two environments: options that the command line has."""
    commands = typer.main.get_command(root.app).commands
    lines = re.findall(r"\.venv/bin/framework-compare (.+)", (EXAMPLES / "github-workflow.yml").read_text())
    assert [line.split()[0] for line in lines] == ["doctor", "run", "show", "report", "duel"]
    for line in lines:
        name, *arguments = shlex.split(line, comments=True)
        commands[name].make_context(name, arguments)

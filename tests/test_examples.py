"""The examples are requests that the library takes."""

from __future__ import annotations

import runpy
from pathlib import Path

from framework_compare import api
from framework_compare.study import study_toml

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_study_file_is_a_request_that_can_be_planned(own_cache):
    request = study_toml.read(EXAMPLES / "study.toml", api.compare)
    forecast = api.compare(**request, dry_run=True)
    assert len(forecast.cells) == 3 * 2 * 2


def test_the_script_prints_verdicts_a_table_and_a_report(monkeypatch, tmp_path, capsys):
    from drawn_study import study

    made, requests = study(tmp_path / "study"), []
    monkeypatch.setattr("framework_compare.api.compare", lambda *names, **request: requests.append(request) or made)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "compare.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "faster than" in printed and r"\label{tab:alexnet}" in printed and (tmp_path / "report.html").is_file()
    assert requests[0]["limit"] == 24

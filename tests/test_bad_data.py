"""Bad data on the command line: one clear line, exit code 2, and no study."""

from __future__ import annotations

import sys

import pytest
from test_array_faults import JPEG, PIMA, PRICES, TWEETS

from framework_compare.cli import root


def _of(text, name):
    return lambda folder: (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize(
    ("model", "write", "message"),
    [
        ("lstm_ibm", _of(PRICES.replace("High", "Top"), "d.csv"), "has no column 'High'"),
        ("lstm_ibm", _of(PRICES.replace(",2,1,3,9", ",n/a,1,3,9"), "d.csv"), "line 4: High is 'n/a', not a number"),
        ("lstm_ibm", _of(PRICES.replace(",2,1,3,9", ",nan,1,3,9"), "d.csv"), "line 4: High is 'nan'"),
        ("lstm_ibm", _of(PRICES, "d.csv"), "12 "),
        ("diabetes_ann", _of("", "d.csv"), "is empty; give one with data"),
        ("diabetes_ann", _of(PIMA.replace("Outcome", "Result"), "d.csv"), "has no column 'Outcome'"),
        ("tweet_span", _of(JPEG, "d.csv"), "is a JPEG image where text is needed"),
        ("tweet_span", _of(TWEETS.replace("positive", "glad"), "d.csv"), "sentiment"),
    ],
    ids=["column", "number", "nan", "short", "empty", "target", "image", "label"],
)
def test_bad_data_is_one_line_and_leaves_no_study(model, write, message, tmp_path, own_cache, monkeypatch, capsys):
    write(tmp_path)
    words = ["--frameworks=torch", f"--models={model}", f"--dataset={tmp_path / 'd.csv'}", f"--out={tmp_path / 's'}"]
    monkeypatch.setattr(sys, "argv", ["framework-compare", "run", *words])
    with pytest.raises(SystemExit) as ended:
        root.main()
    said = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2 and len(said) == 1
    assert said[0].startswith("framework-compare: ") and message in said[0]
    assert not (tmp_path / "s").exists()

"""How benchmarks/renew.py judges the newest releases: whether a pin can move, and what another Python has."""

import dataclasses
import json
import sys
import types

import pytest
from wheels import write_wheel

from framework_compare import registry
from framework_compare.environments import interpreters
from framework_compare.registry import Framework
from framework_compare.results import regression_gate
from framework_compare.results.parity import Parity

HERE, OTHER = sys.version_info[:2], (3, 99)


@dataclasses.dataclass
class Said:
    """What the checks of each release are to say."""

    parity: dict[str, str] = dataclasses.field(default_factory=dict)  # by competitor; others pass
    outcome: str = regression_gate.NOT_SLOWER


@pytest.fixture
def renew(benchmark, monkeypatch, tmp_path):
    """The script, `tiny` pinned to 1.0 with real wheels of 1.1 and, for another Python, of 2.0; and what checks say."""
    renew, said = benchmark("renew"), Said()
    for version, tag in {"1.0": "py3-none-any", "1.1": "py3-none-any", "1.2rc1": "py3-none-any"}.items():
        write_wheel(tmp_path, tag, version)
    write_wheel(tmp_path, "cp399-none-any", "2.0")
    for key, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(key, value)
    (tmp_path / "tiny.txt").write_text("tinyfw==1.0\n")
    entry = Framework("tiny", "tiny:Tiny", str(tmp_path / "tiny.txt"), "", ((3, 8), OTHER))
    monkeypatch.setitem(registry.FRAMEWORKS, "tiny", entry)
    monkeypatch.setattr(interpreters, "minors", lambda between: [OTHER, HERE])

    def verify(competitors, models, **_):
        status = said.parity.get(competitors[0], "passed")
        return [Parity(competitors[0], "", models[0], "default", status)]

    def ensure(competitor, **_):
        python = OTHER if competitor.endswith("@2.0") else HERE
        return types.SimpleNamespace(size_bytes=10**9, interpreter=".".join(map(str, (*python, 1))))

    def duel(first, second, model, data, **_):
        return types.SimpleNamespace(sentence=f"{second} against {first}", outcome=said.outcome)

    monkeypatch.setattr(renew.verify, "verify", verify)
    monkeypatch.setattr(renew.managed, "ensure", ensure)
    monkeypatch.setattr(renew.duels, "duel", duel)
    monkeypatch.setattr(renew.locks, "find", lambda *_: types.SimpleNamespace(path=tmp_path / "lock"))
    return renew, said


def test_a_pin_can_move_to_a_release_that_passes_and_is_not_slower(renew):
    script, _ = renew
    row = script.look("tiny", ("mnist_cnn",), 4)
    assert (row["pinned"], row["newest"], row["verdict"]) == ("1.0", "1.1", "the pin can move")
    assert row["ratios"] == {"mnist_cnn": "tiny@1.1 against tiny@1.0"}
    assert row["elsewhere"] == "2.0 (Python 3.99)" and not script.fails(row)
    shown = script.table([{**row, "minutes": 1.0}])
    assert "| tiny | 1.0 | 1.1 | mnist_cnn passed" in shown and "2.0 (Python 3.99): mnist_cnn passed" in shown


@pytest.mark.parametrize(
    ("parity", "outcome", "verdict"),
    [
        ({"tiny@1.1": "failed"}, regression_gate.NOT_SLOWER, "the pin stays (parity: mnist_cnn)"),
        ({}, regression_gate.SLOWER, "the pin stays (slower: mnist_cnn)"),
        ({}, regression_gate.FAILED, "the pin stays (slower: mnist_cnn)"),
        ({"tiny@2.0": "failed"}, regression_gate.NOT_SLOWER, "the pin can move"),
    ],
    ids=["parity", "slower", "broken", "elsewhere"],
)
def test_a_newer_release_that_fails_is_said_and_ends_the_routine_with_an_error(renew, parity, outcome, verdict):
    script, said = renew
    said.parity, said.outcome = parity, outcome
    row = script.look("tiny", ("mnist_cnn",), 4)
    assert row["verdict"] == verdict and script.fails(row)


@pytest.mark.parametrize("outcome", [regression_gate.INCONCLUSIVE, regression_gate.UNJUDGED])
def test_without_an_answer_on_step_time_no_pin_moves(renew, monkeypatch, capsys, outcome):
    script, said = renew
    said.outcome = outcome
    monkeypatch.setattr(sys, "argv", ["renew.py", "tiny", "--quick"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 3
    assert "| undecided: run again on a quiet machine (mnist_cnn) |" in capsys.readouterr().out


def test_a_framework_that_cannot_be_looked_up_does_not_end_the_routine(renew, monkeypatch, capsys, tmp_path):
    script, said = renew
    pins = registry.FRAMEWORKS["tiny"].requirements
    monkeypatch.setitem(registry.FRAMEWORKS, "lost", Framework("lost", "lost:T", pins, "", ((3, 8), OTHER)))
    monkeypatch.setattr(script, "look_elsewhere", lambda spec, *_: unreachable() if spec.name == "lost" else {})
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(sys, "argv", ["renew.py", "lost", "tiny", "--quick", "--save", str(kept)])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 1
    shown = capsys.readouterr().out
    assert "| lost | 1.0 | - | - | - | cannot be checked: no index answers; check the network |" in shown
    assert "| tiny | 1.0 | 1.1 |" in shown and "the pin can move" in shown
    assert [row["framework"] for row in json.loads(kept.read_text())["rows"]] == ["lost", "tiny"]


def test_what_was_found_before_an_interrupt_is_shown(renew, monkeypatch, capsys):
    script, said = renew
    found = iter([lambda: {"framework": "tiny", "pinned": "1.0", "newest": "1.1", "verdict": "the pin can move"}])
    monkeypatch.setattr(script, "look", lambda *_: next(found, interrupted)())
    monkeypatch.setattr(sys, "argv", ["renew.py", "tiny", "tiny"])
    with pytest.raises(KeyboardInterrupt):
        script.main()
    assert "| tiny | 1.0 | 1.1 | - | - | the pin can move |" in capsys.readouterr().out


def unreachable():
    raise interpreters.Unavailable("no index answers", "check the network")


def interrupted():
    raise KeyboardInterrupt

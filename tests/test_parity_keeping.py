"""Verdicts on parity are kept whole, and for that state only of what they depend on."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys

import pytest

from framework_compare.errors import UnknownNameError
from framework_compare.parity import cache, curves
from framework_compare.parity import verify as ladder
from framework_compare.parity.result import PASSED, Level, Parity

HELD = Parity("torch", "1.0", "alexnet", "default", PASSED, levels=(Level(0, True), Level(1, True, "fc", 1e-7, 0.5)))


def _save_often(number: int) -> str:
    for _ in range(200):
        cache.save("one", {"value": "x" * 5000, "by": number})
    return "done"


def test_several_processes_may_keep_the_same_verdict_at_once(own_cache):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(_save_often, range(4)) == ["done"] * 4
    assert len(cache.load("one")["value"]) == 5000
    assert [path.name for path in (own_cache / "parity").iterdir()] == ["one.json"]


def test_a_verdict_is_read_as_it_was_kept(own_cache):
    cache.save("network", HELD.to_dict())
    assert cache.load_network("network") == HELD


OTHER_FORMS = (
    "{}",
    "[]",
    "null",
    "3",
    "not json",
    "[" * 100_000,
    '{"levels": [{"a": 1}]}',
    '{"levels": 3}',
    '{"framework": 1, "version": "1", "model": "m", "execution": "default", "status": "passed"}',
    '{"framework": "f", "version": "1", "model": "m", "execution": "default", "status": 5, "levels": []}',
    '{"framework": "f", "version": "1", "model": "m", "execution": "default", "status": "passed", "levels": [{"number": "0", "passed": true}]}',
    '{"number": 4, "passed": "yes"}',
    '{"number": 4, "passed": true, "more": 1}',
    '{"number": 4, "passed": true, "error": "small"}',
)  # fmt: skip


@pytest.mark.parametrize("content", OTHER_FORMS, ids=range(len(OTHER_FORMS)))
@pytest.mark.parametrize("load", [cache.load_network, cache.load_pipeline, cache.load_curve], ids=lambda f: f.__name__)
def test_a_document_of_another_form_is_no_verdict(own_cache, content, load):
    cache.save("key", {})
    (own_cache / "parity" / "key.json").write_text(content)
    assert load("key") is None


def test_an_unknown_device_is_a_wrong_request(own_cache):
    command = [sys.executable, "-m", "framework_compare.cli", "verify", "--device", "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown device 'gpu'; allowed: cpu, cuda, cuda:N" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("ask", [ladder.verify, lambda *names, **more: curves.train_curves(*names, ".", **more)])
def test_an_unknown_device_is_told_before_anything_is_made(own_cache, ask):
    with pytest.raises(UnknownNameError, match="unknown device 'gpu'"):
        ask("torch", "alexnet", device="gpu")
    assert not own_cache.exists()

"""Verdicts on parity are kept whole, and for that state only of what they depend on."""

import dataclasses
import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import run
from parity_fixtures import climbs

from framework_compare import registry
from framework_compare.environments import gpu_builds
from framework_compare.environments.managed import Environment
from framework_compare.errors import UnknownNameError
from framework_compare.launch import staging
from framework_compare.parity import cache
from framework_compare.parity import verify as ladder
from framework_compare.parity.cache import requirements, state
from framework_compare.parity.training import curves, training_check
from framework_compare.parity.workers import RunTasks
from framework_compare.protocol import TrainConfig
from framework_compare.results.parity import PASSED, Level, Parity

HELD = Parity("torch", "1.0", "alexnet", "default", PASSED, levels=(Level(0, True), Level(1, True, "fc", 1e-7, 0.5)))


def _save_often(number: int) -> str:
    for _ in range(200):
        cache.save("one", {"value": "x" * 5000, "by": number})
    return "done"


def test_a_verdict_is_read_as_several_processes_kept_it_at_once(own_cache):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(_save_often, range(4)) == ["done"] * 4
    assert len(cache.load("one")["value"]) == 5000
    assert [path.name for path in (own_cache / "parity").iterdir()] == ["one.json"]
    cache.save("network", HELD.to_dict())
    assert cache.load_network("network") == HELD


LEVELS = ('{"levels": [{"a": 1}]}', '{"levels": 3}', '{"levels": [{"number": 4, "passed": true, "more": 1}]}')


@pytest.mark.parametrize("load", [cache.load_network, cache.load_levels, cache.load_curve], ids=lambda f: f.__name__)
def test_a_document_of_another_form_is_no_verdict(own_cache, load):
    cache.save("key", {})
    for content in ("{}", "[]", "null", "3", "not json", "[" * 100_000, *LEVELS):
        (own_cache / "parity" / "key.json").write_text(content)
        assert load("key") is None, content[:99]


def test_an_unknown_device_is_a_wrong_request(own_cache):
    done = run("verify", "--device", "gpu", check=2)
    assert not done.stdout
    assert "unknown device 'gpu'; allowed: cpu, cuda, cuda:N" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("ask", [ladder.verify, lambda *names, **more: curves.train_curves(*names, ".", **more)])
def test_an_unknown_device_is_told_before_anything_is_made(own_cache, ask):
    with pytest.raises(UnknownNameError, match="unknown device 'gpu'"):
        ask("torch", "alexnet", device="gpu")
    assert not own_cache.exists()


THERE = {"torch": "2.13.0", "torchvision": "0.28.0", "pillow": "13.0.0", "numpy": "2.4.6", "pytest": "9.0"}


def environment(managed: bool = True, version: "str | None" = "2.13.0", **packages: str) -> Environment:
    return Environment("torch", Path(sys.executable), version, managed, "3.11.2", {**THERE, **packages})


def key(where: Environment, device: str = "cpu", framework: str = "torch") -> str:
    entry = registry.framework(framework)
    return cache.pipeline_key(entry, state(entry, where, device), TrainConfig(device=device))


def test_another_state_of_what_computes_asks_anew(monkeypatch):
    """All packages count of an environment that is managed, and where the framework has no version."""
    for managed in (True, False):
        for name in ("torchvision", "pillow", "simplejpeg", "numpy", "nvidia-cudnn-cu12"):
            assert key(environment(managed)) != key(environment(managed, **{name: "0.1"})), (managed, name)
    assert key(environment(False)) == key(environment(False, pytest="10.0"))
    for given in ((), (False, None)):
        assert key(environment(*given)) != key(environment(*given, pytest="10.0"))
    before, files = key(environment()), dict(staging._worker_side())
    files["framework_compare/batches/order.py"] += b"# another state\n"
    monkeypatch.setattr(staging, "_worker_side", files.items)
    assert key(environment()) != before
    before, entry = key(environment()), registry.framework("torch")
    monkeypatch.setitem(registry.FRAMEWORKS, "torch", dataclasses.replace(entry, trainer=entry.trainer + "2"))
    assert key(environment()) != before


@pytest.mark.parametrize(
    "framework, some",
    [
        ("torch", {"torch", "torchvision"}),
        ("jax", {"jax", "jaxlib", "optax", "grain", "jax-cuda13-plugin"}),
        ("tensorflow", {"tensorflow", "tensorflow-cpu", "keras"}),
        ("paddle", {"paddlepaddle", "paddlepaddle-gpu"}),
        ("mxnet", {"mxnet", "mxnet-cu112"}),
    ],
)
def test_what_computes_is_named_by_the_requirements_of_every_device(framework, some):
    assert requirements(registry.framework(framework)) >= {*some, "numpy", "pillow", "simplejpeg"}


def test_another_gpu_asks_anew_and_none_is_needed_for_a_key(monkeypatch):
    names = iter(["NVIDIA A100", "NVIDIA H200"])
    monkeypatch.setattr(gpu_builds, "look", lambda device: gpu_builds.Gpu(next(names), (9, 0), "580"))
    assert key(environment(), "cpu") == key(environment(), "cpu")
    assert key(environment(), "cuda") != key(environment(), "cuda")

    def none(device):
        raise gpu_builds.NoGpu("no driver", "get one")

    monkeypatch.setattr(gpu_builds, "look", none)
    assert key(environment(), "cuda") == key(environment(), "cuda")


@pytest.fixture
def honest(mutate, short_level_4):
    """Climbs the reference in float32, which has one execution; the statuses, and what is said."""
    mutate()

    def climb(models=("small",), **settings):
        said = []
        return [one.status for one in climbs(models, say=said.append, **settings)], said

    return climb


def test_an_execution_that_is_lacking_is_found_before_a_reference_is_made(honest, own_cache, monkeypatch):
    asked = []
    call = RunTasks.__call__
    monkeypatch.setattr(RunTasks, "__call__", lambda *a, **given: asked.append(a) or call(*a, **given))
    assert honest(("small", "mobilenet_v2"), execution="graph") == (["unsupported"] * 2, [])
    assert len(asked) == 1
    assert not [*(own_cache / "parity").glob("*.json")]
    statuses, said = honest(execution=["default", "graph"])
    assert statuses == ["passed", "unsupported"] and sum("reference" in line for line in said) == 1


def test_all_of_a_climb_is_kept_and_asked_anew_for_another_state_of_the_environment(honest, monkeypatch):
    assert "mutated small fp32 default: levels 0 to 3 and 5" in honest()[1] and not honest()[1]
    monkeypatch.setattr(cache, "state", lambda *a: {**state(*a), "packages": {"numpy": "0.1"}})
    said = honest()[1]
    assert any("levels 0 to 3" in line for line in said) and any("native pipeline" in line for line in said)


def test_of_calls_side_by_side_one_trains_the_small_network(honest, monkeypatch):
    monkeypatch.setitem(registry.MODELS, "small2", registry.Model("small:build"))
    trained, both = [], threading.Barrier(2)
    judge, lock = training_check.judge, cache.lock
    monkeypatch.setattr(training_check, "judge", lambda *a: trained.append(a) or judge(*a))

    def lock_together(key):
        both.wait(100)
        return lock(key)

    monkeypatch.setattr(cache, "lock", lock_together)
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda model: honest((model,))[0], ["small", "small2"]))
    assert found == [["passed"]] * 2 and len(trained) == 1

"""Verdicts: what a study shows of its frameworks, in records, sentences and the first lines of tables."""

import numpy as np
import pytest
from bounds import decimals, digits
from scipy import stats
from stored_study import ok, recorded

from framework_compare.comparison import Comparison
from framework_compare.errors import UnknownNameError
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell, Run
from framework_compare.report import headlines
from framework_compare.results import speed_verdicts
from framework_compare.results.intervals import Interval, p_beyond
from framework_compare.results.runs import Modes
from framework_compare.results.speed_verdicts import Bar, Verdict, of_two, ranks
from framework_compare.store.study_file import Store


def study(folder, times, **settings):
    """`times` maps (framework, model) to seconds of its runs, None for one that crashed."""
    cells = [Cell(name, model, "small", "cpu", TrainConfig(**settings)) for name, model in times]
    with Store.create(folder, settings={}, machine={}, cells=cells, repeats=min(map(len, times.values()))) as store:
        for blocks in range(min(map(len, times.values())), max(map(len, times.values()))):
            store.add_block([cell for cell in cells if len(times[cell.framework, cell.model]) > blocks])
        for run_id, cell, repeat in store.plan():
            seconds = times[cell.framework, cell.model][repeat - 1]
            store.record(run_id, ok(seconds, images=10, steps=1) if seconds else Run("crashed", "SIGSEGV"))
    return Comparison.load(folder)


CLEAR = {
    ("torch", "resnet50"): (1.00, 1.02, 0.99, 1.01),
    ("mxnet", "resnet50"): (1.42, 1.43, 1.42, 1.44),
    ("jax", "resnet50"): (1.01, 1.00, 1.01, 0.99),
}


def test_a_difference_that_runs_show_is_a_sentence_with_its_interval(tmp_path):
    found = {(one.faster, one.slower): one for one in study(tmp_path, CLEAR).verdicts()}
    one = found["torch", "mxnet"]
    assert one.sentence == "resnet50: torch is 1.42x [1.40, 1.44] faster than mxnet (not verified)"
    assert (one.shown, one.corrected, one.comparisons, one.blocks, one.reason) == (True, True, 3, 4, "")
    assert one.low < 1.42 < one.high and one.condition["batch_size"] == 16 and one.condition["dataset"] == "small"
    close = found["jax", "torch"]
    assert not close.shown and close.ratio >= 1 > close.low
    assert close.sentence.startswith("resnet50: no significant difference between jax and torch (1.00x [0.98, 1.03])")


def test_with_one_run_a_figure_stands_and_nothing_is_named_the_fastest(tmp_path):
    comparison = study(tmp_path, {key: seconds[:1] for key, seconds in CLEAR.items()})
    assert {(one.shown, one.low, one.high, one.p) for one in comparison.verdicts()} == {(False, None, None, None)}
    sentence = "resnet50: no verdict on torch and mxnet (1.42x; an interval needs 2 blocks in which both ran;"
    assert comparison.verdicts()[0].sentence.startswith(sentence)
    text = comparison.table(style="markdown")
    assert text.startswith("No verdict: an interval needs at least 2 runs per cell")
    assert "**" not in text and "±" not in text.partition("small")[2] and "fewer than 2 runs" in text


def test_every_table_of_times_begins_with_verdicts_and_ranks_with_ties(tmp_path):
    comparison = study(tmp_path, CLEAR)
    for kind in ("time", "resources"):
        first, second = comparison.table(kind, "markdown").splitlines()[:3:2]
        assert first.startswith(r"ResNet-50: JAX is 1.42x \[1.39, 1.46\] faster than MXNet (not verified); no signif")
        assert first.endswith("ranks 1 PyTorch = JAX, 3 MXNet") and "Holm-corrected for 3 comparisons" in second
    assert "No framework is marked as fastest (no significant difference)" in str(comparison.table())


def test_ranks_of_frameworks_that_are_not_verified_say_so():
    def verdict(faster, slower, shown):
        return Verdict("vgg16", {}, faster, slower, 1.1, 0.9, 1.3, shown=shown, p=0.001 if shown else 0.5)

    found = [verdict("torch", "jax", False), verdict("torch", "mxnet", False), verdict("jax", "mxnet", True)]
    assert headlines._line(found, [], None).endswith("; ranks 1 PyTorch = JAX, 2 MXNet (not verified)")


def test_a_framework_that_was_compared_with_the_fastest_alone_shares_no_rank():
    def verdict(faster, slower, p=0.001, shown=True):
        return Verdict("resnet50", {}, faster, slower, 2.0, 1.9, 2.1, shown=shown, p=p)

    found = [verdict("jax", "torch"), verdict("jax", "mxnet"), verdict("torch", "mxnet", 0.5, shown=False)]
    found += [verdict("jax", "paddle"), verdict("torch", "paddle", None, shown=False)]
    names = ["jax", "torch", "mxnet", "paddle"]
    assert ranks(names, found) == {"jax": 1, "torch": 2, "mxnet": 2}
    assert ranks(["torch", "paddle"], found) == {}


def test_a_framework_without_an_interval_has_no_rank_and_is_named_as_the_one_that_lacks_runs(tmp_path):
    cells = {key: seconds[:1] if key[0] == "mxnet" else seconds for key, seconds in CLEAR.items()}
    slow = {("paddle", "resnet50"): [3 * seconds for seconds in CLEAR["torch", "resnet50"]]}
    comparison = study(tmp_path, {**cells, **slow})
    text = comparison.table(style="markdown")
    assert "; ranks 1 PyTorch = JAX, 3 PaddlePaddle" in text.replace("\n", " ")
    assert "No framework is marked as fastest (MXNet: fewer than 2 runs)" in text


def test_runs_are_compared_with_those_of_their_own_block(tmp_path):
    """The machine slows down threefold from block to block, and one cell is always 10 % slower."""
    drift = (1.0, 1.5, 2.0, 3.0)
    times = {("torch", "vgg16"): drift, ("mxnet", "vgg16"): [1.1 * s * e for s, e in zip(drift, (1, 1.01, 0.99, 1))]}
    (one,) = study(tmp_path / "a", times).verdicts()
    assert one.shown and one.high / one.low < 1.06
    times = {("torch", "vgg16"): (1.0, 1.01, 1.02), ("mxnet", "vgg16"): (2.0, None, 2.05)}
    assert study(tmp_path / "b", times).verdicts() == [], "nor has a cell with a run that crashed a figure in tables"


def test_the_mean_over_models_is_geometric_and_its_interval_is_over_runs(tmp_path):
    generator = np.random.default_rng(0)
    ratios = {"alexnet": 1.2, "resnet50": 1.5, "vgg16": 1.0}
    times = {}
    for model, ratio in ratios.items():
        times["torch", model] = list(generator.normal(1, 0.01, 5))
        times["mxnet", model] = list(generator.normal(ratio, 0.01, 5))
    *singles, mean = study(tmp_path, times).verdicts()
    assert [one.model for one in singles] == list(ratios) and mean.models == tuple(ratios)
    logs = [np.log(times["mxnet", model]) - np.log(times["torch", model]) for model in ratios]
    stored = decimals(9) / min(map(min, times.values()))  # nanoseconds
    assert mean.ratio == pytest.approx(np.exp(np.mean(logs)), rel=2 * stored) and mean.high / mean.low < 1.05
    assert mean.shown and not mean.corrected, "it is the only one of its kind"
    assert mean.sentence.startswith("Geometric mean of 3 models: torch is 1.2")


def test_a_difference_that_only_one_comparison_by_itself_would_show_says_so(tmp_path):
    times = {"torch": (1, 1, 1, 1), "jax": (1.02, 1.04, 1.03, 1.04)}
    times.update(paddle=(1.01, 0.98, 1.0, 1.02), mxnet=(1.0, 1.03, 0.97, 1.02))
    comparison = study(tmp_path / "study", {(name, "vgg16"): seconds for name, seconds in times.items()})
    one = next(one for one in comparison.verdicts() if {one.faster, one.slower} == {"torch", "jax"})
    alone = next(one for one in comparison.verdicts(correct=False) if {one.faster, one.slower} == {"torch", "jax"})
    assert one.low > 1 and one.p < 0.05 and not one.shown and one.corrected
    assert alone.shown and not alone.corrected
    assert one.sentence.endswith("; corrected for 6 comparisons)")


@pytest.mark.parametrize(
    "jax, said",
    [  # one that is shown is never written as an interval from one
        ((1.0041, 1.0042, 1.0043, 1.004), "torch is 1.004x [1.004, 1.004] faster than jax (not verified)"),
        (
            (1.0021, 1.0022, 1.0023, 1.002),
            "no significant difference between torch and jax (1.00x [1.00, 1.00]; taking turns may cause 0.3 %)",
        ),
    ],
)
def test_a_difference_that_taking_turns_may_cause_is_not_shown(jax, said, tmp_path):
    (one,) = study(tmp_path, {("torch", "vgg16"): (1, 1, 1, 1), ("jax", "vgg16"): jax}).verdicts()
    assert one.p < 0.05 and one.sentence == f"vgg16: {said}"


def test_what_taking_turns_may_cause_is_more_on_a_gpu_and_beside_other_comparisons():
    ratio = Interval(1.008, 1.0075, 1.0085, 1e-6, 8)
    on_cpu, on_gpu = (of_two("vgg16", ("a", "b"), ratio, Bar(), True, device) for device in ("cpu", "cuda:0"))
    assert on_cpu.shown and not on_gpu.shown and on_gpu.sentence.endswith("taking turns may cause 0.9 %)")
    assert not of_two("vgg16", ("a", "b"), Interval(1.008, 1.0029, 1.013, 0.01, 8), Bar(), True).shown
    for freedom in (2.5, 7, 40):  # of a t test of logarithms by hand
        log, error = 0.02, 0.004
        half, ends = stats.t.ppf(0.975, freedom) * error, (log - 0.003, log)
        margin, p = (2 * stats.t.sf(end / error, freedom) for end in ends)
        known = Interval(np.exp(log), np.exp(log - half), np.exp(log + half), p, 8)
        assert p_beyond(known, np.expm1(0.003)) == pytest.approx(margin, rel=digits(4))


def test_settings_compete_too_within_a_framework(tmp_path):
    cells = [Cell("torch", "vgg16", "small", "cpu", TrainConfig(execution=name)) for name in ("eager", "compiled")]
    comparison = recorded(tmp_path, cells, lambda cell, _: ok(1.0 if cell.config.execution == "compiled" else 2.0), 2)
    (one,) = comparison.verdicts("execution")
    assert (one.faster, one.slower, one.condition["framework"]) == ("compiled", "eager", "torch")
    assert one.sentence.startswith("vgg16 in torch: ")
    assert comparison.verdicts() == []
    with pytest.raises(UnknownNameError, match="subject of verdicts"):
        comparison.verdicts("seed")


def test_a_name_within_another_is_no_mention_of_it():
    pairs = {("torch", "torch-as-written"): "PyTorch (as written)", ("torch-as-written", "torch"): "PyTorch"}
    for pair, said in {**pairs, ("jax", "keras-jax"): "Keras (JAX)"}.items():
        more = {"models": ("alexnet",), "reason": f"{speed_verdicts.THROUGHOUT}{pair[1]}", "disturbed": pair[1]}
        found = headlines.with_display_names(Verdict("alexnet", {}, *pair, 1.1, 1.0, 1.2, **more))
        assert found.reason.endswith(f"of {said}")
    # and the mode stands behind the first mention of each
    modes = {"torch": Modes("eager", ()), "keras-torch": Modes("fit", ())}
    text = headlines.with_modes("Keras (PyTorch) is slower than PyTorch; PyTorch", modes)
    assert text == "Keras (PyTorch) (fit) is slower than PyTorch (eager); PyTorch"

"""Quality from outputs and targets: hand-made examples, and properties over random ones."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pandas
import pytest
from bounds import rounding

from framework_compare.batches import quality
from framework_compare.batches.quality import METRICS, evaluate, loss, spans
from framework_compare.errors import UsageError
from framework_compare.graph import Field, Task, image_classification
from framework_compare.results import workloads
from framework_compare.worker.epochs import LossSum

TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def classes(outputs: int, *metrics: str) -> Task:
    return Task((Field("x", (1,)),), Field("y", (), "int64"), outputs, "cross_entropy", metrics)


def numbers(loss_name: str, *metrics: str) -> Task:
    return Task((Field("x", (1,)),), Field("y", (1,)), 1, loss_name, metrics)


def tokens(steps: int, outputs: int, *metrics: str) -> Task:
    x, y = Field("x", (steps,), "int32", 9), Field("y", (steps,), "int64")
    return Task((x,), y, outputs, "token_cross_entropy", metrics)


def one_hot(labels: list, outputs: int) -> np.ndarray:
    return np.eye(outputs)[np.array(labels)]


def test_accuracy_is_the_share_of_largest_outputs_or_of_signs_and_of_groups():
    outputs = np.array([[2.0, 1, 0], [0, 1, 2], [0, 3, 1], [5, 0, 0]])
    assert evaluate(classes(3, "accuracy"), outputs, np.array([0, 2, 2, 1]))["accuracy"] == 0.5
    outputs, target = np.array([[0.1], [-3], [0], [2]]), np.array([[1.0], [1], [0], [0]], np.float32)
    assert evaluate(numbers("binary_cross_entropy", "accuracy"), outputs, target)["accuracy"] == 0.5
    outputs = one_hot([0, 1, 2, 0], 3)
    facts = {"groups": [0, 0, 1]}
    values = evaluate(classes(3, "accuracy", "healthy_accuracy"), outputs, np.array([1, 1, 2, 2]), facts=facts)
    assert (values["accuracy"], values["healthy_accuracy"]) == (0.5, 0.75)


def test_token_metrics_leave_out_tokens_of_minus_one_and_f1_is_zero_without_any():
    outputs = one_hot([[1, 1, 0, 1], [0, 2, 2, 2]], 3)
    target = np.array([[1, 0, 1, -1], [0, 2, -1, -1]])
    values = evaluate(tokens(4, 3, "token_accuracy", "token_f1"), outputs, target)
    assert values["token_accuracy"] == 3 / 5
    # 2 right (1 and 2) of 3 predicted and 3 wanted
    assert values["token_f1"] == pytest.approx(2 / 3)
    task = tokens(2, 5, "token_f1", "span_f1")
    for predicted, right in (([[0, 0]], [[1, 2]]), ([[1, 2]], [[0, 0]]), ([[0, 0]], [[0, 0]])):
        values = evaluate(task, one_hot(predicted, 5), np.array(right), facts={"tags": TAGS})
        assert values["token_f1"] == values["span_f1"] == 0


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, 2, 0], {(0, 1, 2, "LOC")}),
        ([1, 1, 2, 2], {(0, 0, 0, "LOC"), (0, 1, 3, "LOC")}),
        ([1, 4, 4, 0], {(0, 0, 0, "LOC"), (0, 1, 2, "PER")}),  # I- of another kind begins one
        ([2, 2, 0, 4], {(0, 0, 1, "LOC"), (0, 3, 3, "PER")}),  # I- after O begins one
        ([3, 4, 1, 2], {(0, 0, 1, "PER"), (0, 2, 3, "LOC")}),
        ([1, 2, -1, -1], {(0, 0, 1, "LOC")}),
        ([0, 0, 0, 0], set()),
    ],
)
def test_entities_are_read_as_conlleval_reads_them(labels, expected):
    assert spans(np.array([labels]), TAGS) == expected


def by_hand(row: list) -> set:
    """Entities of one sentence by a loop over its tags."""
    found, start, kind = set(), None, None
    for place, tag in enumerate([TAGS[label] if label >= 0 else "O" for label in row] + ["O"]):
        letter, _, name = tag.partition("-")
        if start is not None and (letter != "I" or name != kind):
            found.add((start, place - 1, kind))
            start = None
        if letter != "O" and start is None:
            start, kind = place, name
    return found


def test_entities_agree_with_a_loop_over_random_tags_and_want_kind_and_both_ends():
    labels = np.random.default_rng(0).integers(-1, 5, (500, 9))
    expected = {(row, *one) for row, tags in enumerate(labels.tolist()) for one in by_hand(tags)}
    assert len(expected) > 500 and spans(labels, TAGS) == expected
    right = [[1, 2, 0, 3, 0], [3, 4, 4, 0, 1]]
    predicted = [[1, 2, 0, 1, 0], [3, 4, 0, 0, 1]]  # right; wrong kind; too short; right
    values = evaluate(tokens(5, 5, "span_f1"), one_hot(predicted, 5), np.array(right), facts={"tags": TAGS})
    assert values["span_f1"] == pytest.approx(2 * 2 / (4 + 4))
    outputs = one_hot([[1, 2, 1]], 5)
    values = evaluate(tokens(3, 5, "span_f1"), outputs, np.array([[1, 2, -1]]), facts={"tags": TAGS})
    assert values["span_f1"] == 1


def jaccard(picks: list, selected: list, words: list) -> float:
    steps = len(words[0])
    target = np.where(np.array(words) >= 0, 0, -1)
    extras = {"words": np.array(words), "selected_words": np.array(selected)}
    return evaluate(tokens(steps, 2, "word_jaccard"), one_hot(picks, 2), target, extras=extras)["word_jaccard"]


def test_word_jaccard_counts_words_of_both_once_and_all_where_none_is_predicted():
    # {7, 8} of the text against {8, 9}: one of three; a word said twice counts once; words behind the last never
    assert jaccard([[1, 1, 1, 1]], [[8, 9, -1]], [[7, 8, 8, -1]]) == pytest.approx(1 / 3)
    assert jaccard([[0, 1, 0, 1]], [[8, -1]], [[7, 8, 9, -1]]) == 1
    assert jaccard([[0, 0, 0, 0]], [[5]], [[5, 6, 7, 8]]) == 0.25


def test_rmse_is_in_the_unit_of_the_data_and_auc_the_share_of_pairs_in_order():
    outputs, target = np.array([[0.5], [0.1]]), np.array([[0.2], [0.5]])
    facts = {"scaling": {"minimum": 50.0, "maximum": 150.0}}
    values = evaluate(numbers("mse", "rmse"), outputs, target, facts=facts)
    assert values["rmse"] == pytest.approx(math.sqrt((30**2 + 40**2) / 2))
    assert values["loss"] == pytest.approx((0.3**2 + 0.4**2) / 2)
    assert evaluate(numbers("mse", "rmse"), outputs, target)["rmse"] == pytest.approx(math.sqrt(0.125))

    def auc(scores: list, target: list) -> float:
        task = numbers("binary_cross_entropy", "auc")
        return evaluate(task, np.array(scores)[:, None], np.array(target, np.float32)[:, None])["auc"]

    assert auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75  # the example of scikit-learn's page
    assert auc([1.0, 1, 1], [0, 1, 0]) == 0.5
    assert auc([3.0, 2, 1], [1, 1, 0]) == 1
    assert math.isnan(auc([1.0, 2], [1, 1]))
    generator = np.random.default_rng(1)
    for _ in range(50):
        count = generator.integers(2, 40)
        scores, target = generator.integers(-4, 5, (count, 1)).astype(float), np.arange(count) % 2
        pairs = scores[target == 1] - scores[target == 0].T
        expected = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
        task = numbers("binary_cross_entropy", "auc")
        for outputs, area in ((scores, expected), (3 * scores + 100, expected), (-scores, 1 - expected)):
            found = evaluate(task, outputs, target[:, None].astype(np.float32))["auc"]
            assert found == pytest.approx(area, rel=0, abs=rounding(4))


def test_losses_by_hand():
    assert loss("mse", np.array([[2.0], [0]]), np.zeros((2, 1))) == 2  # not half the square
    assert loss("cross_entropy", np.zeros((3, 4)), np.array([0, 1, 2])) == pytest.approx(math.log(4))
    both = (math.log(2) + math.log(1 + math.e**2)) / 2
    assert loss("binary_cross_entropy", np.array([[0.0], [2]]), np.array([[1], [0]])) == pytest.approx(both)
    # the divisor is the number of tokens that count: 2, not 4
    logits = np.array([[[0.0, 0], [9, 0]], [[0, 0], [0, 9]]])
    assert loss("token_cross_entropy", logits, np.array([[0, -1], [1, -1]])) == pytest.approx(math.log(2))
    assert loss("cross_entropy", np.array([[1000.0, 0], [0, -1000]]), np.array([1, 0])) == 500
    assert loss("binary_cross_entropy", np.array([[-1000.0], [1000]]), np.array([[1], [1]])) == 500
    outputs = np.array([[0.1], [0.2]], np.float16)
    assert loss("mse", outputs, np.zeros((2, 1), np.float32)) == np.mean(outputs.astype(np.float64) ** 2)


def test_an_output_that_is_not_finite_has_no_quality_and_a_wrong_shape_is_refused():
    values = evaluate(classes(2, "accuracy"), np.array([[np.nan, 1], [0, 1]]), np.array([1, 1]))
    assert set(values) == {"loss", "accuracy"} and all(math.isnan(value) for value in values.values())
    with pytest.raises(UsageError, match=r"outputs are \(3,\) and the target \(3, 1\); the task expects \(3, 1\)"):
        evaluate(numbers("mse", "rmse"), np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(UsageError, match=r"the target \(3,\)"):
        evaluate(numbers("mse", "rmse"), np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(UsageError, match="at least one sample"):
        evaluate(classes(2, "accuracy"), np.zeros((0, 2)), np.zeros(0, np.int64))


def test_unknown_losses_metrics_and_dtypes_list_the_known_and_labels_alone_are_smoothed():
    with pytest.raises(UsageError, match="unknown metric 'bleu'; allowed: accuracy, auc"):
        evaluate(classes(2, "bleu"), np.zeros((1, 2)), np.zeros(1, np.int64))
    assert [name for name, metric in METRICS.items() if not metric.higher_is_better] == ["perplexity", "rmse"]
    with pytest.raises(UsageError, match="loss is 'hinge'; allowed: cross_entropy, token_cross_entropy, mse"):
        Task((Field("x", (8,)),), Field("y", (1,)), 1, "hinge")
    with pytest.raises(UsageError, match="field x: dtype is 'float16'; allowed: float32"):
        Field("x", (8,), "float16")
    with pytest.raises(UsageError, match="label_smoothing is 0.1; allowed for loss 'mse': 0"):
        Task((Field("x", (8,)),), Field("y", (1,)), 1, "mse", smoothing=0.1)


def test_metrics_of_tokens_are_the_same_of_a_whole_split_and_of_its_parts(monkeypatch):
    rng = np.random.default_rng(0)
    task = Task((Field("tokens", (4,), "int32", 9),), Field("next", (4,), "int64"), 9, "token_cross_entropy")
    task = dataclasses.replace(task, metrics=("perplexity", "token_accuracy"))
    outputs, target = rng.standard_normal((10, 4, 9)), rng.integers(-1, 9, (10, 4))
    whole = evaluate(task, outputs, target)
    assert whole["perplexity"] == pytest.approx(np.exp(whole["loss"]), rel=rounding(4))
    monkeypatch.setattr(quality, "MOST_NUMBERS", 100)
    assert evaluate(task, outputs, target) == pytest.approx(whole, rel=rounding(outputs.size))
    outputs[7, 0, 0] = np.inf
    assert all(np.isnan(value) for value in evaluate(task, outputs, target).values())


class Device:
    """Says how many losses were read at a time, and how many steps had been taken by then."""

    def __init__(self):
        self.steps, self.reads = 0, []

    def step(self):
        self.steps += 1
        return self.steps - 1

    def read_losses(self, losses):
        self.reads.append((self.steps, list(losses)))
        return [float(loss) for loss in losses]


def epoch(lag, steps):
    device = Device()
    losses = LossSum(device, lag)
    for number in range(steps):
        losses.add(device.step(), 1 if number == steps - 1 else 4)
    return device, losses


def test_losses_are_read_late_and_the_rest_together_at_the_end_and_their_mean_is_of_all_images():
    device, losses = epoch(lag=3, steps=6)
    assert device.reads == [(4, [0]), (5, [1]), (6, [2])]
    losses.mean()
    assert device.reads[3:] == [(6, [3, 4, 5])]
    for lag, steps in itertools.product((1, 8), (1, 7, 8, 9, 40)):
        _, losses = epoch(lag, steps)
        sizes = [4] * (steps - 1) + [1]
        expected = sum(number * size for number, size in enumerate(sizes)) / sum(sizes)
        assert losses.mean() == pytest.approx(expected) and losses.samples == sum(sizes), (lag, steps)


def test_a_task_comes_back_from_json_as_it_was():
    tokens, tags = Field("tokens", (33,), "int32", 8000), Field("tags", (33,), "int64")
    task = Task((tokens,), tags, 2, "token_cross_entropy", ("f1",), "tweet")
    for one in (task, image_classification(3, 224), dataclasses.replace(task, smoothing=0.1)):
        assert Task.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert "smoothing" not in task.to_dict(), "earlier versions read and wrote no such field"


def last_quality(patience):
    """Epochs and perplexity of a cell with three runs, of which one ended before its last epoch."""
    row = {"dataset": "text", "mode": "train", "new_tokens": 0, "images_per_s": 1.0, "patience": patience}
    frame = pandas.DataFrame([row])
    rows = [(1, 1, 9.2), (1, 2, 6.4), (2, 1, 9.2), (2, 2, 6.6), (3, 1, 9.2)]
    epochs = pandas.DataFrame(rows, columns=["run_id", "epoch", "validation_perplexity"])
    found = workloads.with_quality(frame, epochs.assign(cell=0, status="ok", counts=True), {})
    return found["epochs_run"][0], found["validation_perplexity"][0]


def test_quality_is_not_averaged_over_different_last_epochs():
    assert last_quality(0) == (2, pytest.approx(6.5))
    assert last_quality(1) == (pytest.approx(5 / 3), pytest.approx(7.4)), "each run stopped where it was to"

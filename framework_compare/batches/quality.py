"""Quality of a network: loss and metrics of a validation split from its outputs, in float64 and by numpy alone.

No framework's own metric code decides. Imports graph only, so that either side of the process boundary may hold it.
"""

import dataclasses
from typing import Callable, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from framework_compare.errors import UsageError
from framework_compare.graph import Task
from framework_compare.protocol import Document


class Answers(NamedTuple):
    """A network's outputs, float64 (N, ..., outputs), beside what was right and what the data set knows."""

    outputs: np.ndarray
    target: np.ndarray
    extras: Mapping[str, np.ndarray]
    facts: Document


@dataclasses.dataclass(frozen=True)
class Metric:
    """A quality: how a table calls it, its unit ("data" is the unit of the data), and whether more of it is better."""

    label: str
    unit: str
    higher_is_better: bool
    compute: Callable[[Answers], float]


def evaluate(
    task: Task,
    outputs: np.ndarray,
    target: np.ndarray,
    *,
    extras: Optional[Mapping[str, np.ndarray]] = None,
    facts: Optional[Document] = None,
) -> Dict[str, float]:
    """`loss` and each metric of the task, by name; shares are 0 to 1.

    outputs are those of a whole split, in the form of the network's output: (N, outputs), or (N, T, outputs) for
    tokens; target, extras and facts as the data set has them. All are NaN where an output is not finite. UsageError
    for another shape or an unknown metric.
    """
    _check(task, outputs, target)
    names = ("loss", *task.metrics)
    rows = max(1, MOST_NUMBERS // (outputs.size // len(outputs)))
    if len(target) > rows and task.loss == "token_cross_entropy" and set(task.metrics).issubset(OF_TOKENS):
        starts = range(0, len(target), rows)
        return evaluate_parts(task, ((outputs[at : at + rows], target[at : at + rows]) for at in starts))
    if not np.isfinite(outputs).all():
        return dict.fromkeys(names, float("nan"))
    answers = Answers(outputs.astype(np.float64), target, extras or {}, facts or {})
    values = {name: METRICS[name].compute(answers) for name in task.metrics}
    return {"loss": loss(task.loss, answers.outputs, target), **values}


def evaluate_parts(task: Task, parts: Iterable[Tuple[np.ndarray, np.ndarray]]) -> Dict[str, float]:
    """`evaluate` of outputs and targets that come part by part; for a task whose metrics are all OF_TOKENS."""
    sums: Dict[str, float] = {}
    tokens = 0
    for outputs, target in parts:
        counted = int((target >= 0).sum())
        if counted:
            found = evaluate(task, outputs, target)
            sums = {name: sums.get(name, 0.0) + counted * OF_TOKENS[name][0](value) for name, value in found.items()}
            tokens += counted
    return {name: float(OF_TOKENS[name][1](total / tokens)) for name, total in sums.items()}


def loss(name: str, outputs: np.ndarray, target: np.ndarray) -> float:
    """Mean loss by its name in graph.LOSSES: over samples, or over tokens whose target is not -1."""
    outputs = outputs.astype(np.float64)
    if name == "mean_output":
        return float(np.mean(outputs))
    if name == "mse":
        return float(np.mean((outputs - target) ** 2))
    if name == "binary_cross_entropy":
        return float(np.mean(np.maximum(outputs, 0) - outputs * target + np.log1p(np.exp(-np.abs(outputs)))))
    counted = target >= 0
    logits, labels = outputs[counted], target[counted]
    highest = logits.max(axis=-1)
    normaliser = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=-1))
    return float(np.mean(normaliser - logits[np.arange(len(labels)), labels]))


def accuracy(answers: Answers) -> float:
    """Share of samples answered rightly: the largest output, or for one output against 0 or 1 its sign (0 is a no)."""
    if answers.target.ndim == 2:
        return float(np.mean((answers.outputs > 0) == (answers.target > 0.5)))
    return float(np.mean(answers.outputs.argmax(axis=-1) == answers.target))


def grouped_accuracy(answers: Answers) -> float:
    """Accuracy after classes are joined as facts["groups"] says, a group's number for each class."""
    groups = np.asarray(answers.facts["groups"])
    return float(np.mean(groups[answers.outputs.argmax(axis=-1)] == groups[answers.target]))


def token_accuracy(answers: Answers) -> float:
    """Share of tokens answered rightly, of those whose target is not -1."""
    counted = answers.target >= 0
    return float(np.mean(answers.outputs.argmax(axis=-1)[counted] == answers.target[counted]))


def perplexity(answers: Answers) -> float:
    """exp of the mean loss of the tokens that count; inf where that is no number that a float can hold."""
    with np.errstate(over="ignore"):
        return float(np.exp(loss("token_cross_entropy", answers.outputs, answers.target)))


def token_f1(answers: Answers) -> float:
    """F1 over tokens of all labels but 0 together (micro-averaged); 0 where neither side has one."""
    counted = answers.target >= 0
    predicted, right = answers.outputs.argmax(axis=-1)[counted], answers.target[counted]
    return _f1(int(((predicted == right) & (right > 0)).sum()), int((predicted > 0).sum()), int((right > 0).sum()))


def span_f1(answers: Answers) -> float:
    """F1 over entities: right only with the right kind, first and last token. facts["tags"] are the BIO tags.

    Entities are read as conlleval reads them (Tjong Kim Sang 2000): I- after O or after another kind begins one.
    """
    tags = answers.facts["tags"]
    counted = answers.target >= 0
    predicted = spans(np.where(counted, answers.outputs.argmax(axis=-1), -1), tags)
    right = spans(answers.target, tags)
    return _f1(len(predicted & right), len(predicted), len(right))


def spans(labels: np.ndarray, tags: Sequence[str]) -> Set[Tuple[int, int, int, str]]:
    """Entities (row, first, last, kind) of labels (N, T), numbers of BIO tags; -1 is outside like O."""
    kinds = sorted({tag[2:] for tag in tags if tag != "O"})
    kind_of = np.array([kinds.index(tag[2:]) if tag != "O" else -1 for tag in tags] + [-1])  # the last is for -1
    begins_of = np.array([tag.startswith("B-") for tag in tags] + [False])
    kind = np.pad(kind_of[labels], ((0, 0), (1, 1)), constant_values=-1)
    middle = kind[:, 1:-1]
    begins = (middle >= 0) & (begins_of[labels] | (kind[:, :-2] != middle))
    follows = np.pad(begins[:, 1:], ((0, 0), (0, 1)))
    ends = (middle >= 0) & (follows | (kind[:, 2:] != middle))
    rows, firsts = np.nonzero(begins)  # in reading order, as ends are: the n-th end belongs to the n-th begin
    lasts = np.nonzero(ends)[1]
    names = [kinds[number] for number in middle[rows, firsts]]
    return set(zip(rows.tolist(), firsts.tolist(), lasts.tolist(), names))


def word_jaccard(answers: Answers) -> float:
    """Mean over texts of Kaggle's Jaccard: words in the predicted and in the selected text over words in either.

    extras are `words` (N, T) and `selected_words` (N, S), the same number for the same word, -1 behind the last. A
    text of which no word is predicted is answered whole, as the notebook does.
    """
    chosen = (answers.outputs.argmax(axis=-1) == 1) & (answers.target >= 0)
    chosen |= ~chosen.any(axis=1, keepdims=True)
    scores = []
    for words, picks, selected in zip(answers.extras["words"], chosen, answers.extras["selected_words"]):
        predicted, right = set(words[picks & (words >= 0)].tolist()), set(selected[selected >= 0].tolist())
        scores.append(len(predicted & right) / len(predicted | right))
    return float(np.mean(scores))


def rmse(answers: Answers) -> float:
    """Root of the mean squared error, both sides put back into the unit of the data by facts["scaling"], if there."""
    scaling = answers.facts.get("scaling", {"minimum": 0.0, "maximum": 1.0})
    width = scaling["maximum"] - scaling["minimum"]
    return float(width * np.sqrt(np.mean((answers.outputs - answers.target) ** 2)))


def auc(answers: Answers) -> float:
    """Area under the ROC curve: how often a 1 gets a higher output than a 0, half for equals; NaN without both."""
    scores, positive = answers.outputs.ravel(), answers.target.ravel() > 0.5
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place.ravel()]  # equals share the mean of their ranks
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _f1(right: int, predicted: int, wanted: int) -> float:
    return 2 * right / (predicted + wanted) if predicted + wanted else 0.0


def _check(task: Task, outputs: np.ndarray, target: np.ndarray) -> None:
    expected = (len(target), *task.output_shape)
    # (N,) against (N, 1) would be stretched to (N, N) without a word.
    if outputs.shape != expected or target.shape[1:] != task.target.shape:
        raise UsageError(
            f"outputs are {outputs.shape} and the target {target.shape}; "
            f"the task expects {expected} and {(len(target), *task.target.shape)}"
        )
    if not len(target):
        raise UsageError("quality needs at least one sample, and there is none")
    unknown = [name for name in task.metrics if name not in METRICS]
    if unknown:
        raise UsageError(f"unknown metric {unknown[0]!r}; allowed: {', '.join(METRICS)}")


METRICS: Dict[str, Metric] = {
    "accuracy": Metric("accuracy", "%", True, accuracy),
    "auc": Metric("AUC", "", True, auc),
    "healthy_accuracy": Metric("healthy or not", "%", True, grouped_accuracy),
    "perplexity": Metric("perplexity", "", False, perplexity),
    "rmse": Metric("RMSE", "data", False, rmse),
    "span_f1": Metric("entity F1", "%", True, span_f1),
    "token_accuracy": Metric("token accuracy", "%", True, token_accuracy),
    "token_f1": Metric("token F1", "%", True, token_f1),
    "word_jaccard": Metric("word Jaccard", "", True, word_jaccard),
}
MOST_NUMBERS = 1 << 24  # in float64 at once
# Means over tokens, by name: what adds up over parts, and the value that follows from its mean.
OF_TOKENS: Dict[str, Tuple[Callable[[float], float], Callable[[float], float]]] = {
    "loss": (float, float),
    "token_accuracy": (float, float),
    "perplexity": (np.log, np.exp),
}

"""Every workload trained on real data in five frameworks: its quality beside what needs no network.

python benchmarks/real_workloads.py DATA [WORKLOAD ...]    # benchmarks/results/real_workloads.json
python benchmarks/real_workloads.py --table                # the file as Markdown

DATA is the folder that CONTRIBUTING.md lists as `workloads`. One run per framework on one thread, one after the other;
what the file has is not trained again, unless --again is given. Times are not kept: this is about quality alone. With
--device cuda, --python FRAMEWORK=PATH names an interpreter that has the framework; --out takes another file.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple

from framework_compare import Comparison, compare

OUT = Path(__file__).parent / "results" / "real_workloads.json"
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax")


class Training(NamedTuple):
    """The real data of a workload, how long it is trained on them, and the metric that the table shows."""

    data: str
    metric: str
    settings: Mapping[str, Any] = {}


_SPAN = ("tweet_sentiment_extraction/train.csv", "word_jaccard")
_DIGITS = ("mnist_10k", "accuracy")
# Epochs are the document's where it says how many and two cores train them in minutes.
TRAININGS: Dict[str, Training] = {
    "diabetes_ann": Training("diabetes/diabetes.csv", "accuracy"),
    "lstm_ibm": Training("stocks/IBM.csv", "rmse", {"epochs": 50}),
    "gru_ibm": Training("stocks/IBM.csv", "rmse", {"epochs": 50}),
    "lstm_google": Training("stocks/GOOG.csv", "rmse", {"epochs": 100}),
    "tweet_span": Training(*_SPAN, {"epochs": 2, "limit": 6000}),
    "tweet_span_conv": Training(*_SPAN, {"epochs": 2, "limit": 6000}),
    "tweet_ner": Training("ner_broad_twitter", "span_f1"),
    "text_rnn": Training(_SPAN[0], "accuracy", {"epochs": 2, "limit": 8000}),
    "mnist_cnn": Training(*_DIGITS, {"epochs": 2}),
    "cifar_cnn": Training("caltech10_32", "accuracy", {"epochs": 8}),
    "cifar_resnet50": Training("caltech10_32", "accuracy"),
    "tiny_cnn": Training("caltech101_64", "accuracy"),
    "guava_cnn": Training("guava_disease", "accuracy", {"epochs": 3}),
    "vgg16_frozen": Training("guava_disease", "accuracy", {"epochs": 2, "limit": 160}),
    "quanv_fixed": Training(*_DIGITS),
    "quanv_trained": Training(*_DIGITS),
    "quanv_classical": Training(*_DIGITS),
}


def train(framework: str, workload: str, data: Path, **changed: Any) -> Dict[str, Any]:
    """Status, losses of each epoch, metrics after the last and what needs no network, of one run."""
    training = TRAININGS[workload]
    asked = {"dataset": data / training.data, "repeats": 1, "threads": 1, "sampling_hz": 0.0, "verify": "off"}
    study = compare(framework, workload, **{**asked, "retries_when_disturbed": 0}, **{**training.settings, **changed})
    return told(study)


def told(study: Comparison) -> Dict[str, Any]:
    """What the file keeps of a study of one cell."""
    cell = study.quality.iloc[0]
    if cell.status != "ok":
        return {"status": cell.status, "reason": cell.reason}
    after, without = "validation_", "baseline_"
    return {
        "status": cell.status,
        "version": cell.framework_version,
        "samples": int(study.epochs.images.iloc[0]),
        "epochs": int(cell.epochs_run),
        "losses": [round(loss, 6) for loss in study.epochs.loss],
        "validation": {name[len(after) :]: float(cell[name]) for name in cell.index if name.startswith(after)},
        "baseline": cell.baseline,
        "without_network": {
            name[len(without) :]: float(cell[name])
            for name in cell.index
            if name.startswith(without) and math.isfinite(cell[name])
        },
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """One row per workload: what needs no network, then each framework."""
    lines = [f"| workload | samples, epochs | metric | without a network | {' | '.join(FRAMEWORKS)} |"]
    lines.append(f"|{'---|' * (4 + len(FRAMEWORKS))}")
    for workload, training in TRAININGS.items():
        runs = found.get(workload, {})
        first = next((run for run in runs.values() if run["status"] == "ok"), None)
        if first is None:
            continue
        base = f"{first['without_network'][training.metric]:.3g} ({first['baseline']})"
        cells = [_shown(runs.get(framework), training.metric) for framework in FRAMEWORKS]
        what = [f"`{workload}`", f"{first['samples']:,}, {first['epochs']}", training.metric.replace("_", " "), base]
        lines.append(f"| {' | '.join([*what, *cells])} |")
    return lines


def _shown(run: Any, metric: str) -> str:
    if run is None:
        return "not run"
    return f"{run['validation'][metric]:.3g}" if run["status"] == "ok" else run["status"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("workloads", nargs="*", choices=[*TRAININGS, []])
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--limit", type=int, help="samples to train on, in place of the workload's")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--python", action="append", default=[], help="FRAMEWORK=PATH")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    found: Dict[str, Dict[str, Any]] = json.loads(options.out.read_text()) if options.out.exists() else {}
    if options.table or options.data is None:
        print("\n".join(table(found)))
        return
    for workload in options.workloads or TRAININGS:
        for framework in options.frameworks.split(","):
            if options.again or framework not in found.get(workload, {}):
                changed = {"limit": options.limit} if options.limit else {}
                if options.device != "cpu":
                    changed.update(device=options.device, python=dict(pair.split("=", 1) for pair in options.python))
                run = train(framework, workload, options.data, **changed)
                found.setdefault(workload, {})[framework] = run
                options.out.write_text(json.dumps(found, indent=1) + "\n")
                print(workload, framework, run["status"], run.get("validation", run.get("reason")), flush=True)


if __name__ == "__main__":
    main()

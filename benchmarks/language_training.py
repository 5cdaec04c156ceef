"""Validation losses of language models trained by several studies, as Markdown: by epoch, framework and seed.

python benchmarks/language_training.py /tmp/train/*-gpt_nano /tmp/train/*-llama_nano

A study has one framework, one model and several seeds. Below each table are the largest difference between seeds of one
framework, and between frameworks with the same seed, after the last epoch; epochs that not all runs have are left out.
"""

from __future__ import annotations

import sys

import pandas as pd

from framework_compare.comparison import Comparison

LOSS = "validation_loss"


def losses(folders: list[str]) -> pd.DataFrame:
    """A row for each run that has ended, a column for each epoch."""
    found = []
    for folder in folders:
        study = Comparison.load(folder)
        if LOSS not in study.epochs:  # no epoch has ended
            continue
        epochs = study.epochs[study.epochs["status"] == "ok"]
        seeds = epochs["cell"].map(study.frame["seed"])  # whose rows are the cells in their order
        found.append(epochs.assign(seed=seeds)[["model", "framework", "seed", "epoch", LOSS, "steps"]])
    return pd.concat(found)


def between(last: pd.Series[float], level: str) -> float:
    """The largest difference among runs that differ in this level alone; NaN where none do."""
    others = [name for name in last.index.names if name != level]
    groups = last.groupby(others)
    spreads = (groups.max() - groups.min())[groups.count() > 1]
    return float(spreads.max())


def main() -> None:
    epochs = losses(sys.argv[1:])
    for model, of_model in epochs.groupby("model"):
        table = of_model.pivot_table(index=["framework", "seed"], columns="epoch", values=LOSS).dropna(axis=1)
        steps = int(of_model["steps"].iloc[0])
        print(f"| {model}, seed | {' | '.join(str(steps * epoch) for epoch in table.columns)} |")
        print(f"|{'---|' * (1 + len(table.columns))}")
        for (framework, seed), row in table.iterrows():
            print(f"| {framework}, {seed} | {' | '.join(f'{value:.4f}' for value in row)} |")
        last = table.iloc[:, -1]
        for level, words in (("seed", "seeds of one framework"), ("framework", "frameworks with one seed")):
            print(f"\nLargest difference between {words}: {between(last, level):.4f}")
        print()


if __name__ == "__main__":
    main()

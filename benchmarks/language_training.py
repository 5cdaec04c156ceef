"""Validation losses of language models trained by several studies, as Markdown: by epoch, framework and seed.

    python benchmarks/language_training.py STUDY ... --svg FILE

A study has one framework, one model and several seeds. Below each table are the largest difference between seeds of one
framework, and between frameworks with the same seed, after the last epoch; epochs that not all runs have are left out.
--svg draws the losses: frameworks whose losses coincide are rings around each other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import altair as alt
import pandas as pd

from framework_compare.comparison import Comparison
from framework_compare.report.figures import look
from framework_compare.report.names import title

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


def draw(epochs: pd.DataFrame) -> alt.FacetChart:
    """Loss by updates, a column for each model."""
    rows = epochs.assign(updates=epochs["epoch"] * epochs["steps"], framework=epochs["framework"].map(title))
    names = list(dict.fromkeys(rows["framework"]))
    sizes = [60 + 90 * number for number in range(len(names))]
    base = alt.Chart(rows[["model", "framework", "seed", "updates", LOSS]]).encode(
        x=alt.X("updates:Q", title="updates", axis=alt.Axis(values=sorted(set(rows["updates"])))),
        y=alt.Y(f"{LOSS}:Q", title="validation loss", scale=alt.Scale(zero=False)),
    )
    ring = base.mark_point(strokeWidth=1.2, opacity=1).encode(
        color=alt.Color("framework:N", title=None, scale=alt.Scale(domain=names, range=look.COLOURS[: len(names)])),
        size=alt.Size("framework:N", title=None, scale=alt.Scale(type="ordinal", domain=names, range=sizes)),
    )
    line = base.transform_filter(alt.datum.framework == names[0]).mark_line(color="#8A8A8A", strokeWidth=1)
    line = line.encode(strokeDash=alt.StrokeDash("seed:N", title="seed"))
    return (line + ring).properties(width=260, height=200).facet(column=alt.Column("model:N", title=None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+")
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    epochs = losses(options.studies)
    if options.svg:
        draw(epochs).save(options.svg)
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

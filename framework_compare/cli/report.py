"""`framework-compare report`, `figure` and `cost`: a study as one HTML file, a figure of it for a paper, what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Iterable

import typer

from framework_compare.cli import console
from framework_compare.errors import UsageError
from framework_compare.plan.values import split


def _studies(incomplete: str) -> list[str]:
    from framework_compare.study import names

    return starting([names.LATEST, *(folder.name for folder in names.in_cache())], incomplete)


# The views of figures by their numbers, for the help; a test holds them equal to the catalogue, which costs a second.
VIEWS = {
    "F2": ("images per second",),
    "F4": ("from the first epoch",),
    "F8": ("by seconds of training",),
}


def _views() -> str:
    return ", ".join(f'"{view}" ({number})' for number, views in VIEWS.items() for view in views)


def _view_names(incomplete: str) -> list[str]:
    return starting([view for views in VIEWS.values() for view in views], incomplete)


def _figures(incomplete: str) -> list[str]:
    from framework_compare.report.figures.catalogue import FIGURES

    return starting([*FIGURES, *(figure.number for figure in FIGURES.values())], incomplete)


def starting(names: Iterable[str], incomplete: str) -> list[str]:
    """Return what the shell offers to complete a value with."""
    return [name for name in names if name.startswith(incomplete)]


STUDY = typer.Argument(
    help="A study: a folder, the name of one in the cache folder, or latest.", autocompletion=_studies
)
PER_HOUR = typer.Option(help="Price of an hour of the machine: 3.5, or by kind of device cpu=0.2,cuda=3.5.")
PER_KWH = typer.Option(help="Price of a kilowatt-hour.")
CO2 = typer.Option("--co2-g-per-kwh", help="Grams of CO2 per kilowatt-hour.")
_ONLY = "Only these, comma-separated."


def report(
    study: Annotated[str, STUDY] = "latest",
    out: Annotated[
        Path, typer.Option(help="The HTML file. Its folder is created if needed; an existing file is replaced.")
    ] = Path("report.html"),
    per_hour: Annotated[str | None, PER_HOUR] = None,
    per_kwh: Annotated[float | None, PER_KWH] = None,
    co2_g_per_kwh: Annotated[float | None, CO2] = None,
) -> None:
    """Write a study as one HTML file: answers, figures, tables, failures, method.

    It opens in any browser, offline, and works without JavaScript. With prices it has a table of what an epoch costs, as
    `cost` prints it.
    """
    from framework_compare.results.bills import read_per_hour

    given = {"per_hour": read_per_hour(per_hour), "per_kwh": per_kwh, "co2_g_per_kwh": co2_g_per_kwh}
    with console.reading(study) as result:
        print(result.report(out, **{name: price for name, price in given.items() if price is not None}))


def figure(
    name: Annotated[
        str,
        typer.Argument(help="The figure: overview, epoch-time, ... or its number (F2).", autocompletion=_figures),
    ],
    study: Annotated[str, STUDY] = "latest",
    out: Annotated[Path, typer.Option(help="The file; its suffix is .svg, .pdf or .png.")] = Path("figure.pdf"),
    width: Annotated[str, typer.Option(help="Width with its unit: mm, cm, in, pt or px.")] = "84mm",
    frameworks: Annotated[str | None, typer.Option(help=_ONLY)] = None,
    models: Annotated[str | None, typer.Option(help=_ONLY)] = None,
    view: Annotated[
        str,
        typer.Option(help=f"Another view: {_views()}.", autocompletion=_view_names, show_default=False),
    ] = "",
) -> None:
    """Write one figure of a study for a paper, with its caption in a text file next to it."""
    from framework_compare.report.figures.catalogue import find

    find(name)  # before a study is sought: whoever gives that first learns what figures are called
    only = {"frameworks": None if frameworks is None else split(frameworks), "models": models and split(models)}
    with console.reading(study) as result:
        print(result.plot(name, view=view, **only).save(out, width))


def cost(
    study: Annotated[str, STUDY] = "latest",
    per_hour: Annotated[str | None, PER_HOUR] = None,
    per_kwh: Annotated[float | None, PER_KWH] = None,
    co2_g_per_kwh: Annotated[float | None, CO2] = None,
    epochs: Annotated[int, typer.Option(help="Number of epochs to price.")] = 1,
    style: Annotated[str, typer.Option(help="terminal, markdown, github, html, latex or csv.")] = "terminal",
) -> None:
    """Show what the epochs of a study cost: machine time, energy, and the CO2 of that energy.

    Prices may be in any currency, as long as it is the same for all.
    """
    from framework_compare.report import resource_tables
    from framework_compare.results.bills import read_per_hour

    hours = read_per_hour(per_hour)
    with console.reading(study) as result:
        bill = result.cost(hours, per_kwh, co2_g_per_kwh, epochs)
        if hours is None and not (bill.frame["bill_wh"] > 0).any():
            reasons = resource_tables.unmeasured_energy(list(result.frame.itertuples())) or [resource_tables.NO_ENERGY]
            raise UsageError(f"the study has no energy readings; give --per-hour ({' '.join(reasons)})")
        print(bill.text(style))

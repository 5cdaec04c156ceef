"""A figure as an object: shown by Jupyter, saved as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from framework_compare.errors import UsageError
from framework_compare.report.figures import files
from framework_compare.report.figures.catalogue import FIGURES, find
from framework_compare.report.figures.subject import Subject
from framework_compare.report.study import Study


class Plot:
    """A figure of a study, by name or number; frameworks and models are those to draw, one or several, None is all.

    view: another way to look at the same, such as "images per second" of F2; "" is the usual one.
    """

    def __init__(
        self,
        study: Study,
        name: str,
        *,
        frameworks: str | Sequence[str] | None = None,
        models: str | Sequence[str] | None = None,
        view: str = "",
    ) -> None:
        self.name, self.view = find(name), view
        FIGURES[self.name].seen_as(view)  # raises for a view that it has not
        only = ([one] if isinstance(one, str) else one for one in (frameworks, models))
        self._subject = Subject(study, *only)
        self._parts: dict[str, files.Drawn] | None = None

    @property
    def parts(self) -> dict[str, files.Drawn]:
        """The drawn parts by title; UsageError where the study has no data for the figure."""
        if self._parts is None:
            self._parts = files.draw(self._subject, self.name, view=self.view)
        if not self._parts:
            raise UsageError(files.absence(self._subject, self.name, self.view))
        return self._parts

    @property
    def specifications(self) -> list[dict[str, Any]]:
        """The Vega-Lite specification of each part."""
        return [part.spec for part in self.parts.values()]

    @property
    def caption(self) -> str:
        """How to read the figure, and the settings of its cells."""
        return files.caption(self._subject, self.name, self.view)

    def save(self, path: str | Path, width: str = files.COLUMN) -> Path:
        """Write .svg, .pdf or .png, `width` wide ("84mm"), and the caption beside it as .txt; return the path."""
        target = Path(path).absolute()
        files.save(self._subject, self.name, target, width, self.view)
        return target

    def _repr_html_(self) -> str:
        return "".join(part.svg for part in self.parts.values())

    def __repr__(self) -> str:
        return f"Plot({self.name!r})"

"""A small network as users write it, of a few lines of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.imports import resolve

FORWARD = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 2)
    def forward(self, {inputs}):
        {body}
def build():
    {build}
"""


def write(folder: Path, body: str, build: str = "return Net()", inputs: str = "x") -> None:
    """Write the network with this body of its forward to net.py."""
    (folder / "net.py").write_text(FORWARD.format(inputs=inputs, body=body.strip(), build=build))


def imported(folder: Path, body: str, build: str = "return Net()", *, size: int | Sequence[int] = 16) -> ImportedModel:
    """Return the network once it is shown to be the same function as the module, for images of these sizes in pixels."""
    write(folder, body, build)
    _, (model,) = resolve(f"{folder / 'net.py'}:build", size)
    assert isinstance(model, ImportedModel) and model.level is not None and model.level.passed, model
    return model

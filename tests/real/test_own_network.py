"""A network as users write it, through torch's real environment: imported, proved, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from framework_compare.errors import UsageError
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.importing.imports import resolve

NET = Path(__file__).parents[1] / "plugins" / "user_net.py"
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
REFUSED = {
    "fails": ("x", "return self.fc(x)", "return Net()", "forward fails on a batch of images"),
    "two inputs": ("x, y", "return x", "return Net()", r"takes 2 inputs \(x, y\)"),
    "control flow": ("x", "return self.fc(x.mean((2, 3))[:, :1] if x.sum() > 0 else x)", "return Net()", "cannot"),
    "no op": ("x", "return self.fc(torch.cumsum(self.conv(x), 2).mean((2, 3)))", "return Net()", "cumsum"),
    "all kinds": ("x", "return self.fc(torch.erf(torch.cumsum(self.conv(x), 2)).mean((2, 3)))", "return Net()", "erf"),
    "shared": ("x", "return self.fc((self.conv(x) + self.conv(2 * x)).mean((2, 3)))", "return Net()", "shares its weight"),
    "no module": ("x", "return x", "return 3", "gives a int"),
    "raises": ("x", "return x", "raise SystemExit('away')", r"build\(\) of .* fails: SystemExit: away"),
}  # fmt: skip


def test_a_network_of_a_user_is_the_same_function() -> None:
    _, (model,) = resolve(f"{NET}:build", 32)
    assert isinstance(model, ImportedModel) and model.level is not None and model.level.passed
    assert model().parameter_count() == 1031 and "18 parameters are left out" in model.notes[0]
    assert resolve(f"{NET}:build", 32)[0] == model.name


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_imported_gives_one_line(kind: str, tmp_path: Path) -> None:
    inputs, body, build, words = REFUSED[kind]
    (tmp_path / "net.py").write_text(FORWARD.format(inputs=inputs, body=body, build=build))
    with pytest.raises(UsageError, match=words) as error:
        resolve(f"{tmp_path / 'net.py'}:build", 16)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5"])
def test_models_of_torchvision_are_the_same_functions(name: str) -> None:
    _, (model,) = resolve(f"torchvision:{name}", 32)
    assert model.level is not None and model.level.passed and model.seeded

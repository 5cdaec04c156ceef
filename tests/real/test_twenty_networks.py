"""Twenty networks as users write them, drawn before the importer could read them: each is the same function."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from nightly import some_nightly

from framework_compare.graph import Field, Task
from framework_compare.importing.import_level import TOLERANCE
from framework_compare.importing.sources import MODULE_FILE, Source
from framework_compare.importing.tracing import Asked, Tracer

FILE = Path(__file__).parents[2] / "benchmarks" / "twenty_networks.py"
ENTRY = re.compile(r'"(\w+)": \((\w+), (IMAGE|\([\d, ]+\)), "(\w+)", (\d+)\)')
NETWORKS = {name: entry for name, *entry in ENTRY.findall(FILE.read_text())}
OFTEN = ("unet_encoder", "patch_transformer", "tiny_gpt", "linear_attention")


def test_there_are_twenty():
    assert len(NETWORKS) == 20


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("name", some_nightly(NETWORKS, nightly=[name for name in NETWORKS if name not in OFTEN]))
def test_a_network_is_imported_as_the_same_function(name):
    made, shape, dtype, vocabulary = NETWORKS[name]
    source = Source(MODULE_FILE, f"{FILE}:{made}", FILE.stem, made, str(FILE))
    traced = Tracer()(source, asked(shape, dtype, int(vocabulary)))
    assert traced.level is not None and traced.level.passed and traced.level.error < TOLERANCE, traced.level


def asked(shape: str, dtype: str, vocabulary: int) -> Asked:
    if shape == "IMAGE":
        return Asked(sizes=[32])
    inputs = (Field("x", ast.literal_eval(shape), dtype, vocabulary),)
    label, labels = Field("label", (), "int64"), Field("labels", inputs[0].shape[:1], "int64")
    return Asked(
        tasks=[
            Task(inputs, label, 0, "cross_entropy", ("accuracy",), "row"),
            Task(inputs, labels, 0, "token_cross_entropy", ("accuracy",), "sequence"),
        ]
    )

"""Twenty networks as users write them, drawn before the importer could read them: each is the same function everywhere."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from nightly import some_nightly

from framework_compare import api
from framework_compare.graph import Field, Task
from framework_compare.graph.imported_model import Asked
from framework_compare.importing.import_level import TOLERANCE
from framework_compare.importing.sources import MODULE_FILE, Source
from framework_compare.importing.tracing import Tracer
from framework_compare.parity.verify import verify
from framework_compare.results.parity import Parity
from framework_compare.study.request import Request

FILE = Path(__file__).with_name("twenty_networks.py")
ENTRY = re.compile(r'"(\w+)": \((\w+), (IMAGE|\([\d, ]+\)), "(\w+)", (\d+)\)')
NETWORKS = {name: entry for name, *entry in ENTRY.findall(FILE.read_text())}
FRAMEWORKS = ["torch", "tensorflow", "mxnet", "paddle", "jax"]
# These do not end in a Linear, so that they have as many outputs for any data.
CLASSES = {"gated_normalized": 10, "capsules": 5, "prototypes": 6}
OFTEN = ("unet_encoder", "patch_transformer", "tiny_gpt", "linear_attention", "capsules")


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


def verdicts(name: str) -> "list[Parity]":
    """Of five frameworks on one network, for images or for arrays of its shape."""
    made, shape, dtype, vocabulary = NETWORKS[name]
    rng, count, data, settings = np.random.default_rng(0), 24, None, {"image_size": 32}
    if shape != "IMAGE" or name in CLASSES:
        size = (count, 3, 32, 32) if shape == "IMAGE" else (count, *ast.literal_eval(shape))
        inputs = rng.integers(0, int(vocabulary), size) if int(vocabulary) else rng.standard_normal(size).astype(dtype)
        target = rng.integers(0, 50, size) if name == "tiny_gpt" else np.arange(count) % CLASSES.get(name, 2)
        data, settings = {"x": inputs, "y": target}, {}
    request = Request.of([], f"{FILE}:{made}", dataset=data, **settings)
    _, _, (model,) = api.with_own(request, Tracer())
    return verify(FRAMEWORKS, model.name, threads=1, batch_size=8, **settings)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NETWORKS)
def test_five_frameworks_compute_the_same(name):
    for found in verdicts(name):
        assert found.proves(), (found.framework, found.reason, found.levels)

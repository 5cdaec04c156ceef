"""Tasks: what is learnt, as a value that crosses the process boundary."""

from __future__ import annotations

import dataclasses
import json

import pytest

from framework_compare.errors import UsageError
from framework_compare.graph import Field, Task, image_classification


def test_a_task_comes_back_from_json_as_it_was():
    task = Task(
        (Field("tokens", (33,), "int32", 8000),),
        Field("tags", (33,), "int64"),
        2,
        "token_cross_entropy",
        ("f1",),
        "tweet",
    )
    for one in (task, image_classification(3, 224), dataclasses.replace(task, smoothing=0.1)):
        assert Task.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert "smoothing" not in task.to_dict(), "earlier versions read and wrote no such field"


def test_an_unknown_loss_or_dtype_lists_the_known():
    with pytest.raises(UsageError, match="loss is 'hinge'; allowed: cross_entropy, token_cross_entropy, mse"):
        Task((Field("x", (8,)),), Field("y", (1,)), 1, "hinge")
    with pytest.raises(UsageError, match="field x: dtype is 'float16'; allowed: float32"):
        Field("x", (8,), "float16")


def test_labels_alone_are_smoothed():
    with pytest.raises(UsageError, match="label_smoothing is 0.1; allowed for loss 'mse': 0"):
        Task((Field("x", (8,)),), Field("y", (1,)), 1, "mse", smoothing=0.1)

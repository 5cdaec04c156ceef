"""A user's Keras model as a layer graph: loaded, read layer by layer, judged in float64.

A job of kind "trace" has one task: {"source": where the model is, "sizes": image sizes, "tasks": those for the user's
arrays, "output": the one that is trained}. It writes a TraceAnswer into the run's folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from types import ModuleType
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from framework_compare.adapters.tensorflow.trainer import TensorFlowTrainer
from framework_compare.errors import UsageError
from framework_compare.graph import Node
from framework_compare.graph.imported_model import Asked, TraceAnswer
from framework_compare.importers.common.reading import left_out
from framework_compare.importers.common.sources import made_by, one_line
from framework_compare.importers.common.tracing import (
    IMAGES,
    SAMPLES,
    SEED,
    drawn_inputs,
    drawn_target,
    moved,
    output_number,
)
from framework_compare.importers.keras.reading import Reading, matched
from framework_compare.json_types import JSON, Fields
from framework_compare.protocol import Job

if TYPE_CHECKING:
    from keras import Model

BATCH = 2  # images of the reading
STATISTICS = ("moving_mean", "moving_variance", "seed_generator_state")  # ends of paths


class KerasImporter:
    environment = staticmethod(TensorFlowTrainer.environment)

    @staticmethod
    def trace(job: Job) -> None:
        """Answer a job of kind "trace"; UsageError, in one line, where the model cannot be imported."""
        (task,) = job.tasks
        import keras

        keras.utils.set_random_seed(SEED)  # the same weights at every import
        asked = Asked.from_dict(task)
        if asked.loss:
            raise UsageError("a Keras model trains with the loss of its target; for loss_function give an nn.Module")
        model = load(task["source"])
        _check_layers(keras, model)
        # a Sequential has one output, without a name
        output = output_number(getattr(model, "output_names", ("0",)), asked.output)
        fields = matched(model, asked.tasks[0].inputs) if asked.tasks else ()
        readings = {}
        for size, tasks in asked.by_size.items():
            if fields:
                tasks = [dataclasses.replace(one, inputs=fields) for one in tasks]
            else:
                _check_images(model, size)
            readings[size] = Reading(model, tasks, BATCH, output)
        first = next(iter(readings.values()))
        graphs = {size: reading.graph for size, reading in readings.items()}
        notes = [*first.notes, *_notes(model, first)]
        exact = judge(keras, model, first, SAMPLES if fields else IMAGES, output)
        TraceAnswer(graphs, first.arrays, exact, notes, keras.__version__).write(os.getcwd())


def load(source: Mapping[str, str]) -> Model:
    """The model of a function or of a .keras file; nothing is run that such a file brings."""
    import keras

    made = _saved(keras, source["path"]) if source["kind"] == "keras" else made_by(source["path"], source["name"])
    if not isinstance(made, keras.Model):
        raise UsageError(
            f"{source['name']} gives a {type(made).__name__}; allowed: a function that returns a keras.Model"
        )
    return made


def _saved(keras: ModuleType, path: str) -> Model:
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise UsageError(f"{path} is not a .keras file: {one_line(error)}") from None
    foreign = sorted(
        {name for module, name in _classes(config) if module.partition(".")[0] not in ("keras", "builtins")}
    )
    unsafe = [name for name in ("Lambda",) if any(name == one for _, one in _classes(config))]
    if foreign or unsafe:
        raise UsageError(
            f"{path} has {', '.join([*unsafe, *foreign])}, which is custom code; it is not run. Name the function"
            " that makes the model: FILE.py:FUNCTION"
        )
    try:
        return keras.models.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        raise UsageError(f"{path} cannot be loaded: {one_line(error)}") from None


def _classes(config: JSON) -> Iterator[Tuple[str, str]]:
    """Module and name of every class that a configuration names."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield str(config.get("module", "keras")), str(config["class_name"])  # None: a class of its own
        config = list(config.values())
    if isinstance(config, list):
        for value in config:
            yield from _classes(value)


def _check_layers(keras: ModuleType, model: Model) -> None:
    """UsageError for a model whose layers are not known, or of which a part is not trained."""
    if not isinstance(model, keras.Sequential) and not hasattr(model, "_nodes_by_depth"):
        raise UsageError(
            f"{type(model).__name__} is a subclass of keras.Model, whose order of layers is unknown; build it by"
            " keras.Model(inputs, outputs) or keras.Sequential"
        )
    if not model.built or not model.inputs:
        raise UsageError("its input has no shape; begin it with keras.Input(shape=(S, S, 3))")
    frozen = [one.path for one in model.non_trainable_weights if not one.path.endswith(STATISTICS)]
    if frozen:
        raise UsageError(f"{len(frozen)} of its arrays are not trained, such as {frozen[0]}; set trainable = True")


def _check_images(model: Model, size: int) -> None:
    """UsageError where its input is not images of this size."""
    if len(model.inputs) != 1:
        raise UsageError(f"it takes {len(model.inputs)} inputs; allowed: one, a batch of images")
    shape = tuple(model.inputs[0].shape)
    if len(shape) != 4 or any(given not in (None, wanted) for given, wanted in zip(shape[1:], (size, size, 3))):
        raise UsageError(f"its input has shape {shape}, but images of this size have (None, {size}, {size}, 3)")


def _notes(model: Model, reading: Reading) -> List[str]:
    used = set(reading.origin.values())
    left = [one for one in model.trainable_weights if one.path not in used]
    notes = left_out({one.path: int(np.prod(one.shape)) for one in left}, "/")
    if model.losses:
        notes.append("its regularizers are ignored: all frameworks train the same loss")
    return notes


def judge(keras: ModuleType, model: Model, reading: Reading, count: int, output: int = 0) -> Dict[str, np.ndarray]:
    """Return what Keras computes with the model in float64, by names of the graph; dropout is off.

    The arrays are those that torch's tracing has. Keras keeps the biased running variance, the graph the unbiased one.
    """
    import tensorflow as tf

    double, variables, start = _double(keras, model, reading)
    rng, task = np.random.default_rng(SEED), reading.graph.task
    given = drawn_inputs(task, count, rng)
    target = drawn_target(task, count, rng)
    turned = [one.transpose(0, 2, 3, 1) if turn else one for one, turn in zip(given, reading.turned)]
    fed = [
        tf.constant(one, tensor.dtype if one.dtype != np.float64 else None)
        for one, tensor in zip(turned, double.inputs)
    ]

    def outputs(training: bool) -> Any:
        found = keras.tree.flatten(double(fed if len(fed) > 1 else fed[0], training=training))[output]
        return tf.reshape(found, (count, *task.output_shape))

    exact = {f"input:{name}": array for name, array in zip(task.named_inputs, given)}
    exact.update({"target": target, "evaluation": outputs(False).numpy()})
    with tf.GradientTape() as tape:
        logits = outputs(True)
        loss = tf.reduce_mean(_losses(tf, task.loss, target, logits))
    gradients = tape.gradient(loss, {path: one.value for path, one in variables.items() if one.trainable})
    gradients = {path: tf.convert_to_tensor(one) for path, one in gradients.items() if one is not None}
    exact["training"] = logits.numpy()
    exact.update({f"start:{name}": array for name, array in reading.arrays.items() if name not in reading.origin})
    counts = _counts(reading, count)
    for ours, own in reading.origin.items():
        exact[f"start:{ours}"] = reading.as_graph(ours, start[own])
        if variables[own].trainable:
            if own in gradients:
                exact[f"gradient:{ours}"] = reading.as_graph(ours, gradients[own])
            continue
        after = np.asarray(variables[own])
        if own.endswith("moving_variance"):
            node, count = counts[ours]
            kept = start[own] * (1 - node.attrs["momentum"])
            after = kept + (after - kept) * count / (count - 1)
        exact[f"after:{ours}"] = reading.as_graph(ours, after)
    return exact


def _double(keras: ModuleType, model: Model, reading: Reading) -> Tuple[Model, Fields, Dict[str, np.ndarray]]:
    """The same model in float64 without dropout and last softmax; its arrays, and what they are moved to, by path."""
    kind = keras.Sequential if isinstance(model, keras.Sequential) else keras.Model
    double = kind.from_config(_in_double(model.get_config(), reading.cut))
    for layer in double._flatten_layers():
        if getattr(layer, "activation", None) is keras.activations.gelu:
            layer.activation = _gelu
    double.set_weights(model.get_weights())
    rng = np.random.default_rng(SEED)
    twins = {one.path: twin for one, twin in zip(model.weights, double.weights)}  # whose own paths may be others
    variables, start = {}, {}
    for path in dict.fromkeys(reading.origin.values()):
        variables[path] = twins[path]
        start[path] = moved(rng, np.asarray(twins[path]), positive=path.endswith("moving_variance"))
        variables[path].assign(start[path])
    return double, variables, start


def _gelu(x: Any) -> Any:
    """TensorFlow 2.21 has the root of 2 in float32 there, also for float64."""
    import tensorflow as tf

    return 0.5 * x * (1 + tf.math.erf(x / tf.constant(2**0.5, x.dtype)))


def _in_double(config: JSON, last: str) -> JSON:
    if isinstance(config, list):
        return [_in_double(one, last) for one in config]
    if isinstance(config, dict):
        inner = config.get("config")
        if isinstance(inner, dict) and config.get("class_name") == "Dropout":
            inner = {**inner, "rate": 0}
        if isinstance(inner, dict) and inner.get("name") == last:
            if config["class_name"] == "Softmax":
                config, inner = {**config, "class_name": "Identity"}, {"name": last, "dtype": inner.get("dtype")}
            elif inner.get("activation") in ("softmax", "sigmoid"):
                inner = {**inner, "activation": "linear"}
        config = config if inner is None else {**config, "config": inner}
        return {key: _in_double(value, last) for key, value in config.items()}
    return "float64" if config in ("float32", "float16", "mixed_float16", "mixed_bfloat16") else config


def _losses(tf: ModuleType, loss: str, target: np.ndarray, outputs: Any) -> Any:
    """Return the loss of each sample, token or number; their mean is trained."""
    if loss == "mse":
        return (outputs - target) ** 2
    if loss == "binary_cross_entropy":
        return tf.nn.sigmoid_cross_entropy_with_logits(tf.constant(target), outputs)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(target, outputs)


def _counts(reading: Reading, count: int) -> Dict[str, Tuple[Node, int]]:
    """Return, by name of running variance, its node and how many values of a channel it is computed from."""
    shapes = {
        **reading.graph.shapes(),
        **{name: field.shape for name, field in reading.graph.task.named_inputs.items()},
    }
    return {
        f"{node.name}.running_var": (node, count * int(np.prod(shapes[node.inputs[0]][1:])))
        for node in reading.graph.nodes
        if node.op == "BatchNorm2d"
    }

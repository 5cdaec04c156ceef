"""What XLA makes for a GPU of JAX's step, ours and the hand-written one's: operations of both programs, by kind.

Needs no GPU: XLA compiles for the one that benchmarks/h200.txtpb describes, in XLA's own words, and times no algorithms
to choose one. Where both programs have as many of each kind, the adapter did not give XLA more to do.

Usage, in an environment with jax, jax-cuda13-plugin and jax-cuda13-pjrt of one version and framework_compare:
       python benchmarks/xla_programs.py [--models alexnet] [--batch-size 1,100] [--save FILE]
"""

import argparse
import collections
import datetime
import itertools
import json
import os
import re
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"  # where arrays are; programs are for the GPU described
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"

import jax
import numpy as np
from jax.experimental import topologies

from framework_compare.adapters.jax import trainer as adapter
from framework_compare.plan.planning import build_graph
from framework_compare.protocol import TrainConfig

HERE = Path(__file__).parent
OUR_VARIANT = {"resnet50": "resnet50_v1_5"}  # as in step_time.py
NO_WORK = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant"}


def gpu():
    described = (HERE / "h200.txtpb").read_text()
    topology = topologies.get_topology_desc("h200", platform="cuda", target_config=described, topology="1x1x1")
    return jax.sharding.SingleDeviceSharding(topology.devices[0])


def operations(step, state, config, device):
    """Of the compiled step's entry computation, each of which is a kernel, a library's call or a copy."""
    inputs = (
        jax.ShapeDtypeStruct((config.batch_size, config.image_size, config.image_size, 3), np.float32),
        jax.ShapeDtypeStruct((config.batch_size,), np.int32),
    )
    state, *inputs = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=device), (state, *inputs)
    )
    entry = step.lower(state, *inputs).compile().as_text().partition("\nENTRY")[2]
    calls = collections.Counter(re.findall(r'custom_call_target="([^"]+)"', entry))
    kinds = collections.Counter(re.findall(r"= [^=]*? ([a-z][a-z0-9-]*)\(", entry))
    work = {kind: count for kind, count in kinds.items() if kind not in {*NO_WORK, "custom-call"}}
    return dict(sorted({**work, **calls}.items()))


def ours(model, config):
    """Our adapter's jitted step as on a GPU, and what it is given."""
    adapter._find_devices = lambda jax, names: (jax.devices("cpu")[:1], "")
    trainer = adapter.JaxTrainer(config)
    trainer.build(build_graph(OUR_VARIANT.get(model, model), config))
    return trainer._step, trainer._leaves


def by_hand(model, config):
    sys.path.insert(0, str(HERE / "hand_written"))
    import jax_loop

    jitted, jit = [], jax.jit
    jax.jit = lambda function, **how: jitted.append(jit(function, **how)) or jitted[-1]
    jax_loop.jax.default_backend = lambda: "cuda"
    images = np.zeros((config.batch_size, config.image_size, config.image_size, 3), np.float32)
    step, _ = jax_loop.make(model, images, np.zeros(config.batch_size, np.int64), 1, "graph", config.precision)
    jax.jit = jit
    (held,) = (cell.cell_contents for name, cell in zip(step.__code__.co_freevars, step.__closure__) if name == "held")
    return jitted[-1], held[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="alexnet,mobilenet_v2,resnet50,vgg16")
    parser.add_argument("--batch-size", default="1,100")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--save")
    options = parser.parse_args()
    device, rows = gpu(), []
    for model, size in itertools.product(options.models.split(","), options.batch_size.split(",")):
        config = TrainConfig(
            device="cuda", batch_size=int(size), execution="graph", precision=options.precision, pipeline="memory"
        )
        found = {name: operations(*make(model, config), config, device) for name, make in SIDES.items()}
        counts = {name: sum(kinds.values()) for name, kinds in found.items()}
        rows.append({"model": model, "batch_size": int(size), "precision": options.precision, **found})
        print(
            f"{model:14}batch {size:<5}{config.precision:6}ours {counts['ours']}, by hand {counts['hand']}", flush=True
        )
    if options.save:
        versions = {"jax": jax.__version__, "jaxlib": jax.lib.__version__}
        told = {"date": datetime.date.today().isoformat(), "versions": versions, "rows": rows}
        Path(options.save).write_text(json.dumps(told, indent=1) + "\n")


SIDES = {"ours": ours, "hand": by_hand}

if __name__ == "__main__":
    main()

"""The GPU record of docs/gpu.md: what proves it, what runs it, and what makes its tables.

    python benchmarks/gpu_study.py verify OUT --data PICTURES --python torch=PATH --python jax=PATH [--only 'alexnet*']
    python benchmarks/gpu_study.py run OUT --data PICTURES --python torch=PATH --python jax=PATH --gpus 0,1
    python benchmarks/gpu_study.py tables OUT docs/h200

`verify` climbs the ladder of every cell to come, several at a time: it times nothing. `run` trains them, one study at a
time on each GPU, with the cores shared out among the GPUs; a call that was stopped goes on. `tables` puts all studies
of a folder into one CSV and draws the tables; no path of the machine is in them.
"""

import argparse
import fnmatch
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import gpu_tables

from framework_compare import compare
from framework_compare.parity import cache
from framework_compare.parity.verify import Where, verify

MODELS = ("vgg16", "resnet50", "mobilenet_v2", "alexnet")
WIDE = "resnet50_v1_5"
HERE = Path(__file__).parent
PRECISIONS = ["fp32", "tf32", "bf16"]
EXECUTIONS = {"torch": ["eager", "graph"], "jax": ["graph"]}
# epochs that last seconds: the energy counter and NVML's averages need that
EPOCHS = {
    1: {"alexnet": 16, "mobilenet_v2": 6, "resnet50": 6, "vgg16": 8},
    100: {"alexnet": 100, "mobilenet_v2": 40, "resnet50": 15, "vgg16": 8},
}
PICTURES = {1: 100, 100: 400}
SCALING = [16, 128, 1024, 4096]
# Of each picture, in a folder that has more of them than the largest batch: an epoch needs some batches for each process
# of a loader whose processes make whole ones
LINKS = 6


def jobs():
    """Each study of the record: name -> arguments of `compare` without the machine's, what matters most first."""
    found = {}
    for model in MODELS:
        found[f"memory-jax-{model}-100"] = memory("jax", model, 100, "graph")
    for framework, executions in (("torch", ["graph", "compiled"]), ("jax", "graph")):
        found[f"wide-{framework}"] = dict(
            frameworks=framework, models=WIDE, precision="bf16", execution=executions, pipeline="memory",
            batch_size=256, limit=4608, epochs=6,
        )  # fmt: skip
    for model, framework in itertools.product(MODELS, EXECUTIONS):
        found[f"pictures-{framework}-{model}"] = dict(
            frameworks=framework, models=model, precision="bf16", execution="graph", pipeline=["native", "shared"],
            batch_size=100, limit=4700, epochs=3,
        )  # fmt: skip
    for framework in EXECUTIONS:
        found[f"scaling-{framework}"] = dict(
            frameworks=framework, models="resnet50", precision="bf16", execution="graph", pipeline="memory",
            batch_size=SCALING, limit=max(SCALING), epochs=3,
        )  # fmt: skip
    for framework, executions in EXECUTIONS.items():
        found[f"profile-{framework}"] = dict(
            frameworks=framework, models="alexnet", execution=executions, pipeline="memory", batch_size=100, limit=400,
            epochs=3, profile=True,
        )  # fmt: skip
    # a GPU takes eight times the pictures, so that its epochs last as long as can be timed
    for model, (device, limit, epochs) in itertools.product(reversed(MODELS), (("cuda", 800, 5), ("cpu", 96, 3))):
        found[f"speedup-{model}-{device}"] = dict(
            frameworks=list(EXECUTIONS), models=model, device=device, pipeline="memory", batch_size=8, limit=limit,
            epochs=epochs,
        )  # fmt: skip
    for model in reversed(MODELS):
        found[f"memory-jax-{model}-1"] = memory("jax", model, 1, "graph")
    for batch_size, model in itertools.product((100, 1), reversed(MODELS)):
        found[f"memory-torch-{model}-{batch_size}"] = memory("torch", model, batch_size, ["eager", "graph"])
    for batch_size, model in itertools.product((1, 100), reversed(MODELS)):
        study = memory("jax", model, batch_size, "eager")  # a step takes up to 1.4 s, whatever its batch
        found[f"eager-jax-{model}-{batch_size}"] = {**study, "epochs": 3, "limit": 2 * batch_size}
    return found


def scripts(options):
    """Other measurements, which take turns with the studies: name -> words of the command."""
    pythons = [word for pair in options.python.items() for word in ("--python", "=".join(pair))]
    step = [str(HERE / "step_time.py"), "--device", "cuda", *pythons, "--rounds", "9"]
    found = {
        f"steps-{framework}-{model}-{precision}": [
            *step, "--frameworks", framework, "--models", model, "--batch-size", sizes, "--precision", precision,
            "--execution", execution, "--save", str(options.out / f"steps-{framework}-{model}-{precision}.json"),
        ]
        for framework, model, sizes, precision, execution in (
            *(("jax", model, "1,100", "fp32", "graph") for model in ("alexnet", "vgg16", "resnet50", "mobilenet_v2")),
            ("torch", "vgg16", "100", "tf32", "graph"),
            ("torch", "resnet50", "100", "bf16", "graph,compiled"),
            ("jax", "resnet50", "100", "bf16", "graph"),
        )
    }  # fmt: skip
    nvml = [str(HERE / "nvml_cost.py"), "--python", f"torch={options.python.get('torch')}", "--rounds", "24"]
    return {**found, "nvml": [*nvml, "--save", str(options.out / "nvml.json")]}


def memory(framework, model, batch_size, executions):
    return dict(
        frameworks=framework, models=model, precision=PRECISIONS, execution=executions, pipeline="memory",
        batch_size=batch_size, limit=PICTURES[batch_size], epochs=EPOCHS[batch_size][model],
    )  # fmt: skip


def questions(model, precision, workers):
    """What is asked of a network in a precision: arguments of `verify`, in groups that may be asked side by side."""
    held = dict(pipeline="memory", loader_workers=1, device="cuda")
    graph = [dict(held, frameworks=name, execution=chosen) for name, chosen in EXECUTIONS.items()]
    if model == WIDE:
        yield [*graph, dict(held, frameworks="torch", execution="compiled")]
        return
    if precision == "bf16":
        graph += [dict(one, execution="graph", pipeline="native", loader_workers=workers) for one in graph]
    if precision == "fp32":
        graph += [dict(held, frameworks=name, device=on) for name in EXECUTIONS for on in ("cpu", "cuda")]
    if model == "alexnet":
        graph += [dict(held, frameworks="torch", execution="compiled")]
        yield from ([one] for one in graph)
    else:
        yield graph
    if precision in PRECISIONS:
        yield [dict(held, frameworks="jax", execution="eager")]


def climb(model, precision, asked, options):
    """Verdicts on a network in a precision, as dictionaries."""
    found = []
    for question in asked:
        settings = {"execution": "default", **question}
        verdicts = verify(
            settings.pop("frameworks"), model, precision=precision, threads=options.threads,
            where=Where(python=options.python), **settings,
        )  # fmt: skip
        told = {"device": question["device"], "pipeline": question["pipeline"], "ladder": cache.ladder_checksum()[:12]}
        found += [{**one.to_dict(), **told} for one in verdicts]
    return found


def prove(options):
    """The first network of each precision before the others: all share its framework's small network."""
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = [(model, precision) for model in reversed(MODELS) for precision in PRECISIONS]
    pairs = [*pairs, ("alexnet", "fp16"), (WIDE, "bf16")]
    chosen = [pair for pair in pairs if fnmatch.fnmatch("-".join(pair), options.only)]
    tasks = [(*pair, asked) for pair in chosen for asked in questions(*pair, options.workers)]
    first = [task for task in tasks if task[0] == chosen[0][0]]
    verdicts = []
    with ProcessPoolExecutor(options.processes) as pool:
        for wave in (first, [task for task in tasks if task not in first]):
            for done in as_completed([pool.submit(climb, *task, options) for task in wave]):
                verdicts += done.result()
                (options.out / "parity.json").write_text(json.dumps(verdicts, indent=1) + "\n")
                for one in done.result():
                    failed = [level for level in one["levels"] if level["asked"] and not level["passed"]]
                    names = ("framework", "model", "precision", "execution", "status", "seconds")
                    say(" ".join([*(str(one[name]) for name in names), *(level["where"] for level in failed)]))


def run(options):
    """Every job on the next GPU that is free, in a process that sees that GPU and its share of the cores only."""
    waiting = queue.Queue()
    known = scripts(options)
    matching = (fnmatch.filter([*jobs(), *known], pattern) for pattern in options.only.split(","))
    for name in dict.fromkeys(itertools.chain.from_iterable(matching)):
        waiting.put(name)
    end = time.monotonic() + options.until
    gpus = options.gpus.split(",")
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // len(gpus)

    def serve(number, gpu):
        own = cores[number * share : (number + 1) * share]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
        while time.monotonic() < end:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            words = [__file__, "one", str(options.out), "--only", name, "--data", options.data]
            words += [word for pair in options.python.items() for word in ("--python", "=".join(pair))]
            start = time.monotonic()
            with open(options.out / f"{name}.log", "ab") as log:
                done = subprocess.run(
                    [sys.executable, *known.get(name, words)], env=environment, stdout=log, stderr=log,
                    preexec_fn=lambda: os.sched_setaffinity(0, own),
                )  # fmt: skip
            say(f"GPU {gpu}: {name} ended with {done.returncode} after {time.monotonic() - start:.0f} s")

    options.out.mkdir(parents=True, exist_ok=True)
    link_pictures(Path(options.data), options.out / "many")
    threads = [threading.Thread(target=serve, args=pair) for pair in enumerate(gpus)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_one(options):
    study = jobs()[options.only]
    many = options.only.startswith(("scaling", "pictures", "wide"))
    threads = len(os.sched_getaffinity(0))
    result = compare(
        study.pop("frameworks"), study.pop("models"), study.pop("device", "cuda"), out=options.out / options.only,
        dataset=str(options.out / "many") if many else options.data, python=options.python, threads=threads,
        loader_workers=threads, timeout_s=300, **study,
    )  # fmt: skip
    print(result)


def link_pictures(folder, to):
    """A folder with every picture LINKS times."""
    for path in folder.rglob("*"):
        if path.suffix.lower() in (".jpg", ".jpeg"):
            for number in range(LINKS):
                link = to / path.parent.name / f"{number}-{path.name}"
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    os.link(path, link)


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["verify", "run", "one", "tables"])
    parser.add_argument("out", type=Path)
    parser.add_argument("to", type=Path, nargs="?")
    parser.add_argument("--data", help="folder of pictures")
    parser.add_argument("--python", action="append", default=[], help="FRAMEWORK=PATH")
    parser.add_argument("--only", default="*", help="patterns of the names to run, in this order, or one of MODEL-PRECISION")
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no study is begun")
    parser.add_argument("--workers", type=int, default=16, help="of the native pipeline that verify asks about")
    parser.add_argument("--processes", type=int, default=4, help="of verify")
    parser.add_argument("--threads", type=int, default=4, help="of a worker of verify")
    options = parser.parse_args()
    options.python = dict(pair.split("=", 1) for pair in options.python)
    if options.part == "tables":
        gpu_tables.write(options.out, options.to)
    else:
        {"verify": prove, "run": run, "one": run_one}[options.part](options)


if __name__ == "__main__":
    main()

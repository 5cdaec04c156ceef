"""The GPU record of docs/records/gpu-h200.md: what proves it, what runs it, and what makes its tables.

    python benchmarks/gpu_study.py verify OUT --python torch=PATH --python jax=PATH [--only '*-alexnet-*'] [--gpus 0,1]
    python benchmarks/gpu_study.py run OUT --data PICTURES --python torch=PATH --python jax=PATH --gpus 0,1
    python benchmarks/gpu_study.py tables OUT docs/records/h200

`verify` climbs the ladder of every cell to come, several at a time: it times nothing. `run` trains them, first those
whose steps wait for the host, with nothing beside them, then the others, one study at a time on each GPU, with the
cores shared out among the GPUs; a call that was stopped goes on. `tables` puts all studies of a folder into one CSV,
beside what is there already, and draws the tables; no path of the machine is in them. --only takes patterns of studies,
as `jobs` names them and run in that order, or of climbs, PRECISION-MODEL-FRAMEWORK-EXECUTION-DEVICE-PIPELINE.
"""

import argparse
import fnmatch
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gpu_tables

from framework_compare import compare
from framework_compare.parity import cache
from framework_compare.parity.verify import ParityChecker, Where
from framework_compare.plan import planning

MODELS = ("vgg16", "resnet50", "mobilenet_v2", "alexnet")
WIDE = "resnet50_v1_5"
HERE = Path(__file__).parent
PRECISIONS = ["fp32", "tf32", "bf16"]
EXECUTIONS = {"torch": ["eager", "graph"], "jax": ["graph"]}
# epochs that last seconds: the energy counter and NVML's averages need that
EPOCHS = {
    1: {"alexnet": 16, "mobilenet_v2": 6, "resnet50": 6, "vgg16": 8},
    100: {"alexnet": 100, "mobilenet_v2": 40, "resnet50": 15, "vgg16": 12},
}
PICTURES = {1: 100, 100: 400}
PAIRS = {"torch": 1, "jax": 4}  # of processes that time a step: XLA's choices of algorithms differ by up to 14 %
SCALING = [16, 128, 1024, 4096]
ALONE = ("memory-*-1-*", "*steps-*-1-*", "nvml")  # their steps wait for the host, and may feel what else it does
# Of each image, in a folder that has more of them than the largest batch: an epoch needs some batches for each process
# of a loader whose processes make whole ones
LINKS = 6


def jobs():
    """Each study of the record: name -> arguments of `compare` without the machine's, what matters most first."""
    found = {}
    for model in MODELS:
        found.update(memory("jax", model, 100))
    for framework, executions in (("torch", ["graph", "compiled"]), ("jax", "graph")):
        found[f"wide-{framework}"] = dict(
            frameworks=framework, models=WIDE, precision="bf16", execution=executions, pipeline="memory",
            batch_size=256, limit=4608, epochs=6,
        )  # fmt: skip
    for model, framework in itertools.product(MODELS, EXECUTIONS):
        found[f"pictures-{framework}-{model}"] = dict(
            frameworks=framework, models=model, precision="bf16", execution="graph", pipeline=["native", "shared"],
            batch_size=100, limit=4700, epochs=6,
        )  # fmt: skip
    for framework in EXECUTIONS:
        found[f"scaling-{framework}"] = dict(
            frameworks=framework, models="resnet50", precision="bf16", execution="graph", pipeline="memory",
            batch_size=SCALING, limit=max(SCALING), epochs=5,
        )  # fmt: skip
    for framework, executions in EXECUTIONS.items():
        found[f"profile-{framework}"] = dict(
            frameworks=framework, models="alexnet", execution=executions, pipeline="memory", batch_size=100, limit=400,
            epochs=3, profile=True,
        )  # fmt: skip
    # a GPU takes eight times the images, so that its epochs last as long as can be timed; no batch is a smaller one
    for model, (device, limit, epochs) in itertools.product(reversed(MODELS), (("cuda", 784, 5), ("cpu", 96, 3))):
        found[f"speedup-{model}-{device}"] = dict(
            frameworks=list(EXECUTIONS), models=model, device=device, pipeline="memory", batch_size=8, limit=limit,
            epochs=epochs,
        )  # fmt: skip
    for model in reversed(MODELS):
        found.update(memory("jax", model, 1))
    for batch_size, model in itertools.product((100, 1), reversed(MODELS)):
        found.update(memory("torch", model, batch_size))
    for batch_size, model in itertools.product((1, 100), reversed(MODELS)):
        for precision in PRECISIONS:
            study = of_memory("jax", model, batch_size, "eager", precision)
            # a step takes up to 1.6 s, whatever its batch
            few = {"epochs": 6, "limit": max(4, 2 * batch_size)}
            found[f"eager-jax-{model}-{batch_size}-{precision}"] = {**study, **few}
    return found


def scripts(options):
    """Other measurements, which take turns with the studies: name -> words of the command."""
    pythons = [word for pair in options.python.items() for word in ("--python", "=".join(pair))]
    step = [str(HERE / "step_time.py"), "--device", "cuda", *pythons]
    asked = [(name, model, size, "fp32", "graph") for name in EXECUTIONS for model in MODELS for size in (1, 100)]
    asked += [
        ("torch", "vgg16", 100, "tf32", "graph"),  # in fp32 cuDNN tries its algorithms for minutes
        ("torch", "resnet50", 100, "bf16", "graph,compiled"),
        ("jax", "resnet50", 100, "bf16", "graph"),
    ]
    found = {}
    for framework, model, size, precision, execution in asked:
        rounds = 24 if size == 1 else 12  # steps at batch 1 wait for the host, and scatter more; see step_time.turns
        words = [
            *step, "--frameworks", framework, "--models", model, "--batch-size", str(size), "--precision", precision,
            "--execution", execution, "--rounds", str(rounds), "--pairs", str(PAIRS[framework]),
        ]  # fmt: skip
        name = f"steps-{framework}-{model}-{size}-{precision}"
        apart = ["--control"] if (framework, size) == ("jax", 1) else []  # what would two equal loops come to?
        found[name] = [*words, *apart, "--save", str(options.out / f"{name}.json")]
        if framework == "jax":
            name = f"together-{name}"
            found[name] = [*words, "--together", "--control", "--save", str(options.out / f"{name}.json")]
    nvml = [str(HERE / "sampling_slowdown.py"), "--device", "cuda", *pythons, "--rounds", "24"]
    nvml += ["--save", str(options.out / "nvml.json")]
    return {**found, "nvml": nvml}


def memory(framework, model, batch_size):
    """A study for each cell, as some take minutes."""
    return {
        f"memory-{framework}-{model}-{batch_size}-{execution}-{precision}": of_memory(
            framework, model, batch_size, execution, precision
        )
        for execution, precision in itertools.product(EXECUTIONS[framework], PRECISIONS)
    }


def of_memory(framework, model, batch_size, execution, precision):
    return dict(
        frameworks=framework, models=model, precision=precision, execution=execution, pipeline="memory",
        batch_size=batch_size, limit=PICTURES[batch_size], epochs=EPOCHS[batch_size][model],
    )  # fmt: skip


def questions(model, precision, workers, threads):
    """What is asked of a network in a precision: name -> framework and config; the slowest first."""
    held = dict(pipeline="memory", loader_workers=1, device="cuda")
    asked = [dict(held, frameworks=name, execution="graph") for name in reversed(EXECUTIONS)]
    if model == WIDE:
        asked += [dict(held, frameworks="torch", execution="compiled")]
    if model != WIDE and precision == "fp32":  # of the speed-ups
        asked += [dict(held, frameworks=name, device=on) for name in reversed(EXECUTIONS) for on in ("cuda", "cpu")]
    if model == "alexnet":  # the pipeline's level is the same for all networks
        asked += [dict(held, frameworks="torch", execution="compiled")]
        asked += [dict(one, pipeline="native", loader_workers=workers) for one in asked[:2] if precision == "bf16"]
    if model != WIDE:
        asked += [dict(held, frameworks="torch", execution="eager")]
    if model != WIDE and precision in PRECISIONS:
        asked += [dict(held, frameworks="jax", execution="eager")]
    found = {}
    for settings in asked:
        framework = settings.pop("frameworks")
        (config,) = planning.expand_configs({"threads": threads, "precision": precision, **settings})
        parts = (precision, model, framework, config.execution, config.device, config.pipeline)
        found["-".join(parts)] = (framework, config)
    return found


def prove(options):
    """Verdicts as OUT/climbs/NAME.json. Ends with an error where one is missing or not `passed`."""
    pairs = [(model, precision) for model in MODELS for precision in PRECISIONS]
    pairs = [*pairs, ("alexnet", "fp16"), (WIDE, "bf16")]
    every, calls = [], []
    for model, precision in pairs:
        known = questions(model, precision, options.workers, options.threads)
        asked = {name: known[name] for one in options.only.split(",") for name in fnmatch.filter(known, one)}
        if asked:
            every += asked
            calls.append((prove_all, (model, asked, options)))
    if not calls:
        sys.exit(f"--only {options.only!r} matches no climb; names are as in bf16-alexnet-torch-graph-cuda-memory")
    climbs = options.out / "climbs"
    climbs.mkdir(parents=True, exist_ok=True)
    for name in every:  # a verdict of an earlier call is none of this one
        (climbs / f"{name}.json").unlink(missing_ok=True)
    at_once(options.pairs, calls)
    lacking = [name for name in every if not (climbs / f"{name}.json").exists()]
    found = [json.loads((climbs / f"{name}.json").read_text()) for name in every if name not in lacking]
    say(f"{sum(one['status'] == 'passed' for one in found)} of {len(every)} passed; no verdict: {lacking or 'none'}")
    sys.exit(any(one["status"] != "passed" for one in found) or bool(lacking))


def prove_all(model, asked, options):
    """All climbs of a network in a precision: their reference is made once, and a fork for each of them has it."""
    gpus = options.gpus.split(",")
    with tempfile.TemporaryDirectory() as folder:
        frameworks = {name for name, _ in asked.values()}
        devices = {config.device for _, config in asked.values()}
        where = Where(python=options.python)
        ready = {on: {name: where.environment(name, say, on) for name in frameworks} for on in devices}
        framework, config = next(iter(asked.values()))
        checker = ParityChecker(Path(folder), ready[config.device])
        checker._answers(checker._subject(framework, model, config, None))
        calls = []
        for number, (name, (framework, config)) in enumerate(asked.items()):
            gpu = gpus[number % len(gpus)]
            calls.append((prove_one, (name, framework, model, config, checker, ready[config.device], gpu, options.out)))
        at_once(options.processes, calls)


def prove_one(name, framework, model, config, checker, ready, gpu, out):
    """A climb in a fork, with a folder of its own."""
    own = checker.folder / name
    shutil.copytree(checker.folder / "reference", own / "reference", copy_function=os.link)
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    checker.folder, checker.ready = own, ready
    found = checker.parity(framework, model, config).to_dict()
    told = {field: getattr(config, field) for field in ("device", "pipeline", "loader_workers")}
    half = out / "climbs" / f".{name}"
    half.write_text(json.dumps({**found, **told, "ladder": cache.ladder_checksum()[:12]}, indent=1) + "\n")
    half.replace(out / "climbs" / f"{name}.json")
    failed = [level["where"] for level in found["levels"] if level["asked"] and not level["passed"]]
    say(" ".join([name, found["status"], str(found["seconds"]), *failed]))


def at_once(count, calls):
    """Each call in a fork, so many at a time; one that ends in an error has told it, and holds up no other."""
    fork = multiprocessing.get_context("fork")
    running = []
    for target, arguments in calls:
        while len(running) >= count:
            multiprocessing.connection.wait([process.sentinel for process in running])
            running = [process for process in running if process.is_alive()]
        running.append(fork.Process(target=target, args=arguments))
        running[-1].start()
    for process in running:
        process.join()


def run(options):
    """Every job on the next GPU that is free, in a process that sees that GPU and its share of the cores only."""
    known = scripts(options)
    matching = (fnmatch.filter([*jobs(), *known], pattern) for pattern in options.only.split(","))
    names = list(dict.fromkeys(itertools.chain.from_iterable(matching)))
    alone = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in ALONE)]
    end = time.monotonic() + options.until
    gpus = options.gpus.split(",")
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // len(gpus)

    def serve(number, gpu, waiting):
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
    serve(0, gpus[0], queue_of(alone))
    others = queue_of(name for name in names if name not in alone)
    threads = [threading.Thread(target=serve, args=(number, gpu, others)) for number, gpu in enumerate(gpus)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def queue_of(names):
    waiting = queue.Queue()
    for name in names:
        waiting.put(name)
    return waiting


def run_one(options):
    study = jobs()[options.only]
    many = options.only.startswith(("scaling", "pictures", "wide"))
    threads = len(os.sched_getaffinity(0))
    result = compare(
        study.pop("frameworks"), study.pop("models"), study.pop("device", "cuda"), out=options.out / options.only,
        dataset=str(options.out / "many") if many else options.data, python=options.python, threads=threads,
        loader_workers=threads, timeout_s=300, repeats=1, **study,
    )  # fmt: skip
    print(result)


def link_pictures(folder, to):
    """A folder with every image LINKS times."""
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
    parser.add_argument("--data", help="folder of images")
    parser.add_argument("--python", action="append", default=[], help="FRAMEWORK=PATH")
    parser.add_argument("--only", default="*", help="patterns of names, with commas between")
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--record", default="", help="what `tables` calls these studies: the day of the first of them")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no study is begun")
    parser.add_argument("--workers", type=int, default=16, help="of the native pipeline that verify asks about")
    parser.add_argument("--pairs", type=int, default=1, help="of network and precision that verify asks about at once")
    parser.add_argument("--processes", type=int, default=4, help="of verify for each of these")
    parser.add_argument("--threads", type=int, default=4, help="of a worker of verify")
    options = parser.parse_args()
    options.python = dict(pair.split("=", 1) for pair in options.python)
    if options.part == "tables":
        gpu_tables.write(options.out, options.to, options.record)
    else:
        {"verify": prove, "run": run, "one": run_one}[options.part](options)


if __name__ == "__main__":
    main()

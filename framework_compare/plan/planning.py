"""From a user's request to the cells of a study: names checked, images read, settings made explicit."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from framework_compare import registry
from framework_compare.datasets import arrays, fire_smoke
from framework_compare.datasets.arrays import ArrayData
from framework_compare.datasets.folder import FolderIndex
from framework_compare.datasets.resolve import resolve
from framework_compare.errors import UnknownNameError, UsageError
from framework_compare.graph import Graph, Task
from framework_compare.plan import searches
from framework_compare.plan.settings import DEFAULTS, SETTINGS, column, fields
from framework_compare.protocol import TrainConfig, devices_of, replicas_of, where
from framework_compare.records import Cell
from framework_compare.samplers.host import available_cores

Names = Union[str, Sequence[str]]
DataSets = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
CountProgress = Callable[[str, int, int], None]
OWN = "(the model's own)"  # in place of data sets
PICTURES = "fire-smoke-small"  # what networks for images are trained on unless another data set is asked for
OF_PICTURES = ("num_classes", "flip", "crop")  # settings that arrays have no use for
BY_ARRAYS = (*OF_PICTURES, "loss", "image_size", "loader_workers")  # settings that arrays decide


@dataclasses.dataclass(frozen=True)
class Plan:
    """All cells of a study, the images of its data sets by name, and its data sets that are arrays."""

    cells: Tuple[Cell, ...]
    datasets: Dict[str, FolderIndex]
    arrays: Dict[str, ArrayData] = dataclasses.field(default_factory=dict)


def plan(
    frameworks: Names,
    models: Names,
    devices: Names,
    datasets: DataSets,
    settings: Mapping[str, Any],
    *,
    limit: Optional[int] = None,
    classes: Optional[Sequence[str]] = None,
    on_bad_image: str = "fail",
    progress: Optional[CountProgress] = None,
    make: bool = True,
    devices_each: Union[None, int, Sequence[int]] = None,
) -> Plan:
    """The product of all that was listed, models outermost; raises UsageError before anything is written.

    settings are those of SETTINGS, by their columns or fields; most may be lists. datasets OWN is what each model is for.
    Without `make` a rendered data set that is not there is not made, only counted.
    devices_each: numbers of devices of each kind named, as `on_several` has them.
    """
    settings = fields(settings)
    names = [find_all("framework", registry.FRAMEWORKS, frameworks), find_models(models)]
    devices = [check_device(device) for device in on_several(_listed("device", devices), devices_each)]
    _check_unique("device", ["cuda" if device == "cuda:0" else device for device in devices])  # one GPU under two names
    workloads = [name for name in names[1] if name in registry.WORKLOADS]
    if not workloads:
        datasets = PICTURES if datasets == OWN else datasets
        return _plan_pictures(names, devices, datasets, settings, limit, classes, on_bad_image, progress, make)
    if len(workloads) < len(names[1]):
        raise UsageError(
            f"{workloads[0]} has data of its own, unlike the other models; compare it in a call of its own"
        )
    if classes is not None:
        raise UsageError(f"{workloads[0]} takes no classes; they are for folders of images")
    return _plan_workloads(names[0], workloads, devices, datasets, settings, limit)


def _plan_pictures(
    names: Sequence[Sequence[str]],
    devices: Sequence[str],
    datasets: DataSets,
    settings: Mapping[str, Any],
    limit: Optional[int],
    classes: Optional[Sequence[str]],
    on_bad_image: str,
    progress: Optional[CountProgress],
    make: bool,
) -> Plan:
    configs = expand_configs(settings, replicas=_most_replicas(devices))
    check_of_sgd(settings, configs)
    for config in configs:
        _check_of_pictures(config)
    read = _read_datasets(datasets, limit, classes, on_bad_image, configs[0].seed, progress, make)
    cells = []
    for model, (name, index), config, device, framework in itertools.product(
        names[1], read.items(), configs, devices, names[0]
    ):
        config = dataclasses.replace(config, device=device, num_classes=len(index.pictures.classes))
        _check_replicas(config, len(index.pictures))
        check_growth(model, config)
        build_graph(model, config)
        cells.append(Cell(framework, model, name, device, config))
    return Plan(tuple(cells), read)


def _plan_workloads(
    frameworks: Sequence[str],
    models: Sequence[str],
    devices: Sequence[str],
    datasets: DataSets,
    settings: Mapping[str, Any],
    limit: Optional[int],
) -> Plan:
    _check_of_arrays(models[0], settings)
    settings, image_size = dict(settings), settings.get("image_size")
    settings.pop("image_size", None)
    read: Dict[str, ArrayData] = {}
    cells = []
    for model in models:
        configs = expand_configs({**registry.WORKLOADS[model].settings, **settings}, replicas=_most_replicas(devices))
        check_of_sgd(settings, configs)
        if searches.is_search(model):
            searches.check(model, settings, [_fed_by_us(config) for config in configs], limit)
            for device in devices:
                searches.check_device(model, device)
        for name, data in _read_arrays(model, datasets, image_size, limit).items():
            if read.setdefault(name, data) is not data and data.checksum() != read[name].checksum():
                raise UsageError(f"two data sets are called {name!r}; compare them in calls of their own")
            if "loss" in settings:
                _check_loss(name, data.task.loss, configs)
            graph = build_graph(model, configs[0], data.task)
            for config, device, framework in itertools.product(configs, devices, frameworks):
                config = _for_arrays(config, device, graph)
                _check_replicas(config, len(data.train))
                check_growth(model, config)
                cells.append(Cell(framework, model, name, device, config))
    return Plan(tuple(dict.fromkeys(cells)), {}, read)


def _for_arrays(config: TrainConfig, device: str, graph: Graph) -> TrainConfig:
    """A config with what the data decide: one loader serves all frameworks, and nothing runs beside the trainer."""
    return dataclasses.replace(
        config,
        device=device,
        loss=graph.task.loss,
        num_classes=graph.num_classes,
        image_size=graph.image_size,
        flip="none",
        crop="none",
        loader_workers=0,
        pipeline=_fed_by_us(config).pipeline,
    )


def _fed_by_us(config: TrainConfig) -> TrainConfig:
    """Arrays have one loader for all frameworks, or one batch that stays where it is."""
    return dataclasses.replace(config, pipeline="memory" if config.pipeline == "memory" else "shared")


def check_changed(cell: Cell, changes: Mapping[str, Any], of: Plan) -> None:
    """UsageError for a cell of a plan whose settings were changed, where a plan of these settings would refuse them."""
    config, data = cell.config, of.arrays.get(cell.dataset)
    check_device(config.device)
    if data is None:
        _check_of_pictures(config)
    else:
        _check_of_arrays(cell.model, changes)
        _check_loss(cell.dataset, data.task.loss, [config])
        if searches.is_search(cell.model):
            searches.check(cell.model, changes, [config], None)
            searches.check_device(cell.model, config.device)
    _check_patience(config)
    _check_replicas(config, len(of.datasets[cell.dataset].pictures if data is None else data.train))
    check_growth(cell.model, config)


def check_of_sgd(given: Mapping[str, Any], configs: Iterable[TrainConfig]) -> None:
    """UsageError where a setting of SGD is given and none of the cells has that optimizer."""
    optimizers = dict.fromkeys(config.optimizer for config in configs)
    for name in ("momentum", "weight_decay"):
        if name in given and "sgd" not in optimizers:
            others = ", ".join(optimizers)
            raise UsageError(
                f"{name} is {given[name]!r}; only sgd uses it, and the optimizer is {others}: leave it out"
            )


def _check_of_pictures(config: TrainConfig) -> None:
    _check_loss("images", "cross_entropy", [config])
    if config.patience:
        raise UsageError(f"patience is {config.patience}; folders of images have no validation split to watch")


def _check_of_arrays(model: str, settings: Mapping[str, Any]) -> None:
    for name in OF_PICTURES:
        if name in settings:
            raise UsageError(f"{name} is {settings[name]!r}; {model} has no use for it, its data are arrays")


def _check_loss(what: str, loss: str, configs: Iterable[TrainConfig]) -> None:
    for config in configs:
        if config.loss != loss:
            raise UsageError(f"loss_function is {config.loss!r}; {what} are for {loss!r}")


def _read_arrays(
    model: str, datasets: DataSets, image_size: Optional[int], limit: Optional[int]
) -> Dict[str, ArrayData]:
    """A workload's data: generated, or read from the files that are named in place of a data set."""
    workload = registry.WORKLOADS[model]
    own, options = workload.dataset, dict(workload.options)
    if image_size is not None:
        if "image_size" not in arrays.options_of(own):
            raise UsageError(f"image_size is {image_size!r}; {model} has no use for it, its data have one size")
        check_count("image_size", image_size, 1)
        options["image_size"] = image_size
    listed = [own] if datasets == OWN else _listed("data set", datasets)
    found = [_generated(own, **options) if name == own else _from_file(own, name, options) for name in listed]
    if limit is not None:
        check_count("limit", limit, 1, ", or None for all samples")
        found = [data.limited(limit) for data in found]
    read = {data.name: data for data in found}
    if len(read) < len(found):
        raise UsageError(f"two data sets are called {found[0].name!r}; compare them in calls of their own")
    return read


@functools.lru_cache(maxsize=8)
def _generated(dataset: str, **options: Any) -> ArrayData:
    return dataclasses.replace(arrays.load(dataset, **options), name="-".join([dataset, *map(str, options.values())]))


@functools.lru_cache(maxsize=None)
def _generated_task(dataset: str, **options: Any) -> Task:
    """Kept when the arrays, which are large and take seconds, no longer are."""
    return _generated(dataset, **options).task


def _from_file(dataset: str, path: Any, options: Mapping[str, Any]) -> ArrayData:
    """A data set from a user's file or folder, under the file's name."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"data set is {path!r}; allowed: {dataset!r}, or the path of a file or a folder with its data")
    return dataclasses.replace(arrays.load(dataset, path, **options), name=Path(path).stem)


def is_workload(model: str) -> bool:
    """Whether a model brings a data set of its own, which is arrays."""
    return model in registry.WORKLOADS


def find_models(models: Names) -> List[str]:
    """Names of networks for images and of workloads, aliases resolved."""
    return find_all("model", {**registry.MODELS, **registry.WORKLOADS}, models)


def find_all(kind: str, table: Mapping[str, Any], wanted: Names) -> List[str]:
    """Registry names of a user's list, aliases resolved; UsageError for a name given twice."""
    keys = []
    for name in _listed(kind, wanted):
        entry = registry.find(kind, table, name)
        keys.append(next(key for key, value in table.items() if value is entry))
    _check_unique(kind, keys)
    return keys


def _listed(kind: str, wanted: Any) -> List[Any]:
    if not isinstance(wanted, (str, os.PathLike, Iterable)):
        raise UsageError(f"{kind} is {wanted!r}; allowed: a name or a list of names")
    listed = [wanted] if isinstance(wanted, (str, os.PathLike)) else list(wanted)
    if not listed:
        raise UsageError(f"no {kind} is given; at least one is needed")
    return listed


def _check_unique(kind: str, names: Iterable[Any]) -> None:
    names = list(names)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"{kind} {twice[0]!r} is given twice")


def check_device(device: object) -> str:
    """A device name as given; UnknownNameError, or UsageError where it names a device twice."""
    check_setting("device", device)
    kind, _, numbers = str(device).partition(":")
    listed = numbers.split(",")
    _check_unique("device", [f"{kind}:{number}" for number in listed])
    if kind == "cpu" and numbers and listed != [str(number) for number in range(len(listed))]:
        raise UsageError(f"device is {device!r}; allowed: cpu:{','.join(map(str, range(len(listed))))}")
    return str(device)


def on_several(devices: Iterable[Any], counts: Union[None, int, Sequence[int]]) -> List[Any]:
    """The devices, or where counts are given, of each as many from its number on: "cuda:0,1" of "cuda" and 2."""
    if counts is None:
        return list(devices)
    listed = [counts] if isinstance(counts, int) else list(counts)
    if not listed:
        raise UsageError("devices has no number; at least one is needed")
    for count in listed:
        check_count("devices", count, 1)
    _check_unique("devices", listed)
    return [_several(check_device(device), count) for device in devices for count in listed]


def _several(device: str, count: int) -> str:
    kind, _, number = device.partition(":")
    if "," in number:
        raise UsageError(f"devices is {count} and device {device!r} names several; give one of the two")
    first = int(number or 0)
    return device if count == 1 else f"{kind}:{','.join(str(first + n) for n in range(count))}"


def _most_replicas(devices: Iterable[str]) -> int:
    return max(len(devices_of(device)) for device in devices)


def _check_replicas(config: TrainConfig, samples: int) -> None:
    """UsageError for what a cell on several devices cannot be asked."""
    replicas = len(replicas_of(config))
    if replicas == 1:
        return
    if config.patience:
        raise UsageError(f"patience is {config.patience} on {where(config)}; allowed on several devices: 0")
    if config.mode != "train":
        raise UsageError(f"mode is {config.mode!r} on {where(config)}; allowed on several devices: 'train'")
    if samples < replicas:
        raise UsageError(f"{samples} samples are too few for {replicas} devices; each needs one of a step at least")


def check_growth(model: str, config: TrainConfig) -> None:
    """UsageError for growing batches where batches cannot grow."""
    if config.batch_growth == 1:
        return
    given = f"batch_growth is {config.batch_growth:g}"
    if not is_workload(model):
        raise UsageError(f"{given}; allowed for {model}, whose images are read from a folder: 1")
    if config.mode != "train":
        raise UsageError(f"{given}; allowed in mode {config.mode!r}: 1")
    if len(replicas_of(config)) > 1:
        raise UsageError(f"{given} on {where(config)}; allowed on several devices: 1")
    if config.batch_size > config.batch_size_limit:
        raise UsageError(
            f"{given} with batch_size {config.batch_size}; allowed up to batch_size_limit, {config.batch_size_limit}"
        )


def expand_configs(settings: Mapping[str, Any], replicas: int = 1) -> List[TrainConfig]:
    """One TrainConfig for each combination of the settings that are lists.

    threads None is all cores there are, shared out among as many replicas.
    """
    settings = fields(settings)
    for name in settings:
        if name not in SETTINGS:
            raise UnknownNameError("setting", name, sorted(map(column, SETTINGS)))
    cores = {name: max(1, available_cores() // replicas) for name, setting in SETTINGS.items() if setting.all_cores}
    settings = {**settings, **{name: cores[name] for name in cores if settings.get(name) is None}}
    axes = {name: _axis(name, value) for name, value in settings.items()}
    configs = [TrainConfig(**dict(zip(axes, values))) for values in itertools.product(*axes.values())]
    for config in configs:
        check_config(config)
        _check_patience(config)
    return configs


def _check_patience(config: TrainConfig) -> None:
    if config.patience and config.mode != "train":
        raise UsageError(f"patience is {config.patience}; mode {config.mode!r} trains nothing that could stop early")


def _axis(name: str, value: Any) -> List[Any]:
    if not isinstance(value, (list, tuple)):
        return [value]
    if not SETTINGS[name].may_be_list:
        raise UsageError(f"{name} is {value!r}; allowed: one value, not a list")
    if not value:
        raise UsageError(f"{name} is an empty list; at least one value is needed")
    _check_unique(name, value)
    return list(value)


def check_config(config: TrainConfig) -> None:
    """UsageError for the first field whose value is not allowed."""
    for name in SETTINGS:
        check_setting(name, getattr(config, name))


def check_setting(name: str, value: Any) -> None:
    """UsageError for a value that a setting may not have."""
    setting = SETTINGS[name]
    if setting.choices:
        if not setting.chooses(value):
            raise UnknownNameError(column(name), value, setting.choices)
    elif isinstance(getattr(DEFAULTS, name), int):
        check_count(name, value, int(setting.least), most=setting.below - 1)
    else:
        _check_number(name, value, low=setting.least, high=setting.below)


def check_count(name: str, value: Any, least: int, otherwise: str = "", most: float = math.inf) -> None:
    """UsageError unless `value` is a whole number of at least `least`; `otherwise` names what else is allowed."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        bound = "" if most == math.inf else f" and at most {most:.0f}"
        raise UsageError(f"{name} is {value!r}; allowed: a whole number of at least {least}{bound}{otherwise}")


def _check_number(name: str, value: Any, *, low: float, high: float) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value < high:
        bound = "" if high == math.inf else f" and less than {high:g}"
        raise UsageError(f"{name} is {value!r}; allowed: a finite number of at least {low:g}{bound}")


def _read_datasets(
    datasets: DataSets,
    limit: Optional[int],
    classes: Optional[Sequence[str]],
    on_bad_image: str,
    seed: int,
    progress: Optional[CountProgress],
    make: bool,
) -> Dict[str, FolderIndex]:
    if limit is not None:
        check_count("limit", limit, 1, ", or None for all images")
    read: Dict[str, FolderIndex] = {}
    for dataset in _listed("data set", datasets):
        if not isinstance(dataset, (str, os.PathLike)):
            raise UsageError(f"data set is {dataset!r}; allowed: a name that `list` shows, or the path of a folder")
        tell = _counter(progress, f"images of {Path(dataset).name}")
        reading: Dict[str, Any] = {"limit": limit, "seed": seed, "on_bad_image": on_bad_image, "make": make}
        index = resolve(dataset, classes=classes, progress=tell, **reading)
        if index.name in read:
            raise UsageError(f"two data sets are called {index.name!r}; rename the folder of one")
        read[index.name] = index
    return read


def make_datasets(plan: Plan, progress: Optional[CountProgress] = None) -> None:
    """Render the data sets of a plan that are not there yet."""
    for name, index in plan.datasets.items():
        missing = fire_smoke.unmade(name)
        if missing and set(index.pictures.paths) <= set(missing.paths):  # not a folder of the user's of that name
            registry.load(registry.DATASETS[name])(_counter(progress, f"images of {name}"))


def _counter(progress: Optional[CountProgress], what: str) -> Optional[Callable[[int, int], None]]:
    return None if progress is None else lambda done, total: progress(what, done, total)


def build_graph(model: str, config: TrainConfig, task: Optional[Task] = None) -> Graph:
    """The layer graph of a registered model for a config's classes and image size; UsageError where it cannot be.

    A workload's is for a task, by default that of its generated data.
    """
    if model in registry.WORKLOADS:
        workload = registry.WORKLOADS[model]
        task = task or _generated_task(workload.dataset, **workload.options)
        return _built(registry.load(workload.model), task, **workload.size)
    found = registry.find("model", registry.MODELS, model)
    wanted = {"num_classes": config.num_classes, "image_size": config.image_size}
    return _built(registry.load(found), **wanted) if isinstance(found, str) else found(**wanted)


@functools.lru_cache(maxsize=256)
def _built(build: Callable[..., Graph], *task: Task, **sizes: Any) -> Graph:
    """A graph, built once: planning, forecasts and every run of a cell ask for it."""
    return build(*task, **sizes)


def check_graphs(models: Iterable[str], configs: Iterable[TrainConfig]) -> None:
    """UsageError for the first of registered models that cannot be built for one of the configs."""
    for model, config in itertools.product(models, configs):
        build_graph(model, config)

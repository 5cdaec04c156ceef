"""From a user's request to the cells of a study: names checked, data read, settings made explicit."""

import dataclasses
import functools
import itertools
import math
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

from framework_compare import registry
from framework_compare.datasets import arrays
from framework_compare.datasets.dataset import Dataset
from framework_compare.datasets.folder import ON_BAD_IMAGE
from framework_compare.datasets.own import OwnData
from framework_compare.errors import MOST, UnknownNameError, UsageError, check_count, check_name
from framework_compare.graph import OPTIMIZERS, Graph, Task, generation
from framework_compare.graph.imported_model import ImportedModel
from framework_compare.plan import data_of_models, searches
from framework_compare.plan.competitors import find_frameworks
from framework_compare.plan.data_of_models import CountProgress, DataSets, Place, counter, of_own
from framework_compare.plan.settings import DEFAULTS, OF_IMAGES, SETTINGS, check_number, column, fields
from framework_compare.plan.values import check_unique, listed
from framework_compare.protocol import Document, TrainConfig, devices_of, replicas_of, where
from framework_compare.records import Cell
from framework_compare.samplers.host import available_cores

Names = Union[str, Sequence[str]]
Model = Union[Place, Graph, Callable[..., object]]  # the last: an nn.Module or a keras.Model
Models = Union[Model, Iterable[Model]]
# No study ends with more; a slip of the hand is refused before it fills memory, or is forecast in millions of years.
MOST_CELLS, MOST_SAMPLES = 10**5, 10**9  # of cells; of samples that a data set is cut to


@dataclasses.dataclass(frozen=True)
class Plan:
    """All cells of a study, and its data sets by name."""

    cells: tuple[Cell, ...]
    datasets: Mapping[str, Dataset]


def plan(
    frameworks: Names,
    models: Names,
    device: Names,
    dataset: DataSets | None,
    settings: Document,
    *,
    limit: int | None = None,
    classes: Sequence[str] | None = None,
    on_bad_image: str = "fail",
    progress: CountProgress | None = None,
    make: bool = True,
    devices: None | int | Sequence[int] = None,
) -> Plan:
    """The product of all that was listed, models outermost; raises UsageError before anything is written.

    settings are those of SETTINGS, by their columns or fields; most may be lists. Each model takes those that it has a use
    for, and those of the data sets that it can read; by default the one that it is for.
    Without `make` a rendered data set that is not there is not made, only counted.
    devices: numbers of devices of each kind named, as `on_several` has them.
    """
    settings = fields(settings)
    frameworks, models = find_frameworks(frameworks), find_models(models)
    places = [check_device(one) for one in on_several(listed("device", device), devices)]
    check_unique("device", ["cuda" if place == "cuda:0" else place for place in places])  # one GPU under two names
    _check_useful(models, settings if classes is None else {**settings, "classes": classes})
    if limit is not None:
        check_count("limit", limit, 1, MOST_SAMPLES, ", or None for all samples")
    check_name("on_bad_image", on_bad_image, ON_BAD_IMAGE)
    replicas = max(len(devices_of(place)) for place in places)
    configs = {m: expand_configs({**registry.MODELS[m].settings, **settings}, replicas) for m in models}
    _check_cells(sum(map(len, configs.values())) * len(places) * len(frameworks))
    for model in models:
        check_of_sgd(settings, configs[model])
        _check_new_tokens(settings, configs[model])
    chosen = data_of_models.by_model(models, dataset)
    images = {"classes": classes, "limit": limit, "on_bad_image": on_bad_image, "make": make}
    read: Callable[..., Dataset] = functools.cache(
        functools.partial(data_of_models.read, limit=limit, images=images, progress=progress)
    )
    cells: dict[Cell, None] = {}
    known: dict[str, Dataset] = {}
    for model in models:
        found = [
            of_own(one, model, limit)
            if isinstance(one, OwnData)
            else read(one, *_reader(model, settings), configs[model][0].seed)
            for one in chosen[model]
        ]
        for data in found:
            if known.setdefault(data.name, data) is not data or found.count(data) > 1:
                raise UsageError(f"two data sets are called {data.name!r}; rename one, or compare them in two calls")
            if "loss" in settings:
                _check_loss(data, configs[model])
            for config, place, framework in itertools.product(configs[model], places, frameworks):
                config = data.configured(dataclasses.replace(config, device=place))
                _check_cell(model, data, config, settings, limit)
                build_graph(model, config, data.task)
                cells[Cell(framework, model, data.name, place, config)] = None
    return Plan(tuple(cells), known)


def check_changed(cell: Cell, changes: Mapping[str, object], of: Plan) -> None:
    """UsageError for a cell of a plan whose settings were changed, where a plan of these settings would refuse them."""
    config, data = cell.config, of.datasets[cell.dataset]
    check_device(config.device)
    _check_useful([cell.model], changes)
    _check_loss(data, [config])
    _check_patience(config)
    _check_cell(cell.model, data, config, changes)


def check_of_sgd(given: Mapping[str, object], configs: Iterable[TrainConfig]) -> None:
    """UsageError where an optimizer's own setting is given and none of the cells has such an optimizer."""
    optimizers = dict.fromkeys(config.optimizer for config in configs)
    for name in ("momentum", "weight_decay"):
        users = [optimizer for optimizer, options in OPTIMIZERS.items() if name in options]
        if name in given and not optimizers.keys() & users:
            others, verb = ", ".join(optimizers), "uses" if len(users) == 1 else "use"
            raise UsageError(
                f"{name} is {given[name]!r}; only {' and '.join(users)} {verb} it, but the optimizer is {others}:"
                " leave it out"
            )


def _check_new_tokens(given: Mapping[str, object], configs: Iterable[TrainConfig]) -> None:
    """UsageError where a number of new tokens is given and no cell generates any."""
    if "new_tokens" in given and not any(config.mode == "generation" for config in configs):
        raise UsageError(f"new_tokens is {given['new_tokens']!r}; only mode 'generation' uses it: leave it out")


def _check_useful(models: Sequence[str], given: Mapping[str, object]) -> None:
    """UsageError for a setting that is given and that none of the models has a use for."""
    if not all(map(registry.of_arrays, models)):
        return
    for name in (*OF_IMAGES, "classes"):
        if name in given:
            raise UsageError(f"{name} is {given[name]!r}; {models[0]} does not use it: its data are arrays")
    if "image_size" in given and not any(map(_takes_size, models)):
        size = given["image_size"]
        raise UsageError(f"image_size is {size!r}; {models[0]} does not use it: its data have one size")


def _reader(model: str, settings: Document) -> tuple[str, tuple[tuple[str, object], ...]]:
    """The data set of the registry as which a workload reads its data, and the options of that; "" for images."""
    entry = registry.MODELS[model]
    if not entry.of_arrays or entry.dataset == registry.OWN:
        return "", ()
    size = {}
    if "image_size" in settings and _takes_size(model):
        check_setting("image_size", settings["image_size"])
        size = {"image_size": settings["image_size"]}
    return entry.dataset, tuple({**entry.options, **size}.items())


def _takes_size(model: str) -> bool:
    dataset = registry.MODELS[model].dataset
    return dataset != registry.OWN and "image_size" in arrays.options_of(dataset)


def _check_loss(data: Dataset, configs: Iterable[TrainConfig]) -> None:
    loss = data.task.loss if data.task else DEFAULTS.loss
    for config in configs:
        if config.loss != loss:
            raise UsageError(f"loss_function is {config.loss!r}; {data.name} is for {loss!r}")


def _check_cell(
    model: str, data: Dataset, config: TrainConfig, given: Mapping[str, object], limit: int | None = None
) -> None:
    """UsageError for a cell that its model, data set or devices rule out; given: the settings that the user named."""
    if searches.is_search(model):
        searches.check(model, given, config, limit)
    if config.patience and data.task is None:
        raise UsageError(f"patience is {config.patience}; folders of images have no validation split to watch")
    _check_replicas(config, len(data))
    _check_growth(model, config)


def find_models(models: Names) -> list[str]:
    """Names of registered models, aliases resolved."""
    return find_all("model", registry.MODELS, models)


def find_all(kind: str, table: Mapping[str, object], wanted: Names) -> list[str]:
    """Registry names of a user's list, aliases resolved; UsageError for a name given twice."""
    keys = [registry.find_name(kind, table, name) for name in listed(kind, wanted)]
    check_unique(kind, keys)
    return keys


def check_device(device: object) -> str:
    """A device name as given; UnknownNameError, or UsageError where it names a device twice."""
    check_setting("device", device)
    kind, _, numbers = str(device).partition(":")
    listed = numbers.split(",")
    check_unique("device", [f"{kind}:{number}" for number in listed])
    if kind == "cpu" and numbers and listed != [str(number) for number in range(len(listed))]:
        raise UsageError(f"device is {device!r}; allowed: cpu:{','.join(map(str, range(len(listed))))}")
    return str(device)


def on_several(devices: Iterable[str], counts: None | int | Sequence[int]) -> list[str]:
    """The devices, or where counts are given, of each as many from its number on: "cuda:0,1" of "cuda" and 2."""
    if counts is None:
        return list(devices)
    listed = [counts] if isinstance(counts, int) else list(counts)
    if not listed:
        raise UsageError("devices is an empty list; at least one number is needed")
    for count in listed:
        check_count("devices", count)
    check_unique("devices", listed)
    return [_several(check_device(device), count) for device in devices for count in listed]


def _several(device: str, count: int) -> str:
    kind, _, number = device.partition(":")
    if "," in number:
        raise UsageError(f"devices is {count} and device {device!r} names several; give one of the two")
    first = int(number or 0)
    return device if count == 1 else f"{kind}:{','.join(str(first + n) for n in range(count))}"


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
        raise UsageError(
            f"{samples} samples are too few for {replicas} devices; each step needs at least one per device"
        )


def _check_growth(model: str, config: TrainConfig) -> None:
    """UsageError for growing batches where batches cannot grow."""
    if config.batch_growth == 1:
        return
    given = f"batch_growth is {config.batch_growth:g}"
    if not registry.of_arrays(model):
        raise UsageError(f"{given}; allowed for {model}, whose images are read from a folder: 1")
    if config.mode != "train":
        raise UsageError(f"{given}; allowed in mode {config.mode!r}: 1")
    if len(replicas_of(config)) > 1:
        raise UsageError(f"{given} on {where(config)}; allowed on several devices: 1")
    if config.batch_size > config.batch_size_limit:
        raise UsageError(
            f"{given} with batch_size {config.batch_size}; allowed up to batch_size_limit, {config.batch_size_limit}"
        )


def expand_configs(settings: Document, replicas: int = 1) -> list[TrainConfig]:
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
    _check_cells(math.prod(map(len, axes.values())))
    configs = [TrainConfig(**dict(zip(axes, values))) for values in itertools.product(*axes.values())]
    for config in configs:
        check_config(config)
        _check_patience(config)
    return configs


def _check_cells(count: int) -> None:
    if count > MOST_CELLS:
        raise UsageError(f"this makes {count:,} cells; allowed: at most {MOST_CELLS:,}; compare fewer values at a time")


def _check_patience(config: TrainConfig) -> None:
    if config.patience and config.mode != "train":
        raise UsageError(f"patience is {config.patience}; mode {config.mode!r} trains nothing that could stop early")


def _axis(name: str, value: object) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        return [value]
    if not SETTINGS[name].may_be_list:
        raise UsageError(f"{name} is {value!r}; allowed: one value, not a list")
    if not value:
        raise UsageError(f"{name} is an empty list; at least one value is needed")
    check_unique(name, value)
    return list(value)


def check_config(config: TrainConfig) -> None:
    """UsageError for the first field whose value is not allowed."""
    for name in SETTINGS:
        check_setting(name, getattr(config, name))


def check_setting(name: str, value: object) -> None:
    """UsageError for a value that a setting may not have."""
    setting = SETTINGS[name]
    if setting.choices:
        if not setting.chooses(value):
            raise UnknownNameError(column(name), value, setting.choices)
    elif isinstance(getattr(DEFAULTS, name), int):
        check_count(name, value, int(setting.least), MOST if setting.below == math.inf else setting.below - 1)
    else:
        check_number(name, value, low=setting.least, high=setting.below)


def make_datasets(plan: Plan, progress: CountProgress | None = None) -> None:
    """Render the data sets of a plan that are not there yet."""
    for name, data in plan.datasets.items():
        if data.bytes_to_make:
            registry.load(registry.DATASETS[name].make)(counter(progress, f"images of {name}"))


def build_graph(model: str, config: TrainConfig, task: Task | None = None) -> Graph:
    """The layer graph of a registered model for a config's classes and image size; UsageError where it cannot be.

    A workload's is for a task, by default that of its generated data. Labels are smoothed as the config says.
    """
    graph = _plain_graph(model, config, task)
    if config.mode == "generation" and (why := generation.refusal(graph, config.new_tokens)):
        raise UsageError(f"mode is 'generation'; {model} {why}")
    if not config.label_smoothing:
        return graph
    return dataclasses.replace(graph, task=dataclasses.replace(graph.task, smoothing=config.label_smoothing))


def _plain_graph(model: str, config: TrainConfig, task: Task | None) -> Graph:
    entry = registry.find("model", registry.MODELS, model)
    if isinstance(entry.build, ImportedModel) and entry.build.of_arrays:
        return entry.build.for_task(task) if task else entry.build()
    if entry.of_arrays:
        return _built(
            registry.load(entry.build),
            task or data_of_models.generated_task(entry.dataset, **entry.options),
            **entry.size,
        )
    wanted = {"num_classes": config.num_classes, "image_size": config.image_size}
    return _built(registry.load(entry.build), **wanted) if isinstance(entry.build, str) else entry.build(**wanted)


@functools.lru_cache(maxsize=256)
def _built(build: Callable[..., Graph], *task: Task, **sizes: object) -> Graph:
    """A graph, built once: planning, forecasts and every run of a cell ask for it."""
    return build(*task, **sizes)

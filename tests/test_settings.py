"""One home for a setting: SETTINGS has every field of TrainConfig, and all that names settings reads it."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from framework_compare.cli import options
from framework_compare.errors import UsageError
from framework_compare.parity import cache
from framework_compare.plan import planning
from framework_compare.plan.settings import DEFAULTS, OF_DATASET, SETTINGS, column, of_role
from framework_compare.protocol import TrainConfig
from framework_compare.records import Cell
from framework_compare.registry import MODELS
from framework_compare.report import table_notes
from framework_compare.results import columns
from framework_compare.results.parity import verdict_key
from framework_compare.study.progress import described
from framework_compare.study.request import FIELDS, CompareOptions

DOCS = Path(__file__).parent.parent / "docs" / "running.md"


def missing(config: type) -> "set[str]":
    """Fields of a TrainConfig that are no Setting, and Settings that are no field."""
    return {field.name for field in dataclasses.fields(config)} ^ set(SETTINGS)


def test_every_field_of_the_train_config_is_a_setting_and_a_keyword_with_a_type():
    assert not missing(TrainConfig)
    options = CompareOptions.__annotations__
    assert {*options} == {*map(column, SETTINGS), *FIELDS} - {"frameworks", "models", "device", "dataset"}
    more = dataclasses.make_dataclass("More", [("warmth", int, 3)], bases=(TrainConfig,), frozen=True)
    assert missing(more) == {"warmth"}
    planning.check_config(DEFAULTS)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_value_that_is_not_allowed_is_refused(name):
    setting = SETTINGS[name]
    wrong = "no such" if setting.choices else setting.least - 1
    with pytest.raises(UsageError, match=f"{name}.*allowed: ") as raised:
        planning.expand_configs({name: wrong})
    assert ", ".join(setting.choices) in str(raised.value)
    if setting.below < float("inf"):
        with pytest.raises(UsageError, match=name):
            planning.expand_configs({name: setting.below})


@pytest.mark.parametrize("name", SETTINGS)
def test_what_may_be_a_list_is_expanded_and_the_rest_refused(name):
    default = getattr(DEFAULTS, name)
    values = list(SETTINGS[name].choices[:2]) or [default, default / 2 if isinstance(default, float) else default + 1]
    values = [SETTINGS[name].least + share for share in (0.25, 0.5)] if isinstance(default, float) else values
    if SETTINGS[name].may_be_list:
        assert [getattr(config, name) for config in planning.expand_configs({name: values})] == values
    else:
        with pytest.raises(UsageError, match="not a list"):
            planning.expand_configs({name: values})


KEY = "torch|vgg16|cuda:1|1|train|default|fp32|recommended|public|equal|shared|224|3|native|4|16|1"


def test_keys_of_stored_verdicts_and_columns_of_the_cell_frame_stay_as_they_are():
    """Studies have these texts in parity.json."""
    row = columns.row_of(Cell("torch", "vgg16", "small", "cuda:1", TrainConfig(device="cuda:1", loader_workers=4)))
    assert verdict_key(row) == KEY
    assert verdict_key({**row, "internals": "private"}) == KEY.replace("public", "private")
    names = "device nodes mode batch_size execution pipeline precision tuning threads loader_workers"
    assert columns.SETTINGS == tuple(names.split())
    assert columns.OTHER_SETTINGS == (
        *("epochs", "learning_rate", "momentum", "weight_decay", "warmup_steps", "seed", "image_size", "num_classes"),
        *("flip", "crop", "optimizer", "loss_function", "patience", "epsilon", "internals"),
        *("optimizer_variant", "gpu_threads", "batch_growth", "batch_size_limit"),
        *("beta2", "clip_norm", "ramp_updates", "decay_updates", "final_rate", "accumulation"),
        *("new_tokens", "label_smoothing"),
    )
    assert set(columns.SHARED) == {*columns.SETTINGS, *columns.OTHER_SETTINGS} - set(of_role(OF_DATASET))
    paths = "device nodes mode execution precision tuning internals optimizer_variant gpu_threads"
    assert set(cache.PATHS) == set(paths.split()), "by which parity is cached"


def record(**settings: object) -> SimpleNamespace:
    """A row of the cell frame, as far as captions read it."""
    values = {columns_name(name): getattr(DEFAULTS, name) for name in SETTINGS}
    data = {"model": "alexnet", "dataset": "small", "images": 12, "skipped_images": 0, "generated": None}
    return SimpleNamespace(**{**values, **data, "runs": 2, "schedule": "sequential", **settings})


def columns_name(name: str) -> str:
    return "loss_function" if name == "loss" else name


def test_a_caption_names_what_is_not_at_its_default_or_varies_in_the_study():
    assert table_notes.caption([record()], []) == "CPU, 1 thread, 2 runs per cell. small: 12 images."
    both = [record(threads=2, crop="none"), record(threads=4, crop="none")]
    caption = table_notes.caption(both, ["threads", "batch_size"])
    assert caption.startswith("CPU, batch 16,") and "crop none" in caption and "thread" not in caption
    caption = table_notes.caption([record(device="cuda", batch_size=4, image_size=64, loader_workers=0)], [])
    assert caption.startswith("GPU, batch 4, 1 thread, 0 loader workers, image size 64, 2 runs per cell.")
    turns = record(schedule="interleaved")
    assert "2 runs per cell, interleaved" in table_notes.caption([turns, turns], [])
    assert "interleaved" not in table_notes.caption([turns, record()], [])
    more = record(schedule="interleaved", runs=5)
    assert "2 to 5 runs per cell, interleaved" in table_notes.caption([turns, more], []), "as under a budget"
    own = {**MODELS["lstm_ibm"].settings, "model": "lstm_ibm", "loss_function": "mse", "pipeline": "shared"}
    caption = table_notes.caption([record(**own, flip="none", crop="none", loader_workers=0, image_size=0)], [])
    assert caption.startswith("CPU, 1 thread, 2 runs per cell.")


def test_every_quiet_setting_is_in_the_captions_of_a_study_that_varies_it():
    for name in (name for name in of_role("quiet") if not SETTINGS[name].caption):
        column = columns_name(name)
        assert f"{column.replace('_', ' ')} {getattr(DEFAULTS, name)}" in table_notes.caption([record()], [column])


def test_captions_and_validation_read_the_setting(monkeypatch):
    monkeypatch.setitem(SETTINGS, "epochs", dataclasses.replace(SETTINGS["epochs"], caption="{} lap"))
    assert "4 laps" in table_notes.caption([record(epochs=4)], [])
    monkeypatch.setitem(SETTINGS, "batch_size", dataclasses.replace(SETTINGS["batch_size"], least=32))
    with pytest.raises(UsageError, match="at least 32"):
        planning.expand_configs({"batch_size": 16})


def test_the_progress_line_says_each_word_that_is_not_the_default():
    words = {"execution": "eager", "pipeline": "memory", "precision": "bf16", "tuning": "none"}
    config = TrainConfig(**words, device="cuda", flip="none")
    cell = Cell("torch", "vgg16", "small", "cuda", config)
    assert described(cell) == f"{cell.label}, batch 16, eager, memory, bf16, none"


CHANGED = """
import dataclasses
from framework_compare.plan.settings import SETTINGS
SETTINGS["epochs"] = dataclasses.replace(SETTINGS["epochs"], help="laps around the images")
SETTINGS["momentum"] = dataclasses.replace(SETTINGS["momentum"], below=7)
from framework_compare.cli.root import main
main()
"""


def test_the_help_of_a_command_reads_the_setting():
    done = subprocess.run(
        [sys.executable, "-c", CHANGED, "largest-batch", "--help-all"], capture_output=True, text=True, timeout=120, check=True,
        env={"COLUMNS": "200", "TERM": "dumb", "PATH": ""},
    )  # fmt: skip
    assert "Laps around the images; at least 1." in done.stdout and "less than 7." in done.stdout


@pytest.mark.parametrize("name", SETTINGS)
def test_an_option_starts_from_the_default_and_reads_one_value_or_several(name):
    option, default = options.OPTIONS[columns_name(name)], getattr(DEFAULTS, name)
    assert option.read(option.default) == (None if option.unstated else default)
    if SETTINGS[name].may_be_list and not SETTINGS[name].choices:
        assert option.read("4,5") == [type(default)(4), type(default)(5)]


def docs_table() -> str:
    """The table of settings of docs/running.md."""
    shown = [name for name in SETTINGS if name not in ("device", *of_role(OF_DATASET))]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *map(_docs_row, shown)]) + "\n"


def _docs_row(name: str) -> str:
    default = options.OPTIONS[columns_name(name)].unstated or getattr(DEFAULTS, name)
    return f"| {columns_name(name)} | {default} | {SETTINGS[name].meaning} |"


def test_the_docs_have_the_settings_as_they_are():
    assert docs_table() in DOCS.read_text(), f"docs/running.md: the table of settings is to be\n\n{docs_table()}"

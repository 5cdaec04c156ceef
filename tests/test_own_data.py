"""A user's own data: forms, what is inferred, splits, scaling; and bad data, each one line with what to do."""

import gzip
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from bounds import rounding
from command_line import run
from image_files import Runs
from PIL import Image

from framework_compare.datasets.own import DataOptions, OwnData
from framework_compare.datasets.resolve import own_data
from framework_compare.errors import DataError, UsageError
from framework_compare.graph import Task

ROWS = "a,b,kind,y\n" + "".join(f"{i},{i / 7:.3f},k{i % 3},{i % 2}\n" for i in range(30))
RNG = np.random.default_rng(0)
X, LABELS = RNG.standard_normal((40, 5)).astype(np.float32), np.arange(40) % 3


def read(data: object, **options: object) -> OwnData:
    found = own_data(data, DataOptions(**options), list(options), True)
    assert found is not None
    return found


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def task_of(data: OwnData) -> Task:
    return data.settled(data.tasks[0])


def test_columns_of_a_table_are_one_input_and_two_values_are_yes_or_no(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(ROWS)
    data = read(tmp_path / "d.csv", inputs=["a", "b"], target="kind")
    assert data.facts["classes"] == ["k0", "k1", "k2"] and task_of(data).outputs == 3, "text is classes in order"
    data = read(tmp_path / "d.csv", inputs=["a", "b"])
    assert [task.loss for task in data.tasks] == ["binary_cross_entropy", "cross_entropy"]
    made = data.for_task(task_of(data))
    assert made.train.inputs["features"].shape == (24, 2) and len(made.validation) == 6
    assert made.train.target.dtype == np.float32 and set(made.train.target.ravel()) == {0, 1}
    other = data.for_task(data.settled(data.tasks[1]))
    assert other.task.outputs == 2 and other.train.target.dtype == np.int64
    each = (read(tmp_path / "d.csv", inputs=["a", "b"], seed=seed) for seed in (1, 1, 2))
    first, again, drawn = (one.for_task(task_of(one)).checksum() for one in each)
    assert first == again != drawn, "the file of a data set has the same bytes each time"


def test_floats_are_regression_and_scaled_by_the_training_part_alone(tmp_path: Path) -> None:
    x, y = RNG.standard_normal((50, 3)) * 9 + 4, RNG.standard_normal(50) * 100 + 7
    given = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    data = read(npz(tmp_path / "d.npz", **given), normalize="standard")
    made = data.for_task(task_of(data))
    assert made.task.loss == "mse" and made.task.outputs == 1
    scaled = made.train.inputs["x"].astype(np.float64)
    stored = rounding(1, np.float32)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=stored)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=stored)
    expected = (x[40:] - x[:40].mean(0)) / x[:40].std(0)
    np.testing.assert_allclose(made.validation.inputs["x"], expected, rtol=0, atol=stored * np.abs(expected).max())
    # the metric is in the unit of the data: the mean of the training part misses by about the deviation
    expected = np.sqrt(np.mean((y[40:] - y[:40].mean()) ** 2))
    assert made.baseline_quality()["rmse"] == pytest.approx(expected, rel=stored)


def test_forms_of_arrays_give_the_same_data(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", LABELS)
    table = pyarrow.table({"x": list(map(list, X.tolist())), "y": LABELS})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    forms = [
        *(npz(tmp_path / "d.npz", x=X, y=LABELS), folder, tmp_path / "d.parquet", {"x": X, "y": LABELS}, (X, LABELS)),
        *(zip(X, LABELS), [{"x": x, "y": y} for x, y in zip(X, LABELS)]),
    ]
    made = [(data := read(form)).for_task(task_of(data)) for form in forms]
    for one in made:
        assert one.task.outputs == 3 and one.task.inputs[0].shape == (5,)
        assert np.array_equal(one.train.inputs["x"], made[0].train.inputs["x"])
        assert np.array_equal(one.train.target, made[0].train.target)


def test_a_saved_data_set_with_splits_and_names_of_classes(tmp_path: Path) -> None:
    features = {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}, "x": {"_type": "List"}}
    schema = pyarrow.schema([("x", pyarrow.list_(pyarrow.float32())), ("label", pyarrow.int64())])
    schema = schema.with_metadata({b"huggingface": json.dumps({"info": {"features": features}}).encode()})
    for split, count in (("train", 20), ("test", 6)):
        folder = tmp_path / "saved" / split
        folder.mkdir(parents=True)
        table = pyarrow.table({"x": X[:count].tolist(), "label": np.arange(count) % 2}, schema=schema)
        with pyarrow.ipc.new_stream(str(folder / "data-00000-of-00001.arrow"), schema) as stream:
            stream.write_table(table)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (tmp_path / "saved" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    data = read(tmp_path / "saved")
    made = data.for_task(task_of(data))
    assert data.facts["classes"] == ["cat", "dog"] and (len(made), len(made.validation)) == (20, 6)


def test_tasks_are_inferred_from_arrays_unless_a_loss_is_asked_for() -> None:
    pixels = RNG.integers(0, 256, (40, 8, 8, 3), np.uint8)
    arrays = {"ids": RNG.integers(0, 50, (40, 7)), "pixels": pixels, "mask": X > 0, "user": LABELS * 4, "y": LABELS}
    data = read(arrays, inputs={"tokens": "ids", "photo": "pixels", "mask": "mask", "user": "user"})
    fields = {field.name: field for field in task_of(data).inputs}
    assert (fields["tokens"].dtype, fields["tokens"].shape) == ("int32", (7,)) and fields["tokens"].vocabulary <= 50
    assert fields["photo"].shape == (3, 8, 8) and "photo" in data.pixels
    assert fields["mask"].dtype == "bool" and fields["user"].shape == () and fields["user"].vocabulary == 9
    with pytest.raises(UsageError, match="the target y has 5 values for each sample, and it takes one label"):
        read({"x": X, "y": X}, loss="cross_entropy")
    with pytest.raises(UsageError, match="allowed: cross_"):
        read({"x": X, "y": X}, loss="other")
    assert task_of(read({"x": X, "y": LABELS}, loss="mse")).loss == "mse"
    assert task_of(read({"x": X, "y": LABELS % 2}, loss="cross_entropy")).outputs == 2
    with pytest.raises(UsageError, match="the target has 3 classes"):
        read({"x": X, "y": LABELS}, loss="binary_cross_entropy")
    data = read({"x": X, "y": LABELS % 2 * 2 - 1})
    assert task_of(data).loss == "binary_cross_entropy" and data.facts["classes"] == ["-1", "1"]
    assert task_of(read({"x": X, "y": X[:, :2]})).target.shape == (2,)
    places = task_of(read({"x": RNG.integers(0, 9, (40, 6)), "y": np.where(X[:, :1] > 0, -100, np.ones((40, 6), int))}))
    assert places.loss == "token_cross_entropy" and places.target.shape == (6,)


def test_windows_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.txt").write_text("abcdefghij" * 30)
    (tmp_path / "t" / "b.txt").write_text("klmnopqrst" * 30)
    data = read(tmp_path / "t", window=16)
    made = data.for_task(task_of(data))
    assert made.task.inputs[0].vocabulary == 256 and made.task.outputs == 256
    assert np.array_equal(made.train.inputs["tokens"][:, 1:], made.train.target[:, :-1])
    assert bytes(made.train.inputs["tokens"][0].astype(np.uint8)) == b"abcdefghijabcdef"
    for window, words in {
        0: "window is 0",
        1: "window is 1; .* at least 2",
        4000: "too few for windows of 4000",
    }.items():
        with pytest.raises((UsageError, DataError), match=words):
            read(tmp_path / "t", window=window)


def test_class_folders_beside_a_text_are_images_and_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is empty; give one with a folder of images per class, or data"):
        own_data(tmp_path, DataOptions(), [], True)
    (tmp_path / "cats").mkdir()
    (tmp_path / "labels.txt").write_text("cats\n")
    assert own_data(tmp_path, DataOptions(), [], True) is None


BAD_TABLES = {
    "no target": ("a,b\n1,2\n3,4\n", {}, r"name the target; it has a, b"),
    "semicolons": ("a;y\n1;0\n3;1\n", {}, r"separate its columns by commas, not ';'; it has a;y"),
    "no column": (ROWS, {"target": "kinds"}, r"has no target 'kinds' \(did you mean 'kind'\?\); it has a, b, kind, y"),
    "no input": (ROWS, {"inputs": ["aa", "b"]}, r"has no input 'aa'"),
    "text": (ROWS, {}, r"line 2: kind is 'k0', not a number; encode the text as numbers, or name inputs without"),
    "one text": (ROWS.replace("\n7,", "\n?,"), {"inputs": ["a", "b"]}, r"line 9: a is '\?', not a number"),
    "empty value": (ROWS.replace("\n7,", "\n,"), {"inputs": ["a"]}, r"line 9: a is empty, not a number"),
    "nan": (ROWS.replace("\n7,", "\nnan,"), {"inputs": ["a"]}, r"line 9: a has no finite number"),
    "infinite": (ROWS.replace("\n7,", "\n1e999,"), {"inputs": ["a"]}, r"line 9: a has no finite number"),
    "ragged": (ROWS.replace("\n7,", "\n7,7,"), {}, r"line 9: 5 columns where the header has 4; fix the row"),
    "one class": ("a,y\n1,0\n2,0\n3,0\n", {}, r"the target y has one class only, '0'"),
    "empty": ("", {}, "is empty"),
    "header alone": ("a,y\n", {}, "has a header and no rows"),
    "twice": ("a,a,y\n1,2,0\n", {}, "has column 'a' twice"),
    "huge": ("a,y\n99999999999999999999999,0\n2,1\n3,0\n", {"inputs": ["a"]}, None),
    "both": (ROWS, {"inputs": ["y"], "target": "y"}, "'y' is an input and the target"),
    "constant": ("a,y\n1,0\n1,1\n1,0\n1,1\n", {"normalize": "standard"}, "feature 0 of features is the same in all"),
    "scaling": (ROWS, {"normalize": "zscore"}, "normalize is 'zscore'; allowed: none, standard, minmax"),
    "share": (ROWS, {"validation": 2.0}, "validation is 2.0; allowed: a share between 0 and 1"),
    "bytes": (b"a,y\n\xe9,1\n", {}, "line 2: not UTF-8 text"),
    "image": (b"\xff\xd8\xff\xe0" + bytes(60), {}, "is a JPEG image where text is needed"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_bad_table_is_one_line(kind: str, tmp_path: Path) -> None:
    text, options, message = BAD_TABLES[kind]
    (tmp_path / "d.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    if message is None:  # read as a float, which holds it
        assert read(tmp_path / "d.csv", **options).tasks
        return
    with pytest.raises(UsageError, match=message) as raised:
        read(tmp_path / "d.csv", **options)
    assert "\n" not in str(raised.value)


def raw(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


def header(shape: tuple, descr: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


BAD_ARRAYS = {
    "objects": (
        lambda p: npz(p, x=np.array([Runs(p.with_name("ran"))] * 9, object), y=LABELS),
        "contains Python objects",
    ),
    "pickle": (lambda p: raw(p, "x.npy", pickle.dumps(Runs(p.with_name("ran")))), "is not a numpy array"),
    "lengths": (lambda p: npz(p, x=X, y=LABELS[:9]), r"different numbers of samples \(x 40, y 9\)"),
    "no samples": (lambda p: npz(p, x=X[:0], y=LABELS[:0]), "has no samples"),
    "nan": (lambda p: npz(p, x=np.where(X > 2, np.nan, X), y=LABELS), r"sample \d+: x has no finite number"),
    "huge": (lambda p: npz(p, x=np.full((40, 3), 2**40), y=LABELS), "holds whole numbers from 1099511627776"),
    "negative": (lambda p: npz(p, x=np.full((40, 3), -5), y=LABELS), "allowed for tokens: 0 to"),
    "complex": (lambda p: npz(p, x=X.astype(complex), y=LABELS), "has the type complex128; allowed: numbers"),
    "float64": (lambda p: npz(p, x=X.astype(float) * 1e300, y=LABELS), "beyond float32"),
    "bomb": (lambda p: raw(p, "x.npy", header((1 << 40,)) + bytes(1 << 20)), r"its header asks for 4,398,046,511,104"),
    "cut": (lambda p: raw(p, "x.npy", header((9, 9)) + bytes(9)), "has 9 bytes, its header asks for 324"),
    "no zip": (lambda p: p.write_bytes(b"hello") and p, "cannot be read as .npz"),
    "empty zip": (lambda p: raw(p, "x.txt", b"hello"), "has no arrays"),
    "gone": (lambda p: p, "does not exist"),
    "splits": (lambda p: npz(p, x_train=X, y_train=LABELS, x_test=X), "the validation part x"),
    "shapes": (
        lambda p: npz(p, x_train=X, y_train=LABELS, x_test=X[:, :3], y_test=LABELS),
        r"shape \(5,\) in training, \(3,\) in validation",
    ),
    "no label": (
        lambda p: npz(p, x=X, y=LABELS - 1),
        r"the target y is -1 in \d+ of 40 samples; allowed: labels from 0 on, or -1 and 1; remove samples without",
    ),
    "many labels": (lambda p: npz(p, x=np.zeros((5000, 2)), y=np.arange(5000)), "5,000 different whole numbers; give"),
    "target alone": (lambda p: npz(p, y=LABELS), "has nothing but the target y"),
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_bad_arrays_are_one_line_and_run_nothing(kind: str, tmp_path: Path) -> None:
    make, message = BAD_ARRAYS[kind]
    with pytest.raises(DataError, match=message) as raised:
        read(make(tmp_path / "d.npz"))
    assert "\n" not in str(raised.value) and not (tmp_path / "ran").exists()


def endless():
    while True:
        yield np.zeros(1 << 20), 0


def failing():
    yield X[0], 0
    raise KeyError("x")


BAD_OBJECTS = {
    "ragged": ([(X[0], 0), (X[0][:3], 1)], r"sample 1: x has shape \(3,\), but the first sample has \(5,\)"),
    "no pairs": ([1, 2, 3], "sample 0 is int; allowed: "),
    "text": ([("a", 0), ("b", 1), ("c", 0)] * 9, "x is 'a', not a number"),
    "empty": (iter(()), "has no samples"),
    "fails": (failing(), "fails at sample 1: KeyError"),
    "names": ([{"x": 1, "y": 0}, {"z": 1, "y": 0}], "sample 1 has z, y, but the first has x, y"),
    "single": ({"x": X, "y": 3}, "y is a single number"),
    "endless": (endless(), "would take .* GiB of memory"),
}


@pytest.mark.parametrize("kind", BAD_OBJECTS)
def test_bad_objects_are_one_line(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, message = BAD_OBJECTS[kind]
    if kind == "endless":
        memory = SimpleNamespace(available=1 << 28)
        monkeypatch.setattr("framework_compare.datasets.columns.psutil.virtual_memory", lambda: memory)
        monkeypatch.setattr("framework_compare.datasets.objects.CHECKED_EVERY", 8)
    with pytest.raises(DataError, match=message) as raised:
        read(data)
    assert "\n" not in str(raised.value)


def test_a_packed_table_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("framework_compare.datasets.source_files.MOST_BYTES", 1 << 20)
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(bytes(1 << 22)))
    with pytest.raises(DataError, match="unpacks to more than"):
        read(tmp_path / "d.csv.gz")


def test_a_parquet_file_that_is_none_or_has_dates(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").write_bytes(b"PAR1 hello")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(tmp_path / "d.parquet")
    table = pyarrow.table({"when": pyarrow.array([1, 2, 3], pyarrow.date32()), "y": [0, 1, 0], "x": [1, None, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(DataError, match="when has the type date32.*; convert it, or name inputs without when"):
        read(tmp_path / "d.parquet")
    with pytest.raises(DataError, match="sample 1: x has no finite number"):
        read(tmp_path / "d.parquet", inputs=["x"])


def png(size: tuple[int, int], mode: str) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, (100,) * len(mode)).save(file, "PNG")
    return file.getvalue()


ENCODED = {
    "grey": ([png((7, 6), "L")] * 4, (1, 6, 7)),
    "both": ([png((7, 6), "L"), png((7, 6), "RGB")] * 2, (3, 6, 7)),
    "sizes": ([png((7, 6), "L"), png((6, 6), "L")] * 2, r"sample 1: image has shape \(6, 6\), but the first sample"),
    "damaged": ([png((7, 6), "L"), b"no image"] * 2, "sample 1: image is no image that decodes; remove the sample"),
    "paths": ([png((7, 6), "L"), None] * 2, "sample 1: image has no bytes of an image; save the images in the file"),
}


@pytest.mark.parametrize("kind", ENCODED)
def test_encoded_images_of_one_size_are_arrays_of_pixels(kind: str, tmp_path: Path) -> None:
    encoded, expected = ENCODED[kind]
    table = pyarrow.table({"image": [{"bytes": each, "path": "a.png"} for each in encoded], "y": [0, 1, 0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            read(tmp_path / "d.parquet")
        return
    data = read(tmp_path / "d.parquet")
    assert task_of(data).inputs[0].shape == expected and set(np.unique(data.inputs["image"][0])) == {100}


BAD_REQUESTS = [
    (["alexnet", "d.csv", "--inputs", "a,b"], "alexnet takes folders of images"),
    (["alexnet", "--target", "y"], "target applies to arrays and tables, but no data are given"),
    (["net.py:build", "d.csv", "e.csv"], "is a second data set"),
    (["net.py:build", "d.csv", "--target", "yy"], "has no target 'yy'"),
    (["net.py:build", "d.csv", "--window", "3"], "d.csv is not text"),
    (["net.py:build", "missing.csv"], "does not exist"),
]


@pytest.mark.parametrize(("words", "message"), BAD_REQUESTS, ids=[message[:20] for _, message in BAD_REQUESTS])
def test_a_bad_request_ends_with_code_2(words: list, message: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("d.csv", "e.csv"):
        Path(name).write_text(ROWS)
    Path("net.py").write_text("def build(): ...\n")
    done = run("run", "torch", *words, "--out", "s", check=2)
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not os.path.exists("s")

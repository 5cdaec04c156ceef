"""Tables as columns: CSV, Parquet, and the folder of a saved Hugging Face data set, which is Arrow files."""

import importlib
import io
import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Sequence

import numpy as np
from PIL import Image

from framework_compare.batches.preprocess import to_rgb
from framework_compare.datasets.columns import Arrays, OtherType, Source, check_memory, column_of, stacked, text_array
from framework_compare.datasets.source_files import check_once, one_line, read_table, source
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

if TYPE_CHECKING:
    import pyarrow

PARQUET = "pip install 'framework-compare[parquet]'"
STATE, SPLIT_LIST = "state.json", "dataset_dict.json"  # of a saved data set, and of one with splits
HELD = ("validation", "valid", "val", "dev", "test")


def read_csv(path: Path) -> Source:
    """The columns of a CSV file with a header; those of numbers alone are numbers, others text."""
    where = f"file {str(path)!r}"
    header, records = read_table(path, "\t" if ".tsv" in path.suffixes else ",")
    check_once(path, header, header)
    lines, rows = zip(*records)
    columns = {name: column_of(texts) for name, texts in zip(header, zip(*rows))}
    return Source(path.name.partition(".")[0], where, columns, facts={"source": source([path])}, lines=lines)


def read_parquet(path: Path) -> Source:
    """The columns of a Parquet file; a column of lists of one length is an array."""
    where = f"file {str(path)!r}"
    parquet = _pyarrow(where, "parquet")
    try:
        file = parquet.ParquetFile(path)
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        check_memory(sum(group.total_byte_size for group in groups), where)
        table = file.read()
    except FileNotFoundError:
        raise DataError(f"{where} does not exist") from None
    except DataError:
        raise
    except Exception as error:  # pyarrow has errors of its own for damaged files
        raise DataError(f"{where} cannot be read as Parquet: {one_line(error)}; save it again") from None
    return Source(path.stem, where, _columns(table, where), facts={"source": source([path])})


def is_saved(path: Path) -> bool:
    """Return whether a folder is what `datasets.save_to_disk` writes."""
    return (path / STATE).is_file() or (path / SPLIT_LIST).is_file()


def read_saved(path: Path) -> Source:
    """A saved data set: its split "train" and one to validate with, or its only split."""
    where = f"folder {str(path)!r}"
    ipc = _pyarrow(where, "ipc")
    if not (path / SPLIT_LIST).is_file():
        train, files, classes = _read_split(ipc, path)
        return Source(path.name, where, train, facts={"source": source(files)}, classes=classes)
    splits = _json(path / SPLIT_LIST).get("splits", [])
    if "train" not in splits:
        raise DataError(f"{where} has no split 'train'; it has {', '.join(map(str, splits)) or 'none'}")
    train, files, classes = _read_split(ipc, path / "train")
    held = next((name for name in HELD if name in splits), None)
    validation = None
    more: list[Path] = []
    if held is not None:
        validation, more, _ = _read_split(ipc, path / held)
    left = [str(name) for name in splits if name not in ("train", held)]
    facts = {"source": source([*files, *more]), **({"left_out": left} if left else {})}
    return Source(path.name, where, train, validation, facts, classes=classes)


def _read_split(ipc: ModuleType, folder: Path) -> tuple[Arrays, list[Path], dict[str, Sequence[str]]]:
    """Columns, files and names of classes of one split."""
    where = f"folder {str(folder)!r}"
    listed = [entry.get("filename", "") for entry in _json(folder / STATE).get("_data_files", [])]
    files = [folder / Path(str(name)).name for name in listed]  # none elsewhere, whatever the list says
    if not files:
        raise DataError(f"{where} lists no files in {STATE}; save the data set again")
    check_memory(sum(file.stat().st_size for file in files if file.is_file()), where)
    import pyarrow

    try:
        tables = []
        for file in files:
            with pyarrow.memory_map(str(file)) as mapped:
                tables.append(ipc.open_stream(mapped).read_all())
        table = pyarrow.concat_tables(tables)
    except FileNotFoundError as error:
        raise DataError(f"{where} lacks a file that its {STATE} names: {one_line(error)}") from None
    except Exception as error:
        raise DataError(f"{where} cannot be read as a saved data set: {one_line(error)}; save it again") from None
    info = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {})
    features = info.get("features", {})
    classes = {name: one["names"] for name, one in features.items() if one.get("_type") == "ClassLabel"}
    return _columns(table, where), files, classes


def _json(path: Path) -> Fields:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"file {str(path)!r} cannot be read: {one_line(error)}; save the data set again") from None
    return document if isinstance(document, dict) else {}


def _columns(table: "pyarrow.Table", where: str) -> Arrays:
    """Arrow columns as arrays; gaps in numbers are NaN, which is refused where the column is chosen."""
    if not table.num_rows:
        raise DataError(f"{where} has no rows; give one with data")
    return {name: _column(table.column(name), name, where) for name in table.column_names}


def _column(column: "pyarrow.ChunkedArray", name: str, where: str) -> np.ndarray:
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return text_array([text or "" for text in column.to_pylist()])
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind):
        return np.asarray(column)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return stacked(column.to_pylist(), name, where)
    if kinds.is_struct(kind) and {"bytes", "path"} <= {field.name for field in kind}:
        return _pixels(column.to_pylist(), name, where)
    return text_array([OtherType(kind)] * len(column))  # dates and such, which no input may be


def _pixels(rows: Sequence[Fields | None], name: str, where: str) -> np.ndarray:
    """Encoded images of one size as uint8: grey where all are, else RGB."""
    found = []
    for sample, row in enumerate(rows):
        place, data = f"{where}, sample {sample}: {name}", (row or {}).get("bytes")
        if not data:
            raise DataError(f"{place} has no bytes of an image; save the images in the file, not their paths")
        try:
            with Image.open(io.BytesIO(data)) as image:
                check_memory(3 * image.width * image.height * len(rows), where)
                found.append(np.asarray(image if image.mode == "L" else to_rgb(image)))
        except DataError:
            raise
        except (OSError, SyntaxError, TypeError, ValueError, Image.DecompressionBombError):
            raise DataError(f"{place} is no image that decodes; remove the sample") from None
    grey = all(each.ndim == 2 for each in found)
    return stacked([each if grey or each.ndim == 3 else np.stack([each] * 3, axis=2) for each in found], name, where)


def _pyarrow(where: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ImportError:
        raise DataError(f"{where} needs pyarrow to be read: {PARQUET}") from None

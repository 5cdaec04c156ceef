"""Named arrays of .npz files, .npy files and folders of them. Nothing in a file is run: arrays of objects are refused."""

import io
import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from framework_compare.datasets.columns import Arrays, Source, check_lengths, check_memory, names_of
from framework_compare.datasets.source_files import PARTS, one_line, source
from framework_compare.errors import DataError
from framework_compare.protocol import Fields

PART_OF = {word: part for part, words in PARTS.items() for word in words}


def read_npz(path: Path) -> Source:
    """The arrays of a .npz file by their names."""
    where = f"file {str(path)!r}"
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            if not members:
                raise DataError(f"{where} has no arrays; numpy.savez writes one with data")
            check_memory(sum(info.file_size for info in members), where)
            arrays = {}
            for info in members:
                name = info.filename[: -len(".npy")]
                with archive.open(info) as file:
                    arrays[name] = _array(file, info.file_size, f"{where}: {name}")
    except FileNotFoundError:
        raise DataError(f"{where} does not exist") from None
    except (OSError, EOFError, zipfile.BadZipFile, RuntimeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where} cannot be read as .npz: {error or type(error).__name__}; save it again") from None
    return of_arrays(path.stem, where, arrays, {"source": source([path])})


def read_npy(path: Path) -> Source:
    """The columns of the only array, a table, by their numbers; or of a folder each .npy file by its name."""
    where = f"{'folder' if path.is_dir() else 'file'} {str(path)!r}"
    files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
    arrays = {}
    for one in files:
        what = f"file {str(one)!r}"
        try:
            size = one.stat().st_size
            check_memory(size, what)
            with open(one, "rb") as file:
                arrays[one.stem] = _array(file, size, what)
        except FileNotFoundError:
            raise DataError(f"{what} does not exist") from None
        except (OSError, EOFError) as error:
            raise DataError(f"{what} cannot be read: {error}") from None
    if path.is_dir():
        return of_arrays(path.name, where, arrays, {"source": source(files)})
    (table,) = arrays.values()
    if table.ndim != 2:
        raise DataError(
            f"{where} holds one array of shape {table.shape}, and inputs and target are two; give .npz, or a folder with"
            " x.npy and y.npy"
        )
    return Source(
        path.stem, where, {str(i): table[:, i] for i in range(table.shape[1])}, facts={"source": source(files)}
    )


def _array(file: IO[bytes], size: int, where: str) -> np.ndarray:
    """An array, once its header is known to ask for numbers, and for as many as there are."""
    head = io.BytesIO(file.read(min(size, 1 << 16)))
    try:
        version = np.lib.format.read_magic(head)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(head)
    except (ValueError, KeyError, EOFError, SyntaxError) as error:
        raise DataError(f"{where} is not a numpy array: {one_line(error)}; save it again") from None
    if dtype.hasobject:
        raise DataError(
            f"{where} contains Python objects, which may run code when they are opened; it is not opened: save numbers"
        )
    if dtype.kind not in "buifUS":
        raise DataError(f"{where} has the type {dtype}; allowed: numbers, or text as a target")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted != size - head.tell():
        raise DataError(f"{where} has {size - head.tell():,} bytes, its header asks for {wanted:,}; save it again")
    if not shape:
        raise DataError(f"{where} is a single number; the first axis must be the samples")
    data = head.read() + file.read(wanted)
    if len(data) != wanted:
        raise DataError(f"{where} ends after {len(data):,} of {wanted:,} bytes; save it again")
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    if dtype.kind not in "US":
        return array
    return (array if dtype.kind == "U" else np.char.decode(array)).astype(object)


def of_arrays(name: str, where: str, arrays: Arrays, facts: Fields) -> Source:
    """Arrays whose names may say their part: x_train and x_test, or train_x; others have one part."""
    parts: dict[str, dict[str, np.ndarray]] = {part: {} for part in PARTS}
    plain = {}
    for full, array in arrays.items():
        part, base = _part_of(full)
        if part:
            parts[part][base] = array
        else:
            plain[full] = array
    train = parts["train"]
    if not train:
        check_lengths(arrays, where)
        return Source(name, where, arrays, facts=facts)
    held = parts["validation"] or parts["test"] or None
    left = [*plain, *([f"{base}_test" for base in parts["test"]] if parts["validation"] else ())]
    if held is not None and set(held) != set(train):
        raise DataError(f"{where}: the training part has {names_of(train)}, and the validation part {names_of(held)}")
    for arrays_of_part in filter(None, (train, held)):
        check_lengths(arrays_of_part, where)
    return Source(name, where, train, held, {**facts, **({"left_out": left} if left else {})})


def _part_of(name: str) -> tuple[str, str]:
    """The part of the data that a name says, "" for none, and what is left of it."""
    first, _, rest = name.partition("_")
    front, _, last = name.rpartition("_")
    if front and last.lower() in PART_OF:
        return PART_OF[last.lower()], front
    if rest and first.lower() in PART_OF:
        return PART_OF[first.lower()], rest
    return "", name

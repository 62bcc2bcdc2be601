"""Sequence lengths from files: .npy, text, JSON lines, CSV, or a column of a Hugging Face dataset.

Shape letters: n sequences.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import importlib
import io
import json
import lzma
import sys
import zlib
from array import array
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from packing.lengths import Lengths, whole_number

OPENERS: Dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError)
BLOCK = 1 << 22  # bytes of text read at once
ROWS = 10_000  # of a dataset read at once


def read_lengths(source: str, column: Optional[str] = None, split: Optional[str] = None) -> Lengths:
    """Reads the length of every sequence: (n,) integers.

    Text is checked to be whole numbers >= 1 (12.0 is one, as in arrays), which names the line; arrays
    and datasets are left to `check_lengths`, which names the position.

    source  .npy (1-D integers; read by memory map), .txt (one number a line), .jsonl or .ndjson (a number
            or an object a line), .json (a list of those), .csv (the first line names the columns; a single
            column needs no name); text may be .gz, .xz or .bz2; or a folder written by
            `datasets.save_to_disk`, or a dataset's name on the hub
    column  of objects, CSV and datasets: holds the length, or a list whose items are counted
    split   of datasets: train, validation...
    Raises ValueError naming the file and the line or row, ImportError without the library `datasets`.
    """
    path = Path(source)
    named = not path.suffix[1:].isalpha()  # name/version-1.5 may be a dataset, x.parquet is a file
    if path.is_dir() or (column is not None and named and not path.exists()):
        return _of_dataset(source, column, split)
    if not path.is_file():
        raise ValueError(
            f"{source}: no such file, expected lengths (.npy, .txt, .jsonl, .json, .csv) or a dataset"
        )
    if split is not None:
        raise ValueError(f"split: {source} is a file; only datasets have splits")
    if path.stat().st_size == 0:
        raise ValueError(f"{source}: empty file, expected lengths")
    suffix = path.suffix if path.suffix not in OPENERS else Path(path.stem).suffix
    if suffix in (".npy", ".txt") and column is not None:
        raise ValueError(f"column: {source} has no columns, found {column!r}")
    if path.suffix == ".npy":
        return _of_array(path)
    readers = {
        ".txt": _of_text,
        ".jsonl": _of_json_lines,
        ".ndjson": _of_json_lines,
        ".json": _of_json,
        ".csv": _of_csv,
    }
    if suffix not in readers:
        expected = ".npy, " + ", ".join(readers) + " or one of the last with .gz, .xz or .bz2"
        raise ValueError(f"{source}: expected {expected}, found {path.suffix!r}")
    try:
        return readers[suffix](path, column)
    except (UnicodeDecodeError, EOFError, csv.Error, *DAMAGED) as error:
        raise ValueError(f"{source}: damaged, or not {suffix} ({error})") from None
    except OSError as error:  # bz2 says so of data that is none
        raise ValueError(f"{source}: cannot be read ({error})") from None


def _of_array(path: Path) -> Lengths:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy raises whatever the damage leads to
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a .npy array that can be mapped ({reason})") from None


def _open(path: Path) -> Any:
    return OPENERS.get(path.suffix, open)(path, "rb")


def _blocks(path: Path) -> Iterator[List[bytes]]:
    """The lines of a file in blocks, without their ends; what is empty at the end is no line."""
    with _open(path) as stream, _bar(path, "B") as bar:
        block = stream.read(BLOCK)
        rest = b""
        if block.startswith(codecs.BOM_UTF8):
            block = block[len(codecs.BOM_UTF8) :]
        while block:
            bar.update(len(block))
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            yield lines
            block = stream.read(BLOCK)
        if rest:
            yield [rest]


def _bar(path: Path, unit: str) -> Any:
    total = path.stat().st_size if unit == "B" and path.suffix not in OPENERS else None
    return tqdm(
        total=total,
        desc=f"  reading {path.name}",
        unit=unit,
        unit_scale=True,
        delay=2,
        disable=None,
        leave=False,
        file=sys.stderr,
    )


def _of_text(path: Path, column: Optional[str]) -> Lengths:
    parts: List[npt.NDArray[np.int64]] = []
    number = 0
    for lines in _blocks(path):
        part = _numbers(lines)
        if (part < 1).any() or b"_" in b"".join(lines):
            texts = (line.decode("utf-8", "replace") for line in lines)
            part = np.array([_number(path, number + i, n) for i, n in enumerate(texts, 1)])
        parts.append(part)
        number += len(lines)
    return _joined(path, parts)


def _numbers(lines: List[bytes]) -> npt.NDArray[np.int64]:
    """Lines as whole numbers, at once; [0] where one of them is none or too large to say."""
    texts = np.array(lines)
    with contextlib.suppress(ValueError, OverflowError):
        return texts.astype(np.int64)
    with contextlib.suppress(ValueError):
        floats = texts.astype(np.float64)  # 1.2e+01: numpy.savetxt
        if (np.abs(floats) < 2.0**53).all() and (floats == np.floor(floats)).all():
            return floats.astype(np.int64)
    return np.zeros(1, dtype=np.int64)


def _number(path: Path, line: int, text: str) -> int:
    where = f"{path}, line {line}"
    if not text.strip():
        raise ValueError(f"{where}: expected a length as a whole number, found nothing")
    return _checked(where, whole_number(text), text.strip()[:80])


def _checked(where: str, value: Any, found: Any) -> int:
    """`value` when it is a length; raises ValueError saying where what was found instead."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        value = int(value)
    if isinstance(value, str):
        raise ValueError(
            f"{where}: expected a length or a list of tokens, found text {found!r:.80}"
        )
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{where}: expected a length as a whole number, found {found!r:.80}")
    if not 1 <= value < 2**63:
        raise ValueError(f"{where}: expected a length of at least 1 and below 2^63, found {found}")
    return value


def _joined(path: Path, parts: List[npt.NDArray[np.int64]]) -> Lengths:
    if not parts:
        raise ValueError(f"{path}: holds no lengths")
    return np.concatenate(parts)


def _length_of(where: str, value: Any, column: Optional[str]) -> int:
    """The length that one JSON value stands for."""
    if isinstance(value, dict):
        if column is None:
            names = ", ".join(list(value)[:8])
            raise ValueError(f"{where}: an object; --column says which of {names} holds the length")
        if column not in value:
            raise ValueError(f"{where}: has no {column!r}, found {', '.join(list(value)[:8])}")
        value = value[column]
    elif column is not None:
        raise ValueError(f"{where}: expected an object with {column!r}, found {value!r:.80}")
    if isinstance(value, list):
        return _checked(where, len(value), "an empty list")
    return _checked(where, value, value)


def _of_json_lines(path: Path, column: Optional[str]) -> Lengths:
    lengths = array("q")  # a list would take five times the memory
    number = 0
    for lines in _blocks(path):
        for line in lines:
            number += 1
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: not JSON ({error})") from None
            lengths.append(_length_of(where, value, column))
    return _joined(path, [np.array(lengths)] if lengths else [])


def _of_json(path: Path, column: Optional[str]) -> Lengths:
    with _open(path) as stream:
        text = stream.read().decode("utf-8-sig")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}); JSON lines are named .jsonl") from None
    if not isinstance(values, list):
        found = type(values).__name__.replace("dict", "object")
        raise ValueError(f"{path}: expected a list of lengths or of objects, found one {found}")
    if not values:
        raise ValueError(f"{path}: holds no lengths")
    lengths = [_length_of(f"{path}, item {i}", value, column) for i, value in enumerate(values)]
    return np.array(lengths, dtype=np.int64)


def _of_csv(path: Path, column: Optional[str]) -> Lengths:
    with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as stream:
        csv.field_size_limit(2**31 - 1)  # other columns may hold whole documents
        rows = csv.reader(stream)
        header = next(rows, [])
        place, unnamed = _column_of(path, header, column)
        lengths = array("q")
        if unnamed:
            lengths.append(_number(path, 1, header[0]))
        with _bar(path, " rows") as bar:
            for row in rows:
                if row:
                    cell = row[place] if place < len(row) else ""
                    lengths.append(_number(path, rows.line_num, cell))
                    bar.update()
    return _joined(path, [np.array(lengths)] if lengths else [])


def _column_of(path: Path, header: List[str], column: Optional[str]) -> Tuple[int, bool]:
    """Which column holds the lengths, and whether the first line does so too: (place, unnamed)."""
    if {name.strip().lower() for name in header} == {"length", "count"}:
        raise ValueError(
            f"{path}: a histogram (`length,count`), expected lengths; `solve`, `compare` and `plot` "
            "take histograms"
        )
    unnamed = any(map(_is_number, header))
    if len(header) == 1 and column is None and header[0].strip():
        return 0, unnamed
    if unnamed or not any(header):
        found = repr(",".join(header)[:80]) if header else "nothing"
        raise ValueError(f"{path}, line 1: expected the names of the columns, found {found}")
    if column is None or column not in header:
        names = ", ".join(
            repr(name) if name != name.strip() or not name else name for name in header[:8]
        )
        found = "" if column is None else f"; found {column!r}"
        raise ValueError(f"{path}: --column must name one of {names}{found}")
    return header.index(column), False


def _is_number(text: str) -> bool:
    """Also of what is no length, such as 2.5 or nan: that is not taken for a column's name, and lost."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_dataset(source: str, column: Optional[str], split: Optional[str]) -> Lengths:
    if column is None:
        raise ValueError(
            f"{source}: a folder or dataset; --column says which column holds the length"
        )
    datasets: Any = importlib.import_module("datasets")  # an extra, large and slow to import
    try:
        if Path(source).is_dir():
            dataset = datasets.load_from_disk(source)
        else:
            dataset = datasets.load_dataset(source, split=split or "train")
    except Exception as error:  # the library raises errors of many kinds for what it cannot find
        reason = " ".join(str(error).split())[:200]
        tried = "cannot be read as a dataset"
        if not Path(source).exists():
            tried = "no such file or folder, and not found on the hub"
        raise ValueError(f"{source}: {tried} ({reason})") from None
    if isinstance(dataset, datasets.DatasetDict):
        if split not in dataset:
            names = ", ".join(map(str, dataset))
            raise ValueError(f"split: expected one of {names} of {source}, found {split!r}")
        dataset = dataset[split]
    elif split is not None and Path(source).is_dir():
        raise ValueError(f"split: {source} is one split, found {split!r}")
    if column not in dataset.column_names:
        names = ", ".join(dataset.column_names[:8])
        raise ValueError(f"column: expected one of {names} of {source}, found {column!r}")
    return _of_column(source, column, dataset.select_columns([column]).with_format("arrow"))


def _of_column(source: str, column: str, dataset: Any) -> Lengths:
    pyarrow: Any = importlib.import_module("pyarrow")
    compute: Any = importlib.import_module("pyarrow.compute")
    parts = []
    row = 0
    with _bar(Path(source), " rows") as bar:
        for batch in dataset.iter(batch_size=ROWS):
            values = batch.column(column).combine_chunks()
            if values.null_count:
                first = row + values.is_null().index(True).as_py()
                raise ValueError(f"{source}, row {first}: {column!r} is missing")
            kind = values.type
            if pyarrow.types.is_fixed_size_list(kind):
                values = pyarrow.array([kind.list_size] * len(values))
            elif pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
                values = compute.list_value_length(values)
            elif not pyarrow.types.is_integer(kind):
                raise ValueError(
                    f"column: expected whole numbers or lists in {column!r}, found {kind}"
                )
            parts.append(values.to_numpy(zero_copy_only=False).astype(np.int64))
            row += len(values)
            bar.update(len(values))
    return _joined(Path(source), parts)

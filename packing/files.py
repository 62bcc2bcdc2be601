"""Files that are either whole or absent: written aside as NAME.partial, flushed, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

PARTIAL_SUFFIX = ".partial"


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a path to write to; it becomes `path` when the block ends without an error."""
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == str(partial):
            if not os.path.exists(partial):
                error.filename = str(path)  # what the user knows
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    with open(partial, "rb") as written:
        os.fsync(written.fileno())
    os.replace(partial, path)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Gives an empty folder to fill; it takes the place of `path` when the block ends without an error.

    What stood at `path` is moved aside first and deleted last, so that it is never there by half.
    """
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    old = path.with_name(path.name + ".old" + PARTIAL_SUFFIX)
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    if path.exists():
        os.replace(path, old)
    os.replace(partial, path)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON that is the same for the same value: sorted keys, UTF-8, one newline at the end."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    with whole_file(path) as partial:
        partial.write_bytes(text.encode("utf-8"))


def read_json(path: Path) -> Any:
    """Reads a JSON file. Raises ValueError naming the file when it is missing, empty or no JSON."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: expected a JSON file, found a folder") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}); it may be truncated") from None


def read_object(path: Path) -> Dict[str, Any]:
    """Reads a JSON file that holds an object. Raises ValueError as `read_json`, or for anything else."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def fingerprint(value: Any) -> str:
    """sha256 of a JSON-able value, in hexadecimal; equal values give equal fingerprints."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def first_difference(stored: Any, wanted: Any, key: str = "") -> Optional[Tuple[str, Any, Any]]:
    """The first place where two nested dictionaries differ: (dotted key, stored, wanted), or None."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for name in sorted({*stored, *wanted}):
            inner = f"{key}.{name}" if key else name
            difference = first_difference(stored.get(name), wanted.get(name), inner)
            if difference:
                return difference
        return None
    return None if stored == wanted else (key, stored, wanted)


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hexadecimal, read a megabyte at a time."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()

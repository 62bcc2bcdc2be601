"""Reading lengths from files and datasets."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re

import numpy as np
import pytest

from packing.__main__ import main
from packing.read_lengths import read_lengths
from tests.resources import assert_one_line_error, call_command

LENGTHS = [5, 3, 512, 1, 3]


def json_lines(values):
    return "".join(json.dumps(value) + "\n" for value in values)


def as_objects(values):
    return [{"n": value, "ids": list(range(value)), "text": "x"} for value in values]


TEXTS = [
    ("a.txt", "5\n3\n512\n1\n3\n", None),
    ("no end.txt", "5\n3\n512\n1\n3", None),
    ("marked.txt", "\ufeff5\n3\n512\n1\n3\n", None),
    ("windows.txt", "5\r\n3\r\n512\r\n1\r\n3\r\n", None),
    ("a.jsonl", json_lines(LENGTHS), None),
    ("lists.ndjson", json_lines([list(range(n)) for n in LENGTHS]), None),
    ("a.jsonl", "\n" + json_lines(as_objects(LENGTHS)), "n"),
    ("a.jsonl", json_lines(as_objects(LENGTHS)), "ids"),
    ("a.json", json.dumps(LENGTHS), None),
    ("a.txt", "5.0\n3\n5.12e+02\n1.000000000000000000e+00\n3\n", None),
    ("a.jsonl", "5.0\n3\n512\n1\n3.0\n", None),
    ("a.csv", "5\n3\n512\n1\n3\n", None),
    ("a.csv", "tokens\n5\n3\n512\n1\n3\n", None),
    ("a.json", json.dumps(as_objects(LENGTHS)), "ids"),
    ("a.csv", 'id,n\na,5\nb,3\nc,512\n\nd,1\n"e\nf",3\n', "n"),
]


@pytest.mark.parametrize(("name", "text", "column"), TEXTS)
@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".bz2"])
def test_texts(tmp_path, name, text, column, compression):
    openers = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    path = tmp_path / (name + compression)
    with openers[compression](path, "wb") as stream:
        stream.write(text.encode("utf-8"))
    assert read_lengths(str(path), column).tolist() == LENGTHS


@pytest.mark.parametrize("compression", [".gz", ".xz", ".bz2"])
@pytest.mark.parametrize("damage", ["cut short", "changed"])
def test_damaged_compression(tmp_path, compression, damage):
    path = tmp_path / ("a.txt" + compression)
    with {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}[compression](path, "wb") as stream:
        stream.write(b"".join(b"%d\n" % n for n in range(1, 5000)))
    whole = bytearray(path.read_bytes())
    middle = len(whole) // 2
    if damage == "changed":
        whole[middle : middle + 100] = b"\xff" * 100
    path.write_bytes(whole if damage == "changed" else whole[:middle])
    assert_one_line_error(call_command(main, "histogram", str(path)), 2, path.name)


def test_csv_with_whole_documents_beside_the_length(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,n\n" + "x" * 200_000 + ",5\n", encoding="utf-8")
    assert read_lengths(str(path), "n").tolist() == [5]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64, ">i4"])
def test_arrays(tmp_path, dtype):
    values = np.array([5, 3, 12], dtype=dtype)
    np.save(tmp_path / "a.npy", values)
    found = read_lengths(str(tmp_path / "a.npy"))
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


def test_blocks_join_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("packing.read_lengths.BLOCK", 7)
    path = tmp_path / "a.txt"
    path.write_text("\n".join(str(n) for n in range(1, 200)) + "\n", encoding="utf-8")
    assert read_lengths(str(path)).tolist() == list(range(1, 200))
    path.write_text("\n".join([*(str(n) for n in range(1, 200)), "x"]), encoding="utf-8")
    with pytest.raises(ValueError, match="line 200: .* found 'x'"):
        read_lengths(str(path))


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("a.txt", b"5\n2.5\n", [], ["line 2", "a whole number, found '2.5'"]),
        ("a.txt", b"5\n\n3\n", [], ["line 2", "found nothing"]),
        ("a.txt", b"5\nnan\n", [], ["line 2", "nan"]),
        ("a.txt", b"5\n99999999999999999999\n", [], ["line 2", "below 2^63"]),
        ("a.txt", b"5\n0\n", [], ["line 2", "at least 1", "found 0"]),
        ("a.txt", b"5\n-3\n", [], ["line 2", "found -3"]),
        ("a.txt", b"5\n1_000\n", [], ["line 2", "1_000"]),
        ("a.txt", b"5\n" + b"9" * 5000, [], ["line 2", "99999"]),
        ("a.txt", "5\n3\n".encode("utf-16"), [], ["line 1"]),
        ("a.txt", b"\n", [], ["line 1"]),
        ("a.txt", b"", [], ["empty file"]),
        ("a.txt", b"5\n\xff\n", [], ["line 2"]),
        ("a.txt", b"5\n9\n", ["--max-length", "8"], ["lengths[1]", "1..8", "overlong"]),
        ("a.txt", b"5\n", ["--column", "n"], ["column", "no columns"]),
        ("a.txt", b"5\n", ["--split", "train"], ["split", "only datasets"]),
        ("a.txt", b"9\n", ["--max-length", "8", "--overlong", "drop"], ["all 1 sequences"]),
        ("a.txt", b"9\n", ["--overlong", "keep"], ["overlong: expected one of error, drop"]),
        ("a.jsonl", b"5\nnull\n", [], ["line 2", "None"]),
        ("a.jsonl", b"5\ntrue\n", [], ["line 2", "True"]),
        ("a.jsonl", b"5\nNaN\n", [], ["line 2", "nan"]),
        ("a.jsonl", b"5\n\n0\n", [], ["line 3", "found 0"]),
        ("a.jsonl", b"[5]\n[]\n", [], ["line 2", "an empty list"]),
        ("a.jsonl", b'"5"\n', [], ["line 1", "'5'"]),
        ("a.jsonl", b"5\n{\n", [], ["line 2", "not JSON"]),
        ("a.jsonl", b'{"n": 5}\n', [], ["line 1", "--column", "n"]),
        ("a.jsonl", b'{"n": 5}\n{"m": 5}\n', ["--column", "n"], ["line 2", "has no 'n'", "m"]),
        ("a.jsonl", b"5\n", ["--column", "n"], ["line 1", "an object"]),
        ("a.jsonl", b"\n", [], ["holds no lengths"]),
        ("a.json", b"{}", [], ["expected a list", "found one object"]),
        ("a.json", b"[]", [], ["holds no lengths"]),
        ("a.json", b"5\n3\n", [], ["JSON lines are named .jsonl"]),
        ("a.json", b"[5, 2.5]", [], ["item 1", "2.5"]),
        ("a.csv", b"id,n\na,5\n", [], ["--column", "id, n"]),
        ("a.csv", b"id,n\na,5\n", ["--column", "m"], ["id, n", "'m'"]),
        ("a.csv", b"id,n\na,5\nb\n", ["--column", "n"], ["line 3", "found nothing"]),
        ("a.csv", b"2.5\n3\n", [], ["line 1", "whole number, found '2.5'"]),
        ("a.csv", b"nan\n3\n", [], ["line 1", "whole number, found 'nan'"]),
        ("a.csv", b"1_0\n3\n", [], ["line 1", "whole number, found '1_0'"]),
        ("a.csv", b"\n3\n", [], ["line 1", "names of the columns, found nothing"]),
        ("a.csv", b'""\n3\n', [], ["line 1", "names of the columns, found ''"]),
        ("a.txt", b"9007199254740993.0\n", [], ["line 1", "9007199254740993.0"]),
        ("a.csv", b"5,x\n3,y\n", ["--column", "5"], ["line 1", "names of the columns", "5,x"]),
        ("a.csv", b",n\n0,5\n", [], ["--column must name one of '', n"]),
        ("a.csv", b"length,count\n5,9\n", ["--column", "length"], ["a histogram", "`solve`"]),
        ("a.csv", b"5\nx\n", [], ["line 2", "'x'"]),
        ("a.jsonl", b'{"t": "a b"}\n', ["--column", "t"], ["list of tokens", "text 'a b'"]),
        ("a.csv", b"id,n\na,0\n", ["--column", "n"], ["line 2", "found 0"]),
        ("a.csv", b"id,n\n\xff,5\n", ["--column", "n"], ["damaged"]),
        ("a.csv", b"id,n\n", ["--column", "n"], ["holds no lengths"]),
        ("a.npy", b"\x93NUMPY", [], ["not a .npy array"]),
        ("a.npy", b"PK\x03\x04", [], ["not a .npy array"]),
        ("a.txt.gz", b"5\n", [], ["damaged"]),
        ("a.txt.xz", b"5\n", [], ["damaged"]),
        ("a.txt.bz2", b"5\n", [], ["cannot be read"]),
        ("a.parquet", b"5\n", [], ["expected .npy", "'.parquet'"]),
        ("lengths", b"5\n", [], ["expected .npy"]),
        ("missing.parquet", None, ["--column", "n"], ["no such file"]),
        ("missing.txt", None, [], ["no such file"]),
    ],
)
def test_bad_lengths_are_one_line(tmp_path, name, content, options, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for command in (["histogram"], ["pack", "--output", str(tmp_path / "out.npz")]):
        limit = (
            [] if "--max-length" in options or command == ["histogram"] else ["--max-length", "600"]
        )
        done = call_command(main, *command, *limit, str(path), *options)
        assert_one_line_error(done, 2, *words)
    assert not (tmp_path / "out.npz").exists()


def test_overlong_needs_a_length_to_be_over(tmp_path):
    (tmp_path / "a.txt").write_text("9\n", encoding="utf-8")
    done = call_command(main, "histogram", str(tmp_path / "a.txt"), "--overlong", "drop")
    assert_one_line_error(done, 2, "overlong: drop needs --max-length")


@pytest.mark.parametrize("shape", [(2, 2), (0,), ()])
def test_arrays_of_other_shapes(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.ones(shape, dtype=np.int64))
    done = call_command(main, "histogram", str(tmp_path / "a.npy"))
    assert_one_line_error(done, 2, "a.npy")


def test_truncated_array_and_archive(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(1, 1000))
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-5])
    assert_one_line_error(call_command(main, "histogram", str(tmp_path / "a.npy")), 2, "a.npy")
    np.savez(tmp_path / "b.npz", lengths=np.arange(3))
    (tmp_path / "b.npz").rename(tmp_path / "b.npy")
    assert_one_line_error(
        call_command(main, "histogram", str(tmp_path / "b.npy")), 2, "not a .npy array"
    )


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets", reason="the library datasets is not installed")


@pytest.fixture
def folder(tmp_path, datasets):
    table = {"n": LENGTHS, "input_ids": [list(range(n)) for n in LENGTHS], "text": ["x"] * 5}
    datasets.Dataset.from_dict(table).save_to_disk(str(tmp_path / "one"))
    parts = {
        "train": datasets.Dataset.from_dict(table),
        "test": datasets.Dataset.from_dict({"n": [7]}),
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "parts"))
    return tmp_path


@pytest.mark.parametrize("column", ["n", "input_ids"])
def test_dataset_columns(folder, column):
    assert read_lengths(str(folder / "one"), column).tolist() == LENGTHS
    assert read_lengths(str(folder / "parts"), column, "train").tolist() == LENGTHS


def test_datasets_keep_their_order(folder, datasets):
    shuffled = datasets.load_from_disk(str(folder / "one")).select([4, 2, 0])
    shuffled.save_to_disk(str(folder / "some"))
    assert read_lengths(str(folder / "some"), "n").tolist() == [3, 512, 5]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("one", [], ["--column"]),
        ("one", ["--column", "m"], ["column: expected one of n, input_ids, text", "'m'"]),
        ("one", ["--column", "text"], ["expected whole numbers or lists", "string"]),
        ("one", ["--column", "n", "--split", "train"], ["is one split"]),
        ("parts", ["--column", "n"], ["split: expected one of train, test", "None"]),
        ("parts", ["--column", "n", "--split", "dev"], ["split: expected one of", "'dev'"]),
        (".", ["--column", "n"], ["cannot be read as a dataset"]),
    ],
)
def test_bad_datasets_are_one_line(folder, name, options, words):
    done = call_command(main, "histogram", str(folder / name), *options)
    assert_one_line_error(done, 2, *words)


def test_missing_values_in_a_dataset(tmp_path, datasets):
    datasets.Dataset.from_dict({"n": [1, None, 2]}).save_to_disk(str(tmp_path / "one"))
    done = call_command(main, "histogram", str(tmp_path / "one"), "--column", "n")
    assert_one_line_error(done, 2, "row 1", "'n' is missing")


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    done = call_command(main, "histogram", str(tmp_path), "--column", "n")
    assert_one_line_error(done, 2, "datasets", re.escape("[datasets]").replace("\\", ""))

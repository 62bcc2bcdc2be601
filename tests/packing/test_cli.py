"""python -m packing: output, option spelling, errors in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from packing import PackingPlan, __version__
from packing.__main__ import main
from packing.histogram import read_histogram, write_histogram
from tests.resources import assert_one_line_error, call_command

KEYS = [
    "algorithm",
    "max_length",
    "max_per_pack",
    "sequences",
    "tokens",
    "packs",
    "efficiency",
    "packing_factor",
    "token_bound",
    "seconds",
]


@pytest.fixture
def histogram(tmp_path):
    path = tmp_path / "a histogram.csv"
    path.write_text("length,count\n3,10\n5,4\n8,1\n", encoding="utf-8")
    return path


def test_solve_prints_and_writes(histogram, tmp_path):
    plan_path = tmp_path / "plan.json"
    done = call_command(
        main,
        *("solve", str(histogram), "--algorithm", "nnlshp", "--max-length", "8"),
        *("--max-per-pack", "2", "--output", str(plan_path), "--json"),
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert list(printed) == KEYS
    assert (printed["sequences"], printed["tokens"]) == (15, 58)
    plan = PackingPlan.load(plan_path)
    assert plan.num_packs == printed["packs"]
    assert np.array_equal(plan.histogram(), read_histogram(histogram))


def test_both_spellings_and_the_table(histogram):
    dashes = call_command(main, "solve", str(histogram), "--max-per-pack", "2")
    underscores = call_command(main, "solve", str(histogram), "--max_per_pack=2")
    assert dashes.returncode == underscores.returncode == 0, dashes.stderr

    def without_seconds(text):
        return [line for line in text.split("\n") if not line.startswith("seconds")]

    assert without_seconds(dashes.stdout) == without_seconds(underscores.stdout)
    for word in ("packs", "efficiency", "packing factor", "token bound"):
        assert word in dashes.stdout


def test_npy_counts(tmp_path):
    np.save(tmp_path / "counts.npy", np.array([0, 0, 3, 2]))
    done = call_command(main, "solve", str(tmp_path / "counts.npy"), "--json")
    assert json.loads(done.stdout)["sequences"] == 5


def test_help_and_version():
    assert call_command(main, "--version").stdout.strip() == f"packing {__version__}"
    shown = call_command(main, "solve", "--help").stdout
    assert "--max-per-pack" in shown
    assert "--max_per_pack" not in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ["no such file"]),
        ("", ["empty file"]),
        ("length,count\n3,-1\n", ["line 2", "3,-1"]),
        ("length,count\n3,1.5\n", ["line 2", "whole numbers", "3,1.5"]),
        ("3,1\n3,2\n", ["line 2", "listed twice"]),
        ("0,4\n", ["line 1", "a length in 1.."]),
        ("3\n", ["line 1"]),
        ("length,count\n3,0\n", ["histogram is empty"]),
        ("length,count\n9,2\n", ["counts[9]", "max_length 8"]),
        ("5.0,3\n7,2\n", ["line 1", "whole numbers", "5.0,3"]),  # no header: a wrong number
        ("5,4611686018427387904\n", ["line 1", "4611686018427387904"]),
        ("2147483648,1\n", ["line 1", "2147483648"]),
        ("3,1\r7,2\r", ["line 1"]),
    ],
)
def test_bad_histograms(tmp_path, text, words):
    path = tmp_path / "h.csv"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    done = call_command(main, "solve", str(path), "--max-length", "8")
    assert_one_line_error(done, 2, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-per-pack", "0"], ["max_per_pack", "found 0"]),
        (["--max-per-pack", "many"], ["max_per_pack", "expected int", "many"]),
        (["--algorithm", "magic"], ["spfhp", "magic"]),
        (["--depth", "3"], ["--depth"]),
        (["--algorithm", "nnlshp"], ["nnlshp needs a limit"]),
    ],
)
def test_bad_options(histogram, options, words):
    assert_one_line_error(call_command(main, "solve", str(histogram), *options), 2, *words)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00v\x00{'descr"])
def test_damaged_npy(tmp_path, content):
    path = tmp_path / "counts.npy"
    path.write_bytes(content)
    assert_one_line_error(call_command(main, "solve", str(path)), 2, str(path))


def test_no_command():
    assert_one_line_error(call_command(main), 2, "solve")


def test_histogram_file_round_trip(tmp_path):
    counts = np.array([0, 3, 0, 7])
    write_histogram(tmp_path / "h.csv", counts)
    assert np.array_equal(read_histogram(tmp_path / "h.csv"), counts)

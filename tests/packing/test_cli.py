"""python -m packing: output, option spelling, errors in one line."""

from __future__ import annotations

import csv
import json
import re
import sys
import time

import numpy as np
import pytest

from packing import PackingPlan, __version__, cli
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
    "lower_bound",
    "gap",
    "notes",
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
        (
            "length,count\n9,2\n12,3\n",
            ["h.csv: counts[9]", "max_length 8", "found 5", "12 tokens", "--overlong"],
        ),
        ("5.5,3\n7,2\n", ["line 1", "whole numbers", "5.5,3"]),  # no header: a wrong number
        ("1_0,3\n", ["line 1", "whole numbers", "1_0,3"]),
        ("tokens,number\n7,2\n", ["line 1", "the header `length,count`", "tokens,number"]),
        ("7\n3\n", ["line 1", "found '7'", "`histogram` or `pack`"]),
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
        (["--max-per-pack", "0"], ["max_per_pack", "found '0'"]),
        (["--max-per-pack", "many"], ["max_per_pack", "number >= 1 or none", "many"]),
        (["--algorithm", "magic"], ["spfhp", "magic"]),
        (["--depth", "3"], ["--depth"]),
        (["--max-lenght", "3"], ["--max-lenght", "did you mean --max-length?"]),
        (["--time-limit", "x"], ["time_limit: expected float, found 'x'"]),
        (["--output", "plan.csv"], ["plan.csv", "ends in .json"]),
        (["--algorithm", "nnlshp"], ["nnlshp needs a limit"]),
    ],
)
def test_bad_options(histogram, options, words):
    assert_one_line_error(call_command(main, "solve", str(histogram), *options), 2, *words)


def test_solve_is_auto_and_says_how_near_it_is(histogram):
    done = call_command(main, "solve", str(histogram), "--time-limit", "5")
    assert "lower bound" in done.stdout
    assert "gap            0 (the fewest packs possible)" in done.stdout
    printed = json.loads(call_command(main, "solve", str(histogram), "--json").stdout)
    assert printed["gap"] == printed["packs"] - printed["lower_bound"] == 0
    assert_one_line_error(
        call_command(main, "solve", str(histogram), "--time-limit", "0"), 2, "time_limit"
    )


@pytest.fixture
def lengths(tmp_path):
    path = tmp_path / "some lengths.npy"
    np.save(path, np.random.default_rng(0).integers(1, 70, 500).astype(np.uint16))
    return path


def test_histogram_then_solve(lengths, tmp_path):
    output = tmp_path / "h.csv"
    done = call_command(main, "histogram", str(lengths), "--output", str(output), "--max_length=80")
    assert done.returncode == 0, done.stderr
    for word in ("sequences", "tokens", "longest", "mean"):
        assert word in done.stdout
    counts = read_histogram(output)
    values = np.load(lengths)
    assert np.array_equal(counts, np.bincount(values))
    printed = call_command(main, "histogram", str(lengths))
    assert printed.stdout.startswith("length,count\n")
    for word in ("sequences", "tokens", "longest", "mean"):
        assert word in printed.stderr
    rows = [line.split(",") for line in printed.stdout.strip().split("\n")[1:]]
    assert [[int(a), int(b)] for a, b in rows] == [[n, counts[n]] for n in np.flatnonzero(counts)]
    as_json = json.loads(call_command(main, "histogram", str(lengths), "--json").stdout)
    assert (as_json["sequences"], as_json["tokens"]) == (500, values.sum())
    assert as_json["histogram"] == [[int(a), int(b)] for a, b in rows]
    solved = call_command(main, "solve", str(output), "--json")
    assert json.loads(solved.stdout)["sequences"] == 500


@pytest.mark.parametrize(
    ("overlong", "words"),
    [("drop", "left out"), ("truncate", "tokens lost"), ("split", "pieces")],
)
def test_what_the_policy_did_is_said(lengths, tmp_path, overlong, words):
    options = ("--max-length", "64", "--overlong", overlong)
    done = call_command(main, "histogram", str(lengths), *options)
    assert words in done.stderr
    output = tmp_path / "p.npz"
    done = call_command(main, "pack", str(lengths), *options, "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert words in done.stderr
    stored = np.load(output)
    assert ("starts" in stored.files) == (overlong == "split")
    assert (stored["dropped"].size > 0) == (overlong == "drop")


def test_pack_writes_packs(lengths, tmp_path):
    output = tmp_path / "new folder" / "p.npz"
    options = ("--max-length", "128", "--max-per-pack", "3", "--output", str(output), "--seed", "5")
    done = call_command(main, "pack", str(lengths), *options, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    stored = np.load(output, allow_pickle=False)
    assert (
        json.loads(str(stored["report"]))["packs"] == report["packs"] == stored["offsets"].size - 1
    )
    assert sorted(stored["ids"].tolist()) == list(range(500))
    totals = np.add.reduceat(np.load(lengths)[stored["ids"]].astype(int), stored["offsets"][:-1])
    assert totals.max() <= 128
    assert np.diff(stored["offsets"]).max() <= 3
    shown = call_command(main, "pack", str(lengths), *options)
    assert "gap" in shown.stdout
    for bad, expected in (("p.npy", "ends in .npz"), ("p", "ends in .npz"), (".", "a file name")):
        refused = call_command(main, "pack", str(lengths), "--max-length", "128", "--output", bad)
        assert_one_line_error(refused, 2, expected)


def test_compare_shows_all_solvers_at_all_depths(histogram, tmp_path):
    table = tmp_path / "table.csv"
    depths = ("--max-per-pack", "1", "2", "none", "--output", str(table))
    done = call_command(main, "compare", str(histogram), *depths)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().split("\n")
    assert lines[0].split()[:3] == ["depth", "solver", "packs"]
    for solver in ("spfhp", "lpfhp", "nnlshp", "optimal"):
        assert sum(solver in line for line in lines[2:] if not line.startswith("no fig")) == 3
    assert lines[-1].startswith("no figures: ")
    assert "needs a limit" in lines[-1]
    with open(table, encoding="utf-8", newline="") as stream:
        written = list(csv.DictReader(stream))
    assert len(written) == 3 * 4
    assert [row["max_per_pack"] for row in written[::4]] == ["1", "2", ""]
    assert [row["packs"] for row in written[:4]] == ["15"] * 4
    printed = json.loads(call_command(main, "compare", str(histogram), "--json").stdout)
    assert printed["max_length"] == 8
    assert len(printed["rows"]) == 6 * 4
    for row in printed["rows"]:
        assert ("packs" in row) != ("reason" in row)
        if "packs" in row:
            assert row["gap"] == row["packs"] - row["lower_bound"] >= 0
    few = ("--algorithms", "lpfhp", "--max_per_pack", "3", "3", "--max-length", "9")
    done = call_command(main, "compare", str(histogram), *few)
    assert len(done.stdout.strip().split("\n")) == 3
    assert json.loads(call_command(main, "compare", str(histogram), *few, "--json").stdout)["rows"][
        0
    ]["efficiency"] == pytest.approx(58 / (9 * 7))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-per-pack", "0"], ["max_per_pack", "'0'"]),
        (["--max-per-pack", "2", "many"], ["max_per_pack", "'many'"]),
        (["--max-per-pack", "²"], ["max_per_pack", "'²'"]),
        (["--algorithms", "magic"], ["algorithms", "'magic'"]),
        (["--algorithms", "nnlshp", "--max-length", "7"], ["counts[8]", "max_length 7"]),
        (["--algorithms", "nnlshp", "--time-limit", "0"], ["time_limit"]),
        (["--output", "table.txt"], ["table.txt", "ends in .csv"]),
        (["--max-length", "99999999"], ["max_length: expected at most"]),
    ],
)
def test_compare_refuses(histogram, options, words):
    assert_one_line_error(call_command(main, "compare", str(histogram), *options), 2, *words)


@pytest.mark.parametrize("suffix", ["png", "html"])
def test_plot(histogram, tmp_path, suffix):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    output = tmp_path / f"plan.{suffix}"
    done = call_command(main, "plot", str(histogram), "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert output.stat().st_size > 10_000
    as_json = call_command(main, "plot", str(histogram), "--output", str(output), "--json")
    assert json.loads(as_json.stdout)["gap"] == 0


def test_plot_says_what_it_cannot_do(histogram, tmp_path, monkeypatch):
    done = call_command(main, "plot", str(histogram), "--output", str(tmp_path / "plan.pdf"))
    assert_one_line_error(done, 2, "plan.pdf", ".png or .html")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    done = call_command(main, "plot", str(histogram), "--output", str(tmp_path / "plan.png"))
    assert_one_line_error(done, 2, "matplotlib", "[plot]")
    assert not (tmp_path / "plan.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plot", "h.csv"], ["--output is missing", "python -m packing plot --help"]),
        (["pack", "l.npy", "--output", "p.npz"], ["--max-length is missing"]),
        (["solve"], ["HISTOGRAM is missing", "python -m packing solve --help"]),
        (
            ["compare", "--max-per-pack", "2", "h.csv"],
            ["HISTOGRAM (before the options) is missing"],
        ),
        (["solve", "."], ["expected a histogram", "found a folder"]),
        (["--json", "solve", "h.csv"], ["--json before the command; --json goes after solve"]),
    ],
)
def test_missing_arguments_are_named_as_they_are_given(arguments, words):
    assert_one_line_error(call_command(main, *arguments), 2, *words)


def test_columns_of_a_histogram_may_be_in_any_order(tmp_path):
    straight, swapped = tmp_path / "h.csv", tmp_path / "s.csv"
    straight.write_text("length,count\n3,10\n5.0,7\n", encoding="utf-8")
    swapped.write_text('"Count", "Length"\n10,"3"\n7,5\n', encoding="utf-8")
    assert (
        read_histogram(straight).tolist() == read_histogram(swapped).tolist() == [0, 0, 0, 10, 0, 7]
    )


def test_no_limit_is_none_for_every_command(histogram):
    plain = call_command(main, "solve", str(histogram)).stdout.split("seconds")[0]
    limit = call_command(main, "solve", str(histogram), "--max-per-pack", "none").stdout
    assert limit.split("seconds")[0] == plain
    assert "no limit" in plain


def test_long_work_shows_that_it_goes_on(capsys, monkeypatch):
    monkeypatch.setattr(cli, "QUIET_FOR", 0.01)
    monkeypatch.setattr(cli, "TOLD_EVERY", 0.01)
    with cli.alive("solving"):
        while "solving: 0 s\n" not in capsys.readouterr().err:
            time.sleep(0.01)
    capsys.readouterr()  # another line may have come since
    monkeypatch.setattr(cli, "QUIET_FOR", 60.0)
    with cli.alive("solving"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("histogram", "h.csv"),
        ("solve", "plan.json"),
        ("compare", "table.csv"),
        ("plot", "plan.png"),
        ("pack", "p.npz"),
    ],
)
def test_output_that_cannot_be(histogram, lengths, tmp_path, command, name):
    source = str(lengths if command in ("histogram", "pack") else histogram)
    limit = ["--max-length", "128"] if command == "pack" else []

    def refused(output, *words):
        done = call_command(main, command, source, *limit, "--output", str(output))
        assert_one_line_error(done, 2, *words)
        assert done.stdout == ""

    (tmp_path / name).mkdir()
    refused(tmp_path / name, "found a folder")
    (tmp_path / "a file").write_text("", encoding="utf-8")
    refused(tmp_path / "a file" / name, "a file")
    assert not list(tmp_path.glob("*.partial"))


def test_output_is_never_the_input(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("length,count\n3,10\n", encoding="utf-8")
    for command, options in (("histogram", ["--column", "count"]), ("solve", []), ("compare", [])):
        done = call_command(main, command, str(path), *options, "--output", str(path))
        assert_one_line_error(done, 2, "is the input")
    assert path.read_text(encoding="utf-8") == "length,count\n3,10\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-length", "0"], ["max_length", "found 0"]),
        (["--max-length", "1099511627776"], ["max_length: expected at most", "1099511627776"]),
        (["--algorithm", "magic"], ["algorithm: expected one of", "magic"]),
        (["--algorithm", "nnlshp"], ["nnlshp needs a limit"]),
        (["--overlong", "keep"], ["overlong: expected one of", "keep"]),
        (["--seed", "-1"], ["seed", "found -1"]),
        (["--time-limit", "nan"], ["time_limit", "nan"]),
        (["--output", "p.zip"], ["p.zip", "ends in .npz"]),
    ],
)
def test_pack_refuses_options_by_name(lengths, tmp_path, options, words):
    """Not as a fault of the lengths."""
    given = ["--max-length", "128", "--output", str(tmp_path / "p.npz"), *options]
    done = call_command(main, "pack", str(lengths), *given)
    assert_one_line_error(done, 2, *words)
    assert lengths.name not in done.stderr


def test_lengths_too_long_for_a_table(tmp_path):
    np.save(tmp_path / "a.npy", np.array([3, 2**40]))
    done = call_command(main, "histogram", str(tmp_path / "a.npy"))
    assert_one_line_error(done, 2, "a.npy", "lengths[1]: expected at most", str(2**40))


@pytest.mark.parametrize("command", ["histogram", "solve", "compare", "plot", "pack"])
def test_help_has_an_example(command):
    shown = call_command(main, command, "--help").stdout
    examples = [line for line in shown.split("\n") if line.startswith("  python -m packing ")]
    assert examples
    for example in examples:
        assert example.startswith(f"  python -m packing {command} ")
        assert set(re.findall(r"--[\w-]+", example)) <= set(re.findall(r"--[\w-]+", shown))


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

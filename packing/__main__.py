"""Command line of packing: python -m packing COMMAND."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from packing import PackingPlan, cli, pack, solve
from packing.compare import add_compare
from packing.histogram import MAX_TOKENS, Counts, count_lengths, num_tokens, write_histogram
from packing.lengths import Fitted, Lengths, check_lengths, fit_lengths
from packing.options import (
    add_histogram_file,
    add_json,
    add_length_source,
    add_max_length,
    add_solver,
    check_options,
    check_output,
    gap_text,
    histogram_of,
    print_figures,
    print_notes,
)
from packing.plot import SUFFIXES, check_library, write_plot
from packing.read_lengths import read_lengths


def lengths_of(options: Any) -> Lengths:
    for library in ("DATASETS", "HF_HUB"):  # without a network, they tell of each of many retries
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    try:
        return read_lengths(options.lengths, options.column, options.split)
    except ImportError as error:
        raise ValueError(cli.missing_library("datasets", error)) from None


def describe_overlong(report: Dict[str, Any], max_length: int) -> List[str]:
    """What the policy did, in words; empty when it did nothing."""
    if not report["sequences"]:
        return []
    done = {
        "drop": "left out",
        "truncate": f"cut ({report['tokens_lost']:,} tokens lost)",
        "split": f"cut into {report['pieces']:,} pieces",
    }[report["policy"]]
    return [
        f"{report['sequences']:,} sequences over {max_length:,} tokens ({report['tokens']:,} tokens in "
        f"all) were {done}"
    ]


def add_histogram(parser: cli.Parser) -> Callable[[Any], None]:
    """Count the lengths of sequences: writes lines `length,count`.

    Examples:
      python -m packing histogram lengths.npy --output lengths.csv
      python -m packing histogram tokenized --column input_ids --split train --output lengths.csv
    """
    add_length_source(parser)
    add_max_length(parser)
    parser.add_argument(
        "--output", type=Optional[str], default=None, help="CSV file (default: print the lines)"
    )
    add_json(parser)
    return run_histogram


def run_histogram(options: Any) -> None:
    check_options(options)
    check_output(options.output, options.lengths, ".csv")
    if options.max_length is None and options.overlong != "error":
        raise ValueError(f"overlong: {options.overlong} needs --max-length, found none")
    lengths = lengths_of(options)
    fitted, counts = counted(lengths, options)
    present = np.flatnonzero(counts)
    figures = {
        "sequences": int(counts.sum()),
        "tokens": num_tokens(counts),
        "shortest": int(present[0]),
        "longest": int(present[-1]),
        "mean": num_tokens(counts) / int(counts.sum()),
    }
    if options.output:
        write_histogram(Path(options.output), counts)
    if options.json:
        rows = [[int(length), int(counts[length])] for length in present]
        print(json.dumps({**figures, "overlong": fitted.report, "histogram": rows}))
        return
    if not options.output:
        print("length,count")
        for length in present.tolist():
            print(f"{length},{counts[length]}")
    print_figures(figures, file=sys.stdout if options.output else sys.stderr)
    print_notes(describe_overlong(fitted.report, counts.size - 1))


def counted(lengths: Lengths, options: Any) -> Tuple[Fitted, Counts]:
    """Lengths that fit, and their counts; errors name the file."""
    try:
        longest = options.max_length
        if longest is None:
            longest = int(check_lengths(lengths).max())
        if longest > MAX_TOKENS:
            place = int(np.argmax(lengths))
            raise ValueError(
                f"lengths[{place}]: expected at most {MAX_TOKENS} tokens, found {longest}"
            )
        fitted = fit_lengths(lengths, longest, options.overlong)
        return fitted, count_lengths(fitted.lengths, longest)
    except ValueError as error:
        raise of_lengths(options, error) from None


def of_lengths(options: Any, error: ValueError) -> ValueError:
    """An error of the library, with the file's name, that names options as they are given here."""
    return ValueError(
        f"{options.lengths}: {error}".replace(
            "overlong='drop', 'truncate' or 'split'", "--overlong drop, truncate or split"
        )
    )


def add_solve(parser: cli.Parser) -> Callable[[Any], None]:
    """Find a packing plan for a histogram of sequence lengths.

    Examples:
      python -m packing solve lengths.csv --max-length 512 --max-per-pack 3
      python -m packing solve lengths.csv --output plan.json --json
    """
    add_histogram_file(parser)
    add_max_length(parser)
    add_solver(parser)
    parser.add_argument("--output", type=Optional[str], default=None, help="write the plan (JSON)")
    add_json(parser)
    return run_solve


def solved(options: Any) -> Tuple[Counts, PackingPlan, float]:
    """The histogram, its plan and the seconds that took."""
    counts = histogram_of(options)
    started = time.perf_counter()
    with cli.alive(f"solving with {options.algorithm}"):
        plan = solve(
            counts,
            max_length=counts.size - 1,
            max_per_pack=options.max_per_pack,
            algorithm=options.algorithm,
            time_limit=options.time_limit,
        )
    return counts, plan, time.perf_counter() - started


def run_solve(options: Any) -> None:
    check_options(options)
    check_output(options.output, options.histogram, ".json")
    _, plan, seconds = solved(options)
    if options.output:
        plan.save(Path(options.output))
    figures = plan.summary()
    notes = figures.pop("notes")
    bound = {name: figures.pop(name) for name in ("lower_bound", "gap")}
    figures = {**figures, "seconds": round(seconds, 4), **bound}
    if options.json:
        print(json.dumps({**figures, "notes": notes}))
    else:
        print_figures({**figures, "output": options.output} if options.output else figures)
        print_notes(notes)


def add_plot(parser: cli.Parser) -> Callable[[Any], None]:
    """Draw a histogram and its plan: lengths, fill of the packs, most frequent packs.

    Example:
      python -m packing plot lengths.csv --max-length 512 --output plan.html
    """
    add_histogram_file(parser)
    add_max_length(parser)
    add_solver(parser)
    parser.add_argument("--output", type=str, required=True, help="picture (.png) or page (.html)")
    add_json(parser)
    return run_plot


def run_plot(options: Any) -> None:
    check_options(options)
    check_output(options.output, options.histogram, *SUFFIXES)
    try:
        check_library()
    except ImportError as error:
        raise ValueError(cli.missing_library("plot", error)) from None
    counts, plan, _ = solved(options)
    write_plot(Path(options.output), counts, plan)
    if options.json:
        print(json.dumps({"output": options.output, **plan.summary()}))
        return
    packs = f"{plan.num_packs:,} pack{'s' if plan.num_packs > 1 else ''}"
    print(f"{options.output}: {packs} by {plan.algorithm}, {gap_text(plan.gap)}")
    print_notes(plan.notes)


def add_pack(parser: cli.Parser) -> Callable[[Any], None]:
    """Pack sequences of known lengths: writes which sequence goes into which pack.

    The .npz file holds `offsets` and `ids`: pack p holds the sequences ids[offsets[p]:offsets[p + 1]],
    counted from 0 in the order of the lengths. `report` is JSON text, `dropped` the ids left out; with
    --overlong split, `starts` and `lengths` say which part of its sequence each piece is.

    Examples:
      python -m packing pack lengths.npy --max-length 512 --output packs.npz
      python -m packing pack tokens.jsonl --column ids --max-length 512 --overlong split --output packs.npz
    """
    add_length_source(parser)
    parser.add_argument("--max_length", type=int, required=True, help="tokens per pack")
    add_solver(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the packs")
    parser.add_argument("--output", type=str, required=True, help="file for the packs (.npz)")
    add_json(parser)
    return run_pack


def run_pack(options: Any) -> None:
    check_options(options)
    check_output(options.output, options.lengths, ".npz")
    lengths = lengths_of(options)
    with cli.alive(f"packing with {options.algorithm}"):
        try:
            packed = pack(
                lengths,
                options.max_length,
                options.max_per_pack,
                options.algorithm,
                options.seed,
                options.overlong,
                options.time_limit,
            )
        except ValueError as error:
            if not str(error).startswith("lengths"):
                raise
            raise of_lengths(options, error) from None
        packed.save(Path(options.output))
    report = dict(packed.report)
    if options.json:
        print(json.dumps({"output": options.output, **report}))
        return
    notes = report.pop("notes")
    overlong = describe_overlong(report.pop("overlong"), options.max_length)
    print_figures({**report, "output": options.output})
    print_notes([*notes, *overlong])


def main(argv: Optional[Sequence[str]] = None) -> int:
    return cli.main(
        "packing",
        "Packs sequences of known lengths into rows of L tokens.",
        {
            "histogram": add_histogram,
            "solve": add_solve,
            "compare": add_compare,
            "plot": add_plot,
            "pack": add_pack,
        },
        argv,
    )


if __name__ == "__main__":
    sys.exit(main())

"""Command line of packing: python -m packing COMMAND."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from packing import SOLVERS, PackingPlan, cli, pack, solve
from packing.histogram import (
    Counts,
    check_at_least_one,
    count_lengths,
    num_tokens,
    read_histogram,
    write_histogram,
)
from packing.lengths import OVERLONG, Fitted, check_lengths, fit_lengths
from packing.optimal import TIME_LIMIT
from packing.plot import check_plot_path, write_plot
from packing.read_lengths import read_lengths

COMPARED = ("spfhp", "lpfhp", "nnlshp", "optimal")  # not auto, which is the best of these
DEPTHS = ("1", "2", "3", "4", "8", "none")


def add_length_source(parser: cli.Parser) -> None:
    parser.add_argument(
        "lengths",
        type=str,
        help="tokens of each sequence: .npy, .txt (one a line), .jsonl, .json, .csv (text also .gz, .xz, "
        ".bz2), or a Hugging Face dataset (folder of save_to_disk, or name)",
    )
    parser.add_argument(
        "--column",
        type=Optional[str],
        default=None,
        help="of JSON objects, CSV and datasets: holds the length, or a list whose items are counted",
    )
    parser.add_argument(
        "--split", type=Optional[str], default=None, help="of a dataset: train, validation, ..."
    )
    parser.add_argument(
        "--overlong",
        type=str,
        default="error",
        help=f"what to do with sequences over max_length: {', '.join(OVERLONG)}",
    )


def add_max_length(parser: cli.Parser) -> None:
    parser.add_argument(
        "--max_length",
        type=Optional[int],
        default=None,
        help="tokens per pack (default: the longest length)",
    )


def add_solver(parser: cli.Parser, required: bool = False) -> None:
    if required:
        parser.add_argument("--max_length", type=int, required=True, help="tokens per pack")
    else:
        add_max_length(parser)
    parser.add_argument(
        "--max_per_pack",
        type=Optional[int],
        default=None,
        help="most sequences per pack (default: no limit)",
    )
    parser.add_argument(
        "--algorithm", type=str, default="auto", help=f"solver: {', '.join(SOLVERS)}"
    )
    add_time_limit(parser)


def add_time_limit(parser: cli.Parser) -> None:
    parser.add_argument(
        "--time_limit", type=float, default=TIME_LIMIT, help="seconds for optimal and auto"
    )


def add_histogram_file(parser: cli.Parser) -> None:
    parser.add_argument(
        "histogram", type=str, help="CSV lines `length,count`, or a .npy array of counts by length"
    )


def add_json(parser: cli.Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def check_limits(options: Any) -> None:
    for name in ("max_length", "max_per_pack"):
        if getattr(options, name, None) is not None:
            check_at_least_one(name, getattr(options, name))


def lengths_of(options: Any) -> Any:
    try:
        return read_lengths(options.lengths, options.column, options.split)
    except ImportError as error:
        raise ValueError(cli.missing_library("datasets", error)) from None


def limit_text(limit: Optional[int]) -> str:
    return "no limit" if limit is None else f"{limit:,}"


def print_figures(figures: Dict[str, Any]) -> None:
    """One line for each figure, numbers grouped, fractions as they are read."""
    for key, value in figures.items():
        if key == "max_per_pack":
            shown = limit_text(value)
        elif key == "gap":
            shown = f"{value:,} (at most so many packs above the best possible)"
        elif key == "efficiency":
            shown = f"{value:.4%}"
        elif isinstance(value, float) and key != "seconds":
            shown = f"{value:,.4f}"
        else:
            shown = f"{value:,}" if isinstance(value, int) else value
        print(f"{key.replace('_', ' '):<15}{shown}")


def print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


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

    Example: python -m packing histogram lengths.npy --output lengths.csv
    """
    add_length_source(parser)
    add_max_length(parser)
    parser.add_argument(
        "--output", type=Optional[str], default=None, help="CSV file (default: print the lines)"
    )
    add_json(parser)
    return run_histogram


def run_histogram(options: Any) -> None:
    check_limits(options)
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
    print_notes(describe_overlong(fitted.report, counts.size - 1))
    if options.output:
        write_histogram(Path(options.output), counts)
    if options.json:
        rows = [[int(length), int(counts[length])] for length in present]
        print(json.dumps({**figures, "overlong": fitted.report, "histogram": rows}))
    elif options.output:
        print_figures(figures)
    else:
        print("length,count")
        for length in present.tolist():
            print(f"{length},{counts[length]}")


def counted(lengths: Any, options: Any) -> Tuple[Fitted, Counts]:
    """Lengths that fit, and their counts; errors name the file."""
    try:
        longest = options.max_length
        if longest is None:
            longest = int(check_lengths(lengths).max())
        fitted = fit_lengths(lengths, longest, options.overlong)
        return fitted, count_lengths(fitted.lengths, longest)
    except ValueError as error:
        raise ValueError(f"{options.lengths}: {error}") from None


def add_solve(parser: cli.Parser) -> Callable[[Any], None]:
    """Find a packing plan for a histogram of sequence lengths.

    Example: python -m packing solve lengths.csv --max-length 512 --max-per-pack 3
    """
    add_histogram_file(parser)
    add_solver(parser)
    parser.add_argument("--output", type=Optional[str], default=None, help="write the plan (JSON)")
    add_json(parser)
    return run_solve


def solved(options: Any) -> Tuple[Counts, PackingPlan, float]:
    """The histogram, its plan and the seconds that took."""
    check_limits(options)
    counts = read_histogram(Path(options.histogram))
    started = time.perf_counter()
    with cli.alive(f"solving with {options.algorithm}"):
        plan = solve(
            counts,
            max_length=options.max_length,
            max_per_pack=options.max_per_pack,
            algorithm=options.algorithm,
            time_limit=options.time_limit,
        )
    return counts, plan, time.perf_counter() - started


def run_solve(options: Any) -> None:
    _, plan, seconds = solved(options)
    if options.output:
        plan.save(Path(options.output))
    figures = plan.summary()
    notes = figures.pop("notes")
    bound = {name: figures.pop(name) for name in ("lower_bound", "gap")}
    figures = {**figures, "seconds": round(seconds, 4), **bound}
    print_notes(notes)
    if options.json:
        print(json.dumps({**figures, "notes": notes}))
    else:
        print_figures(figures)


def add_compare(parser: cli.Parser) -> Callable[[Any], None]:
    """Compare all solvers at several depths on one histogram.

    The lower bound is the best one known for the depth, that of `optimal`; gap: packs above it.
    Example: python -m packing compare lengths.csv --max-length 512 --depths 2 3 none
    """
    add_histogram_file(parser)
    add_max_length(parser)
    parser.add_argument(
        "--depths",
        nargs="+",
        type=str,
        default=list(DEPTHS),
        help=f"most sequences per pack, none = no limit (default: {' '.join(DEPTHS)})",
    )
    parser.add_argument(
        "--algorithms",
        nargs="+",
        type=str,
        default=list(COMPARED),
        help=f"solvers (default: {' '.join(COMPARED)})",
    )
    add_time_limit(parser)
    add_json(parser)
    return run_compare


def run_compare(options: Any) -> None:
    check_limits(options)
    depths = [parse_depth(text) for text in options.depths]
    for name in options.algorithms:
        if name not in SOLVERS:
            expected = ", ".join(SOLVERS)
            raise ValueError(f"algorithms: expected some of {expected}, found {name!r}")
    counts = read_histogram(Path(options.histogram))
    rows: List[Dict[str, Any]] = []
    for depth in depths:
        plans = {}
        for name in options.algorithms:
            row: Dict[str, Any] = {"max_per_pack": depth, "algorithm": name}
            started = time.perf_counter()
            with cli.alive(f"{name}, depth {limit_text(depth)}"):
                try:
                    plans[name] = solve(counts, options.max_length, depth, name, options.time_limit)
                except ValueError as error:
                    if name != "nnlshp":  # it alone refuses what other solvers do
                        raise
                    row["reason"] = str(error)
            rows.append({**row, "seconds": round(time.perf_counter() - started, 4)})
        bound = max((plan.lower_bound for plan in plans.values()), default=None)
        for row in rows[-len(options.algorithms) :]:
            if row["algorithm"] in plans:
                row.update(compared(plans[row["algorithm"]], bound))
    if options.json:
        print(json.dumps({"histogram": options.histogram, "rows": rows}))
        return
    header = [
        "depth",
        "solver",
        "packs",
        "lower bound",
        "gap",
        "efficiency",
        "packing factor",
        "seconds",
    ]
    cli.print_table([header, *(comparison_row(row) for row in rows)])
    for reason in dict.fromkeys(row["reason"] for row in rows if "reason" in row):
        print(f"-: {reason}")
    print_notes(list(dict.fromkeys(note for row in rows for note in row.get("notes", []))))


def parse_depth(text: str) -> Optional[int]:
    if text.lower() == "none":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"depths: expected whole numbers >= 1 or none, found {text!r}")
    return int(text)


def compared(plan: PackingPlan, bound: Any) -> Dict[str, Any]:
    return {
        "packs": plan.num_packs,
        "lower_bound": bound,
        "gap": plan.num_packs - bound,
        "efficiency": plan.efficiency,
        "packing_factor": plan.packing_factor,
        "notes": list(plan.notes),
    }


def comparison_row(row: Dict[str, Any]) -> List[str]:
    cells = [limit_text(row["max_per_pack"]), row["algorithm"]]
    if "packs" not in row:
        return [*cells, *"------"]
    cells += [f"{row[key]:,}" for key in ("packs", "lower_bound", "gap")]
    return [
        *cells,
        f"{row['efficiency']:.3%}",
        f"{row['packing_factor']:.3f}",
        f"{row['seconds']:.3f}",
    ]


def add_plot(parser: cli.Parser) -> Callable[[Any], None]:
    """Draw a histogram and its plan: lengths, fill of the packs, most frequent packs.

    Example: python -m packing plot lengths.csv --max-length 512 --output plan.html
    """
    add_histogram_file(parser)
    add_solver(parser)
    parser.add_argument("--output", type=str, required=True, help="picture (.png) or page (.html)")
    add_json(parser)
    return run_plot


def run_plot(options: Any) -> None:
    check_plot_path(Path(options.output))
    counts, plan, _ = solved(options)
    try:
        write_plot(Path(options.output), counts, plan)
    except ImportError as error:
        raise ValueError(cli.missing_library("plot", error)) from None
    print_notes(plan.notes)
    if options.json:
        print(json.dumps({"output": options.output, **plan.summary()}))
    else:
        print(f"{options.output}: {plan.num_packs:,} packs by {plan.algorithm}, gap {plan.gap:,}")


def add_pack(parser: cli.Parser) -> Callable[[Any], None]:
    """Pack sequences of known lengths: writes which sequence goes into which pack.

    The .npz file holds `offsets` and `ids`: pack p holds the sequences ids[offsets[p]:offsets[p + 1]],
    counted from 0 in the order of LENGTHS.
    Example: python -m packing pack lengths.npy --max-length 512 --output packs.npz
    """
    add_length_source(parser)
    add_solver(parser, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the packs")
    parser.add_argument("--output", type=str, required=True, help="file for the packs (.npz)")
    add_json(parser)
    return run_pack


def run_pack(options: Any) -> None:
    check_limits(options)
    output = Path(options.output)
    if output.suffix != ".npz" or output.is_dir():
        raise ValueError(f"{output}: expected a file name that ends in .npz")
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
            raise ValueError(f"{options.lengths}: {error}") from None
        packed.save(output)
    report = dict(packed.report)
    if options.json:
        print(json.dumps({"output": options.output, **report}))
        return
    print_notes(
        [*report.pop("notes"), *describe_overlong(report.pop("overlong"), options.max_length)]
    )
    print_figures(report)


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

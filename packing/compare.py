"""The command compare: all solvers at several depths on one histogram."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from packing import SOLVERS, PackingPlan, cli, solve
from packing.files import whole_file
from packing.histogram import Counts
from packing.options import (
    add_histogram_file,
    add_json,
    add_max_length,
    add_time_limit,
    check_options,
    check_output,
    depth_of,
    histogram_of,
    limit_text,
    print_notes,
)

COMPARED = ("spfhp", "lpfhp", "nnlshp", "optimal")  # not auto, which is the best of these
DEPTHS = ("1", "2", "3", "4", "8", "none")
FIGURES = ("packs", "lower_bound", "gap", "efficiency", "packing_factor", "seconds")
COLUMNS: Sequence[str] = ("max_per_pack", "algorithm", *FIGURES, "reason")  # of the CSV file


def add_compare(parser: cli.Parser) -> Callable[[Any], None]:
    """Compare all solvers at several depths on one histogram.

    The lower bound of a depth is the best that its solvers prove, that of `optimal` where it is one of
    them; gap is the packs above it.

    Examples:
      python -m packing compare lengths.csv --max-length 512
      python -m packing compare lengths.csv --max-per-pack 2 3 none --output table.csv
    """
    add_histogram_file(parser)
    add_max_length(parser)
    parser.add_argument(
        "--max_per_pack",
        nargs="+",
        type=str,
        default=list(DEPTHS),
        help="depths: most sequences per pack, none = no limit",
    )
    parser.add_argument(
        "--algorithms", nargs="+", type=str, default=list(COMPARED), help="solvers to compare"
    )
    add_time_limit(parser)
    parser.add_argument(
        "--output", type=Optional[str], default=None, help="write the table (.csv) as well"
    )
    add_json(parser)
    return run_compare


def run_compare(options: Any) -> None:
    check_options(options)
    check_output(options.output, options.histogram, ".csv")
    depths = list(dict.fromkeys(map(depth_of, options.max_per_pack)))
    algorithms = list(dict.fromkeys(options.algorithms))
    for name in algorithms:
        if name not in SOLVERS:
            expected = ", ".join(SOLVERS)
            raise ValueError(f"algorithms: expected some of {expected}, found {name!r}")
    counts = histogram_of(options)
    rows: List[Dict[str, Any]] = []
    for depth in depths:
        rows += compare_depth(counts, depth, algorithms, options.time_limit)
    if options.output:
        _write_rows(Path(options.output), rows)
    if options.json:
        print(
            json.dumps(
                {"histogram": options.histogram, "max_length": counts.size - 1, "rows": rows}
            )
        )
        return
    header = ["depth", "solver", *(name.replace("_", " ") for name in FIGURES)]
    cli.print_table([header, *(_cells(row) for row in rows)])
    for reason in dict.fromkeys(row["reason"] for row in rows if "reason" in row):
        print(f"no figures: {reason}")
    print_notes(list(dict.fromkeys(note for row in rows for note in row.get("notes", []))))


def compare_depth(
    counts: Counts, max_per_pack: Optional[int], algorithms: Sequence[str], time_limit: float
) -> List[Dict[str, Any]]:
    """One row for each solver. All gaps are above the best bound that one of the solvers proved.

    counts (L+1,) checked, so that what nnlshp refuses is the size of its problem: its row then holds
    the reason in place of the figures.
    """
    rows: List[Dict[str, Any]] = []
    plans: Dict[str, PackingPlan] = {}
    for name in algorithms:
        row: Dict[str, Any] = {"max_per_pack": max_per_pack, "algorithm": name}
        started = time.perf_counter()
        with cli.alive(f"{name}, depth {limit_text(max_per_pack)}"):
            try:
                plans[name] = solve(counts, counts.size - 1, max_per_pack, name, time_limit)
            except ValueError as error:
                if name != "nnlshp":  # it alone refuses what other solvers do
                    raise
                row["reason"] = str(error)
        rows.append({**row, "seconds": round(time.perf_counter() - started, 4)})
    bound = max((plan.lower_bound for plan in plans.values()), default=0)
    return [
        {**row, **_figures(plans[row["algorithm"]], bound)} if row["algorithm"] in plans else row
        for row in rows
    ]


def _figures(plan: PackingPlan, bound: int) -> Dict[str, Any]:
    return {
        "packs": plan.num_packs,
        "lower_bound": bound,
        "gap": plan.num_packs - bound,
        "efficiency": plan.efficiency,
        "packing_factor": plan.packing_factor,
        "notes": list(plan.notes),
    }


def _cells(row: Dict[str, Any]) -> List[str]:
    cells = [limit_text(row["max_per_pack"]), row["algorithm"]]
    if "packs" not in row:
        return [*cells, *("-" for _ in FIGURES)]
    cells += [f"{row[key]:,}" for key in ("packs", "lower_bound", "gap")]
    cells += [f"{row['efficiency']:.3%}", f"{row['packing_factor']:.3f}", f"{row['seconds']:.3f}"]
    return cells


def _write_rows(path: Path, rows: Sequence[Dict[str, Any]]) -> None:
    """CSV with a header; a cell is empty where a row has no such figure or the depth no limit."""
    with whole_file(path) as partial:
        with open(partial, "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(
                stream, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(rows)

"""Command line of packing: python -m packing COMMAND."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

from packing import SOLVERS, cli, solve
from packing.histogram import check_at_least_one, read_histogram


def add_solve(parser: cli.Parser) -> Callable[[Any], None]:
    """Find a packing plan for a histogram of sequence lengths."""
    parser.add_argument(
        "histogram", type=str, help="CSV lines `length,count`, or a .npy array of counts by length"
    )
    parser.add_argument(
        "--algorithm", type=str, default="lpfhp", help=f"solver: {', '.join(SOLVERS)}"
    )
    parser.add_argument(
        "--max_length",
        type=Optional[int],
        default=None,
        help="tokens per pack (default: the longest length)",
    )
    parser.add_argument(
        "--max_per_pack",
        type=Optional[int],
        default=None,
        help="most sequences per pack (default: no limit)",
    )
    parser.add_argument("--output", type=Optional[str], default=None, help="write the plan (JSON)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return run_solve


def run_solve(options: Any) -> None:
    for name in ("max_length", "max_per_pack"):
        if getattr(options, name) is not None:
            check_at_least_one(name, getattr(options, name))
    counts = read_histogram(Path(options.histogram))
    started = time.perf_counter()
    plan = solve(
        counts,
        max_length=options.max_length,
        max_per_pack=options.max_per_pack,
        algorithm=options.algorithm,
    )
    seconds = time.perf_counter() - started
    if options.output:
        plan.save(Path(options.output))
    summary: Dict[str, Any] = {
        "algorithm": plan.algorithm,
        "max_length": plan.max_length,
        "max_per_pack": plan.max_per_pack,
        "sequences": plan.num_sequences,
        "tokens": plan.num_tokens,
        "packs": plan.num_packs,
        "efficiency": plan.efficiency,
        "packing_factor": plan.packing_factor,
        "token_bound": plan.token_bound,
        "seconds": round(seconds, 4),
    }
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    if options.json:
        print(json.dumps(summary))
        return
    summary["max_per_pack"] = "no limit" if plan.max_per_pack is None else plan.max_per_pack
    summary["efficiency"] = f"{plan.efficiency:.4%}"
    summary["packing_factor"] = f"{plan.packing_factor:.4f}"
    for key, value in summary.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        print(f"{key.replace('_', ' '):<15}{shown}")


def main(argv: Optional[Sequence[str]] = None) -> int:
    return cli.main(
        "packing",
        "Packs sequences of known lengths into rows of L tokens.",
        {"solve": add_solve},
        argv,
    )


if __name__ == "__main__":
    sys.exit(main())

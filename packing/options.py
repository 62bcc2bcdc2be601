"""What the commands of `python -m packing` share: options, their checks, and how figures are printed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, TextIO

from packing import SOLVERS, cli
from packing.histogram import MAX_TOKENS, Counts, check_at_least_one, check_counts, read_histogram
from packing.lengths import OVERLONG
from packing.optimal import TIME_LIMIT


def add_length_source(parser: cli.Parser) -> None:
    parser.add_argument(
        "lengths",
        type=str,
        help="tokens of each sequence: .npy, .txt (one number a line), .jsonl, .json, .csv (text also .gz, "
        ".xz, .bz2), or a Hugging Face dataset (folder of save_to_disk, or name on the hub)",
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


def add_solver(parser: cli.Parser) -> None:
    parser.add_argument(
        "--max_per_pack",
        type=str,
        default="none",
        help="most sequences per pack, none = no limit",
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


def check_options(options: Any) -> None:
    """Refuses what no input can make right, before it is read; turns max_per_pack into a number or None.

    Raises ValueError naming the option.
    """
    if getattr(options, "max_length", None) is not None:
        check_at_least_one("max_length", options.max_length)
    if isinstance(getattr(options, "max_per_pack", None), str):
        options.max_per_pack = depth_of(options.max_per_pack)
    if (getattr(options, "max_length", None) or 0) > MAX_TOKENS:
        raise ValueError(
            f"max_length: expected at most {MAX_TOKENS} tokens, found {options.max_length}"
        )
    if not getattr(options, "time_limit", 1.0) > 0:
        raise ValueError(f"time_limit: expected seconds > 0, found {options.time_limit}")
    if getattr(options, "seed", 0) < 0:
        raise ValueError(f"seed: expected a whole number >= 0, found {options.seed}")
    for name, known in (("algorithm", tuple(SOLVERS)), ("overlong", OVERLONG)):
        if getattr(options, name, known[0]) not in known:
            raise ValueError(
                f"{name}: expected one of {', '.join(known)}, found {getattr(options, name)!r}"
            )


def depth_of(text: str) -> Optional[int]:
    """max_per_pack as a command line gives it: a number, or none (null) for no limit."""
    if text.lower() in ("none", "null"):
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ValueError(f"max_per_pack: expected a whole number >= 1 or none, found {text[:80]!r}")
    return int(text)


def histogram_of(options: Any) -> Counts:
    """The checked histogram (L+1,) of the command; errors name its file."""
    path, length = Path(options.histogram), options.max_length
    counts = read_histogram(path)
    try:
        return check_counts(counts, length)
    except ValueError as error:
        remedy = ""
        if length is not None and counts.size > length + 1:
            remedy = (
                f"; `histogram` with --max-length {length} and --overlong drop, truncate or split makes "
                "one that fits"
            )
        raise ValueError(f"{path}: {error}{remedy}") from None


def check_output(output: Optional[str], source: str, *suffixes: str) -> None:
    """Refuses a file that could not be written, before the work: a folder, another suffix, the input."""
    if output is None:
        return
    path = Path(output)
    if path.is_dir() or not path.name:
        raise ValueError(f"{output!r}: expected a file name, found a folder")
    if path.exists() and os.path.exists(source) and os.path.samefile(output, source):
        raise ValueError(f"{output}: is the input, expected another file name")
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"{output}: expected a file name that ends in {' or '.join(suffixes)}")


def limit_text(limit: Optional[int]) -> str:
    return "no limit" if limit is None else f"{limit:,}"


def gap_text(gap: int) -> str:
    """What a gap means, in words."""
    if gap == 0:
        return "the fewest packs possible"
    return f"at most {gap:,} pack{'s' if gap > 1 else ''} above the best possible"


def print_figures(figures: Dict[str, Any], file: Optional[TextIO] = None) -> None:
    """One line for each figure, numbers grouped, fractions as they are read."""
    for key, value in figures.items():
        if key == "max_per_pack":
            shown = limit_text(value)
        elif key == "gap":
            shown = f"{value:,} ({gap_text(value)})"
        elif key == "efficiency":
            shown = f"{value:.4%}"
        elif isinstance(value, float) and key != "seconds":
            shown = f"{value:,.4f}"
        else:
            shown = f"{value:,}" if isinstance(value, int) else value
        print(f"{key.replace('_', ' '):<15}{shown}", file=file)


def print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)

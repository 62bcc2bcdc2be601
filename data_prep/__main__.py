"""Command line of data preparation: python -m data_prep COMMAND."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

from packing import cli

try:
    from data_prep.config import DataConfig
    from data_prep.pipeline import dry_run, run
    from data_prep.report import write_report
    from data_prep.verify import Mismatch, verify
except ModuleNotFoundError as error:
    sys.exit("data_prep: error: " + cli.missing_library("data,plot", error))


def add_run(parser: cli.Parser) -> Callable[[Any], None]:
    """Run all stages: text in, packed shards out."""
    parser.add_argument("--config", action="config", help="YAML file; several: later ones win")
    parser.add_class_arguments(DataConfig)
    parser.add_argument(
        "--dry_run", action="store_true", help="print what would run and how much disk it needs"
    )
    parser.add_argument("--overwrite", action="store_true", help="make changed stages anew")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return run_run


def run_run(options: Any) -> None:
    config = cli.dataclass_from(DataConfig, options)
    if options.dry_run:
        _print_dry_run(dry_run(config), options.json)
        return
    try:
        manifest = run(config, options.overwrite)
    except Mismatch as error:
        raise cli.CheckFailed(f"verify: {error}") from None
    _print_manifest(manifest, config.output_dir, options.json)


def add_verify(parser: cli.Parser) -> Callable[[Any], None]:
    """Read a data folder again and check every invariant; exit 1 if one is broken."""
    parser.add_argument("folder", type=str, help="data folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return run_verify


def run_verify(options: Any) -> None:
    try:
        result = verify(Path(options.folder))
    except Mismatch as error:
        raise cli.CheckFailed(f"verify: {error}") from None
    if options.json:
        print(json.dumps(result["counts"]))
        return
    for split, counts in result["counts"].items():
        against = "examples stage" if counts["compared_with_examples"] else "manifest"
        print(
            f"{split}: {counts['packs']:,} packs, {counts['sequences']:,} sequences, "
            f"{counts['tokens']:,} tokens: whole, each example once (compared with the {against})"
        )


def add_report(parser: cli.Parser) -> Callable[[Any], None]:
    """Draw the length histogram and the fill of the packs as one HTML page."""
    parser.add_argument("folders", type=str, nargs="+", help="data folders")
    parser.add_argument("--output", type=str, default="report.html", help="HTML file to write")
    return run_report


def run_report(options: Any) -> None:
    write_report(Path(options.output), [Path(folder) for folder in options.folders])
    print(options.output)


def _print_dry_run(result: Dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    estimated = result["estimated_bytes"]
    for name, state in result["stages"].items():
        size = f"about {megabytes(estimated[name])}" if name in estimated else ""
        print(f"{name:<11}{state:<28}{size:<20}{result['folders'][name]}")
    total = sum(estimated.values())
    print(f"estimated disk {megabytes(total)}, free {megabytes(result['free_bytes'])}")


def megabytes(number: float) -> str:
    return f"{number / 1e6:,.1f} MB" if number >= 1e5 else f"{number / 1e3:,.1f} kB"


def _print_manifest(manifest: Dict[str, Any], folder: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"folder": folder, "splits": manifest["splits"]}))
        return
    excluded = ", ".join(f"{n:,} {reason}" for reason, n in manifest["excluded"].items())
    print(f"{manifest['documents']['documents']:,} documents; left out: {excluded or 'nothing'}")
    for split, packed in manifest["splits"].items():
        print(
            f"{split:<11}{packed['documents']:>9,} documents {packed['sequences']:>9,} sequences "
            f"{packed['packs']:>9,} packs   packing factor {packed['packing_factor']:.3f}   "
            f"efficiency {packed['efficiency']:.2%}   lower bound {packed['lower_bound']:,}"
        )
        for note in packed["notes"]:
            print(f"           note: {note}")
    print(f"data folder: {folder}")


def main(argv: Optional[Sequence[str]] = None) -> int:
    return cli.main(
        "data_prep",
        "From a Wikipedia dump, or any text, to packed BERT shards.",
        {"run": add_run, "verify": add_verify, "report": add_report},
        argv,
    )


if __name__ == "__main__":
    sys.exit(main())

"""make demo: a real Wikipedia dump in, a trained packed BERT out, with a table and report.html.

Runs the command lines of data_prep and bert_ipu as a user would, prints each one, and sums up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from bert_ipu.metrics import read_metrics
from data_prep.report import data_section
from packing import cli, solve
from packing.files import read_json
from packing.histogram import read_histogram
from packing.page import figure, new_axes, table, write_page

ROOT = Path(__file__).resolve().parent
OUT = Path("out")
MODEL_DIR = OUT / "tiny_bert"
REPORT = OUT / "report.html"
PHASES = (("phase 1", "sample_128", "tiny_phase1"), ("phase 2", "sample_512", "tiny_phase2"))
HISTOGRAM_VARIABLE = "PACKED_BERT_TEST_DATA"
HISTOGRAM = Path("histograms") / "wikipedia_512.csv"


def main() -> int:
    os.chdir(ROOT)
    started = time.perf_counter()
    for _, data, _ in PHASES:
        run("data_prep", "run", "--config", f"configs/data/{data}.yaml")
    for _, _, training in PHASES:
        run("bert_ipu", "train", "--config", f"configs/pretrain/{training}.yaml")
    last_run = OUT / PHASES[-1][2]
    run(
        *("bert_ipu", "export", "--checkpoint", str(last_run)),
        *("--output", str(MODEL_DIR), "--overwrite"),
    )
    summaries = [read_json(OUT / training / "summary.json") for _, _, training in PHASES]
    header, rows = results(summaries, published_plan())
    print()
    print_table(header, rows)
    entropy = summaries[-1]["unigram_entropy"]
    print(
        f"\nA model that knows only how frequent each token is has an MLM loss of {entropy:.2f} nats."
        f"\nexported model: {MODEL_DIR}   (transformers.BertForPreTraining.from_pretrained)"
        f"\nreport:         {REPORT}"
        f"\n{time.perf_counter() - started:.0f} seconds in all"
    )
    sections = ["<h2>Training</h2>" + table(header, rows) + figure(*loss_curves())]
    sections += [data_section(OUT / data) for _, data, _ in PHASES]
    write_page(REPORT, "Packed BERT: from a Wikipedia dump to a model", sections)
    return 0


def run(package: str, *arguments: str) -> None:
    """Runs one command line of the project, shown first; ends the demo when it fails."""
    print(f"\n$ python -m {package} {' '.join(arguments)}", flush=True)
    code = subprocess.call([sys.executable, "-m", package, *arguments])
    if code:
        raise SystemExit(code)


def published_plan() -> Optional[Dict[str, float]]:
    """The paper's Wikipedia histogram, packed on the spot, where the file is at hand.

    It is looked for in the folder that PACKED_BERT_TEST_DATA names, else in a `data` folder beside
    the project.
    """
    named = os.environ.get(HISTOGRAM_VARIABLE)
    folders = [Path(named)] if named else sorted(ROOT.parent.glob("*/data"))
    found = [folder / HISTOGRAM for folder in folders if (folder / HISTOGRAM).is_file()]
    if not found:
        return None
    plan = solve(read_histogram(found[0]), max_length=512)
    return {
        "sequences": plan.num_sequences,
        "packs": plan.num_packs,
        "packing_factor": plan.packing_factor,
        "efficiency": plan.efficiency,
        "lower_bound": plan.lower_bound,
    }


def results(
    summaries: List[Dict[str, Any]], published: Optional[Dict[str, float]]
) -> Tuple[List[str], List[List[str]]]:
    """Header and rows of the table: one column for each phase, one for the published histogram."""
    header = [""] + [
        f"{name} (L = {s['max_length']})" for (name, _, _), s in zip(PHASES, summaries)
    ]
    columns = [describe(summary) for summary in summaries]
    if published:
        header.append("published Wikipedia histogram (L = 512)")
        columns.append(describe(published))
    rows = [[key, *(column.get(key, "-") for column in columns)] for key in columns[0]]
    return header, rows


def describe(summary: Dict[str, Any]) -> Dict[str, str]:
    """One column of the table; the published histogram has no training figures."""
    column = {
        "sequences": f"{summary['sequences']:,}",
        "packs": f"{summary['packs']:,}",
        "packing factor": f"{summary['packing_factor']:.3f}",
        "efficiency": f"{summary['efficiency']:.2%}",
        "lower bound": f"{summary['lower_bound']:,}",
    }
    if "steps" in summary:
        validation = summary["validation"]
        column.update(
            {
                "steps": f"{summary['steps']:,}",
                "loss at start": f"{summary['first']['loss']:.3f}",
                "loss at end": f"{summary['last']['loss']:.3f}",
                "MLM loss at end": f"{summary['last']['mlm_loss']:.3f}",
                "MLM accuracy at end": f"{summary['last']['mlm_accuracy']:.1%}",
                "NSP accuracy at end": f"{summary['last']['nsp_accuracy']:.1%}",
                "held-out MLM loss": f"{validation['mlm_loss']:.3f}",
                "held-out MLM accuracy": f"{validation['mlm_accuracy']:.1%}",
                "held-out NSP accuracy": f"{validation['nsp_accuracy']:.1%}",
                "real tokens/s": f"{summary['tokens_per_second']:,.0f}",
            }
        )
    return column


def print_table(header: List[str], rows: List[List[str]]) -> None:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  ".join(cells))


def loss_curves() -> Tuple[Any, str]:
    """MLM loss over the steps of both phases, one after the other."""
    drawn, axes = new_axes()
    offset = 0
    for (name, _, training), color in zip(PHASES, ("#2f6fab", "#d9822b")):
        lines = read_metrics(OUT / training)
        steps = [offset + line["step"] for line in lines]
        axes.plot(steps, [line["mlm_loss"] for line in lines], color=color, label=name)
        offset = int(steps[-1])
    axes.set_title("MLM loss", loc="left")
    axes.set_xlabel("steps")
    axes.set_ylabel("nats")
    axes.legend(frameon=False)
    return drawn, "MLM loss over the steps of phase 1 and phase 2"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        print(f"demo: error: {cli.one_line(error)}", file=sys.stderr)
        sys.exit(cli.BAD_INVOCATION)

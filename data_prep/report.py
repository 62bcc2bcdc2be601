"""The HTML report of data folders: counts, length histogram, fill of the packs. Opens without a network."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import Any, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from packing.files import whole_file
from packing.folder import PackedSplit, read_manifest

BLUE, ORANGE, GREY = "#2f6fab", "#d9822b", "#9aa5b1"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1d2733; background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid #dde3ea; padding-top: 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .3rem .55rem; border-bottom: 1px solid #dde3ea; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; height: auto; }
p.note { color: #55606e; }
"""


def write_report(path: Path, folders: Sequence[Path]) -> None:
    """Writes one page about one or more data folders. Raises ValueError when one is no data folder."""
    sections = [data_section(folder) for folder in folders]
    write_page(path, "Packed BERT data", sections)


def write_page(path: Path, title: str, sections: Sequence[str]) -> None:
    """Writes an HTML page of ready-made sections; nothing in it is fetched from elsewhere."""
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )
    with whole_file(path) as partial:
        partial.write_bytes(page.encode("utf-8"))


def data_section(folder: Path) -> str:
    """One data folder: a table of its splits and two figures of its train split."""
    manifest = read_manifest(folder)
    header = (
        "split", "documents", "sequences", "packs", "lower bound", "packing factor", "efficiency",
        "unpacked padding",
    )  # fmt: skip
    rows = []
    for split, packed in manifest["splits"].items():
        unpacked = 1 - packed["tokens"] / (packed["sequences"] * manifest["data"]["max_length"])
        rows.append(
            (
                split,
                f"{packed['documents']:,}",
                f"{packed['sequences']:,}",
                f"{packed['packs']:,}",
                f"{packed['lower_bound']:,}",
                f"{packed['packing_factor']:.3f}",
                f"{packed['efficiency']:.2%}",
                f"{unpacked:.2%}",
            )
        )
    lengths = PackedSplit(folder, "train").lengths
    max_length = manifest["data"]["max_length"]
    excluded = ", ".join(f"{n:,} {reason}" for reason, n in manifest["excluded"].items())
    return (
        f"<h2>{html.escape(folder.name)}: L = {max_length} tokens</h2>"
        + table(header, rows)
        + f'<p class="note">Left out: {html.escape(excluded or "nothing")}. Plan by '
        f"{html.escape(manifest['splits']['train']['algorithm'])}; vocabulary of "
        f"{manifest['data']['vocab_size']:,} entries.</p>"
        + figure(*length_histogram(lengths, max_length))
        + figure(*pack_fill(lengths, max_length))
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; cells are text."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def new_axes(height: float = 3.2) -> Tuple[Any, Any]:
    """A figure and its axes, drawn without a display and without touching global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9.0, height), dpi=110, layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return drawn, axes


def figure(drawn: Any, description: str) -> str:
    """A matplotlib figure as an image inside the page."""
    stream = io.BytesIO()
    drawn.savefig(stream, format="png", metadata={"Software": None})
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    return f'<p><img alt="{html.escape(description)}" src="data:image/png;base64,{data}"></p>'


def length_histogram(lengths: npt.NDArray[Any], max_length: int) -> Tuple[Any, str]:
    """How many sequences have how many tokens, before packing. lengths (N, D), 0 = empty slot."""
    drawn, axes = new_axes()
    values = lengths[lengths > 0]
    bins = np.linspace(0.5, max_length + 0.5, min(max_length, 64) + 1)
    axes.hist(values, bins=bins, color=BLUE)
    axes.set_yscale(
        "log"
    )  # most sequences of long articles are full: a linear scale hides the rest
    axes.set_xlim(0, max_length + 1)
    full = (values == max_length).mean()
    axes.set_title(f"Lengths of the sequences (train): {full:.1%} are full", loc="left")
    axes.set_xlabel("tokens in a sequence, special tokens counted")
    axes.set_ylabel("sequences (log scale)")
    return drawn, f"Histogram of {values.size} sequence lengths up to {max_length} tokens"


def pack_fill(lengths: npt.NDArray[Any], max_length: int, shown: int = 48) -> Tuple[Any, str]:
    """Some packs drawn to scale, each sequence a bar, padding grey: evenly chosen, fullest first."""
    drawn, axes = new_axes(height=4.2)
    totals = lengths.sum(axis=1, dtype=np.int64)
    order = np.lexsort((-(lengths > 0).sum(axis=1), -totals))
    chosen = order[np.linspace(0, order.size - 1, min(shown, order.size)).astype(int)]
    rows = np.arange(chosen.size)
    left = np.zeros(chosen.size)
    for slot in range(lengths.shape[1]):
        width = lengths[chosen, slot].astype(float)
        color = BLUE if slot % 2 == 0 else ORANGE
        axes.barh(rows, width, left=left, color=color, height=0.86, linewidth=0)
        left += width
    axes.barh(rows, max_length - left, left=left, color=GREY, height=0.86, linewidth=0)
    axes.set_xlim(0, max_length)
    axes.set_ylim(chosen.size - 0.5, -0.5)
    axes.set_yticks([])
    full = totals.sum() / (max_length * totals.size)
    axes.set_title(
        f"Fill of {chosen.size} of {totals.size:,} packs: sequences blue and orange, padding grey "
        f"({full:.1%} of all tokens are real)",
        loc="left",
    )
    axes.set_xlabel("tokens in a pack")
    return drawn, f"Sequences and padding in {chosen.size} packs of {max_length} tokens"

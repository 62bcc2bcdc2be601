"""The HTML report of data folders: counts, length histogram, fill of the packs. Opens without a network."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from packing.folder import PackedSplit, read_manifest
from packing.page import BLUE, GREY, ORANGE, figure, new_axes, table, write_page


def write_report(path: Path, folders: Sequence[Path]) -> None:
    """Writes one page about one or more data folders. Raises ValueError when one is no data folder."""
    sections = [data_section(folder) for folder in folders]
    write_page(path, "Packed BERT data", sections)


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

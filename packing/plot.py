"""Pictures of a plan: the lengths, how full the packs are, and what the most frequent ones hold.

Shape letters: L tokens per pack. Axes and figures are matplotlib's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, Tuple

import numpy as np

from packing.files import whole_file
from packing.histogram import Counts, num_tokens
from packing.page import BLUE, GREY, ORANGE, figure, new_axes, table, write_page
from packing.plan import PackingPlan

BINS = 128  # at most, of the histogram of lengths
SHOWN = 15  # strategies
SUFFIXES = (".png", ".html")

Draw = Callable[[Any, Counts, PackingPlan], str]  # draws on axes, returns a description


def check_plot_path(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: expected a name that ends in .png or .html")
    if path.is_dir():
        raise ValueError(f"{path}: is a folder, expected a file name")


def write_plot(path: Path, counts: Counts, plan: PackingPlan) -> None:
    """Draws a histogram (L+1,) and its plan: one PNG of three pictures, or an HTML page with a table.

    Raises ValueError for another suffix, ImportError without matplotlib.
    """
    check_plot_path(path)
    if path.suffix == ".png":
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(9.0, 12.0), dpi=110, layout="constrained")
        FigureCanvasAgg(drawn)
        for axes, (draw, _) in zip(drawn.subplots(3, 1, height_ratios=[3, 3, 5]), PICTURES):
            axes.spines[["top", "right"]].set_visible(False)
            draw(axes, counts, plan)
        with whole_file(path) as partial:
            drawn.savefig(partial, format="png", metadata={"Software": None})
        return
    sections = [table(("", "plan"), figures_of(plan))]
    for draw, height in PICTURES:
        drawn, axes = new_axes(height)
        description = draw(axes, counts, plan)
        sections.append(figure(drawn, description))
    write_page(path, f"Packing into {plan.max_length:,} tokens", sections)


def figures_of(plan: PackingPlan) -> List[Tuple[str, str]]:
    """(name, value) of what people ask of a plan, as text."""
    limit = "no limit" if plan.max_per_pack is None else f"{plan.max_per_pack:,}"
    rows = [
        ("algorithm", plan.algorithm),
        ("tokens per pack", f"{plan.max_length:,}"),
        ("most sequences per pack", limit),
        ("sequences", f"{plan.num_sequences:,}"),
        ("tokens", f"{plan.num_tokens:,}"),
        ("packs", f"{plan.num_packs:,}"),
        ("lower bound", f"{plan.lower_bound:,}"),
        ("gap", f"{plan.gap:,}"),
        ("efficiency", f"{plan.efficiency:.4%}"),
        ("packing factor", f"{plan.packing_factor:.4f}"),
    ]
    return rows + [("note", note) for note in plan.notes]


def draw_lengths(axes: Any, counts: Counts, plan: PackingPlan) -> str:
    """How many sequences have how many tokens, on a logarithmic scale."""
    length = plan.max_length
    edges = np.unique(np.linspace(0.5, length + 0.5, min(length, BINS) + 1).round(0) + 0.5)
    edges[0] = 0.5
    values, _ = np.histogram(np.arange(counts.size), bins=edges, weights=counts)
    axes.stairs(values, edges, fill=True, color=BLUE)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8)
    axes.set_xlim(0, length + 1)
    number = int(counts.sum())
    mean = num_tokens(counts) / number
    axes.set_title(f"Lengths of {number:,} sequences: {mean:,.1f} tokens on average", loc="left")
    axes.set_xlabel("tokens in a sequence")
    axes.set_ylabel("sequences (log scale)")
    return f"Histogram of {number:,} sequence lengths up to {length:,} tokens"


def draw_fill(axes: Any, counts: Counts, plan: PackingPlan) -> str:
    """Share of rows by how full they are, packed and with one sequence a row."""
    length = plan.max_length
    edges = np.linspace(0, 1, 21)
    tokens = np.add.reduceat(plan.slots, plan.offsets[:-1], dtype=np.int64)
    packed, _ = np.histogram(tokens / length, bins=edges, weights=plan.repeats)
    single, _ = np.histogram(np.arange(counts.size) / length, bins=edges, weights=counts)
    unpacked = num_tokens(counts) / (int(counts.sum()) * length)
    width = 0.021
    for shift, values, color, label in (
        (-width / 2, single, ORANGE, f"one sequence a row: {unpacked:.1%} of the tokens are real"),
        (width / 2, packed, BLUE, f"packed: {plan.efficiency:.2%}"),
    ):
        center = (edges[:-1] + edges[1:]) / 2 + shift
        axes.bar(center, values / values.sum(), width=width, color=color, label=label)
    axes.legend(loc="upper left", frameon=False)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    gap = f", at most {plan.gap:,} above the best possible" if plan.gap else ", the fewest possible"
    axes.set_title(f"Fill of the rows: {plan.num_packs:,} packs{gap}", loc="left")
    axes.set_xlabel("tokens of a row that are real")
    axes.set_ylabel("share of rows")
    return f"How full rows are: {unpacked:.1%} without packing, {plan.efficiency:.2%} packed"


def draw_strategies(axes: Any, counts: Counts, plan: PackingPlan) -> str:
    """The most frequent packs to scale: sequences blue and orange, padding grey."""
    top = np.argsort(-plan.repeats, kind="stable")[:SHOWN]
    for row, strategy in enumerate(top.tolist()):
        lengths = plan.slots[plan.offsets[strategy] : plan.offsets[strategy + 1]].astype(float)
        starts = np.cumsum(lengths) - lengths
        colors = [BLUE if slot % 2 == 0 else ORANGE for slot in range(lengths.size)]
        axes.barh(row, lengths, left=starts, color=colors, height=0.8, linewidth=0)
        axes.barh(row, plan.max_length - lengths.sum(), left=lengths.sum(), color=GREY, height=0.8)
        share = plan.repeats[strategy] / plan.num_packs
        axes.text(plan.max_length * 1.01, row, f"{share:.2%}", va="center")
    axes.set_yticks(range(top.size), [_label(plan, strategy) for strategy in top.tolist()])
    axes.set_ylim(top.size - 0.5, -0.5)
    axes.set_xlim(0, plan.max_length)
    share = plan.repeats[top].sum() / plan.num_packs
    axes.set_title(
        f"The {top.size} most frequent of {plan.repeats.size:,} strategies: {share:.1%} of the packs",
        loc="left",
    )
    axes.set_xlabel(
        "tokens in a pack: sequences blue and orange, padding grey; right: share of packs"
    )
    return f"The {top.size} most frequent strategies, drawn to scale"


def _label(plan: PackingPlan, strategy: int) -> str:
    lengths = plan.slots[plan.offsets[strategy] : plan.offsets[strategy + 1]].tolist()
    text = " + ".join(map(str, lengths))
    return text if len(text) <= 24 else f"{len(lengths):,} sequences"


PICTURES: Tuple[Tuple[Draw, float], ...] = (
    (draw_lengths, 3.2),
    (draw_fill, 3.2),
    (draw_strategies, 5.0),
)

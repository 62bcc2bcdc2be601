"""Pictures of a plan: the lengths, how full the packs are, and what the most frequent ones hold.

Shape letters: L tokens per pack. Axes and figures are matplotlib's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, Tuple

import numpy as np
import numpy.typing as npt

from packing.files import whole_file
from packing.histogram import Counts, num_tokens
from packing.page import BLUE, GREY, ORANGE, figure, new_axes, table, write_page
from packing.plan import PackingPlan

BINS = 128  # at most, of the histogram of lengths
SHOWN = 15  # strategies
SUFFIXES = (".png", ".html")

Draw = Callable[[Any, Counts, PackingPlan], str]  # draws on axes, returns a description


def check_library() -> None:
    """Raises ImportError where matplotlib is not installed; to be called before long work."""
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401


def write_plot(path: Path, counts: Counts, plan: PackingPlan) -> None:
    """Draws a histogram (L+1,) and its plan: one PNG of three pictures, or an HTML page with a table.

    Raises ValueError for another suffix, ImportError without matplotlib.
    """
    if path.suffix not in SUFFIXES or path.is_dir():
        raise ValueError(f"{path}: expected a file name that ends in {' or '.join(SUFFIXES)}")
    heights = [3.2, 3.2, 1.0 + 0.28 * max(2, min(SHOWN, plan.repeats.size))]  # inches
    if path.suffix == ".png":
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(9.0, sum(heights)), dpi=110, layout="constrained")
        FigureCanvasAgg(drawn)
        for axes, draw in zip(drawn.subplots(3, 1, height_ratios=heights), PICTURES):
            axes.spines[["top", "right"]].set_visible(False)
            draw(axes, counts, plan)
        with whole_file(path) as partial:
            drawn.savefig(partial, format="png", metadata={"Software": None})
        return
    sections = [table(("", "plan"), figures_of(plan))]
    for draw, height in zip(PICTURES, heights):
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
    width = -(-length // BINS)  # tokens; the last bin ends at L, the first may be narrower
    edges = np.append(np.arange(length, 0, -width), 0)[::-1] + 0.5
    values, _ = np.histogram(np.arange(counts.size), bins=edges, weights=counts)
    axes.stairs(values, edges, fill=True, color=BLUE)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8)
    axes.set_xlim(0, length + 1)
    _mark_tokens(axes)
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
        (-width / 2, single, ORANGE, f"one sequence a row: {unpacked:.2%} of all tokens are real"),
        (width / 2, packed, BLUE, f"packed: {plan.efficiency:.2%} are real"),
    ):
        center = (edges[:-1] + edges[1:]) / 2 + shift
        axes.bar(center, values / values.sum(), width=width, color=color, label=label)
    axes.legend(loc="upper left", frameon=False)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    gap = f"at most {plan.gap:,} above the best possible" if plan.gap else "the fewest possible"
    axes.set_title(
        f"Fill of the rows: {int(counts.sum()):,} become {plan.num_packs:,} packs, {gap}",
        loc="left",
    )
    axes.set_xlabel("real tokens in a row, as a share of its length")
    axes.set_ylabel("share of rows")
    return f"How full rows are: {unpacked:.1%} without packing, {plan.efficiency:.2%} packed"


def draw_strategies(axes: Any, counts: Counts, plan: PackingPlan) -> str:
    """The most frequent packs to scale: sequences blue and orange, padding grey."""
    top = most_frequent(plan.repeats, SHOWN)
    for row, strategy in enumerate(top.tolist()):
        lengths = plan.slots[plan.offsets[strategy] : plan.offsets[strategy + 1]].astype(float)
        bars = [*lengths, plan.max_length - lengths.sum()]
        starts = [0, *np.cumsum(lengths)]
        colors = [BLUE if slot % 2 == 0 else ORANGE for slot in range(lengths.size)]
        axes.broken_barh(
            list(zip(starts, bars)), (row - 0.4, 0.8), facecolors=[*colors, GREY], linewidth=0
        )
        share = plan.repeats[strategy] / plan.num_packs
        axes.text(plan.max_length * 1.01, row, f"{share:.2%}", va="center")
    axes.set_yticks(range(top.size), [_label(plan, strategy) for strategy in top.tolist()])
    axes.set_ylim(top.size - 0.5, -0.5)
    axes.set_xlim(0, plan.max_length)
    _mark_tokens(axes)
    share = plan.repeats[top].sum() / plan.num_packs
    title = f"The {top.size} most frequent of {plan.repeats.size:,} strategies: {share:.1%} of the packs"
    if plan.repeats.size <= SHOWN:
        title = f"All strategies: {plan.repeats.size}"
    axes.set_title(title, loc="left")
    axes.set_xlabel(
        "tokens in a pack: sequences blue and orange, padding grey; right: share of packs"
    )
    return f"The {top.size} most frequent strategies, drawn to scale"


def most_frequent(repeats: npt.NDArray[np.int64], number: int) -> npt.NDArray[np.int64]:
    """Strategies with the most packs, most first; of those that tie for the last places an even sample.

    Where lengths are many, most strategies are used once, and the first of them are all alike.
    """
    order = np.argsort(-repeats, kind="stable")
    if order.size <= number:
        return order
    least = repeats[order[number - 1]]
    more = order[repeats[order] > least]
    tied = order[repeats[order] == least]
    places = np.linspace(0, tied.size - 1, number - more.size).round().astype(np.int64)
    return np.concatenate([more, tied[places]])


def _mark_tokens(axes: Any) -> None:
    """Whole numbers along the axis, in groups of three digits."""
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _label(plan: PackingPlan, strategy: int) -> str:
    lengths = plan.slots[plan.offsets[strategy] : plan.offsets[strategy + 1]].tolist()
    text = " + ".join(f"{n:,}" for n in lengths)
    return text if len(text) <= 24 else f"{len(lengths):,} sequences"


PICTURES: Tuple[Draw, ...] = (draw_lengths, draw_fill, draw_strategies)

"""Tables and figures as one HTML page that opens without a network; figures as PNG."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import Any, Sequence, Tuple

from packing.files import whole_file

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

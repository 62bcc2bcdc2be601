"""Pictures: they are whole files, for any kind of histogram."""

from __future__ import annotations

import numpy as np
import pytest

from packing import solve
from packing.page import new_axes
from packing.plot import draw_lengths, most_frequent, write_plot

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")

KINDS = {
    "many": np.r_[0, np.random.default_rng(0).integers(0, 99, 64)],
    "one length": np.array([0, 0, 0, 5]),
    "one token": np.array([0, 3]),
    "long": np.bincount(np.random.default_rng(0).integers(1, 100_000, 300), minlength=131_073),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("suffix", [".png", ".html"])
def test_pictures_are_whole(kind, suffix, tmp_path):
    counts = KINDS[kind]
    plan = solve(counts, algorithm="lpfhp")
    path = tmp_path / f"a plan{suffix}"
    write_plot(path, counts, plan)
    content = path.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
        assert content.endswith(b"IEND\xaeB\x60\x82")
    else:
        text = content.decode("utf-8")
        assert text.count("data:image/png;base64,") == 3
        assert f"<td>{plan.num_packs:,}</td>" in text
        assert "http" not in text.replace("http-equiv", "")
        assert text.endswith("</html>\n")
    write_plot(path, counts, plan)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["plan.pdf", "plan", "folder.png"])
def test_other_names_are_refused(name, tmp_path):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match=name):
        write_plot(tmp_path / name, KINDS["many"], solve(KINDS["many"]))


def test_strategies_that_tie_are_sampled_evenly():
    assert most_frequent(np.array([1, 5, 3]), 4).tolist() == [1, 2, 0]
    repeats = np.array([1] * 50 + [7] + [1] * 50 + [9])
    shown = most_frequent(repeats, 7)
    assert shown[:2].tolist() == [101, 50]
    assert shown[2:].tolist() == [0, 25, 51, 75, 100]
    assert most_frequent(np.array([2, 2, 2, 2]), 3).tolist() == [0, 2, 3]


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 384, 513, 5000])
def test_bins_are_equally_wide_and_count_all(length):
    """The first may be narrower. Unequal bins draw a comb that is not in the lengths."""
    counts = np.r_[0, np.ones(length, dtype=np.int64)]
    axes = new_axes()[1]
    draw_lengths(axes, counts, solve(counts, algorithm="lpfhp"))
    drawn = axes.patches[0].get_data()
    assert drawn.values.sum() == length
    assert len(set(drawn.values[1:].tolist())) <= 1
    assert drawn.edges[0] == 0.5
    assert drawn.edges[-1] == length + 0.5

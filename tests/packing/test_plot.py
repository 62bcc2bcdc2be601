"""Pictures: they are whole files, for any kind of histogram."""

from __future__ import annotations

import numpy as np
import pytest

from packing import solve
from packing.plot import write_plot

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

"""The benchmark scripts run and write what they measured; their figures are no test's business."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.resources import ROOT, find_published


@pytest.mark.parametrize("with_data", [False, True])
def test_packing_tables(with_data, tmp_path):
    if with_data and find_published("histograms/wikipedia_512.csv") is None:
        pytest.skip("the published histograms are not at hand")
    environment = dict(os.environ)
    if not with_data:
        environment["PACKED_BERT_TEST_DATA"] = str(tmp_path)
    output = tmp_path / "results" / "packing.md"
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "packing.py"), "--sample", "2000"),
            *("--rounds", "1", "--skip-dense", "--time-limit", "2", "--output", str(output)),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    text = output.read_text(encoding="utf-8")
    assert done.stdout.strip() == text.strip()
    assert "| 131,072 | lpfhp |" in text
    assert ("not at hand" in text) != with_data
    if with_data:
        for word in ("| 3 | optimal |", "| ours, lpfhp |", "| best_fit | no limit |"):
            assert word in text

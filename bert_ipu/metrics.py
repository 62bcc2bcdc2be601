"""What a run says of itself: JSON lines, throughput in real tokens, and baselines to compare with."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np

from bert_ipu.dataset import PackedDataset
from bert_ipu.masking import ordinary_tokens
from packing.files import whole_file

METRICS_FILE = "metrics.jsonl"
LOSSES = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy")
AMOUNTS = ("tokens", "packs", "sequences")
ENTROPY_PACKS = 16384  # packs looked at for the unigram entropy


class MetricLog:
    """Writes a line per logged step; losses are those of that step, rates cover all since the last line."""

    def __init__(self, run_dir: Path, start: int):
        """Drops lines of steps after `start`, which a run that was broken off had written."""
        self.path = run_dir / METRICS_FILE
        kept = [line for line in read_metrics(run_dir) if line["step"] <= start]
        with whole_file(self.path) as partial:
            text = "".join(json.dumps(line) + "\n" for line in kept)
            partial.write_bytes(text.encode("ascii"))
        self.amounts = dict.fromkeys(AMOUNTS, 0.0)
        self.since = time.perf_counter()

    def count(self, metrics: Dict[str, float]) -> None:
        """Adds one step's tokens, packs and sequences to the current interval."""
        for name in AMOUNTS:
            self.amounts[name] += metrics[name]

    def write(self, step: int, learning_rate: float, metrics: Dict[str, float]) -> Dict[str, float]:
        """Appends the line of `step`, flushes it, and returns it."""
        now = time.perf_counter()
        line = {"step": step, "lr": learning_rate, **{name: metrics[name] for name in LOSSES}}
        for name in AMOUNTS:
            line[f"{name}_per_second"] = self.amounts[name] / max(now - self.since, 1e-9)
        with open(self.path, "ab") as stream:
            stream.write((json.dumps(line) + "\n").encode("ascii"))
        self.amounts, self.since = dict.fromkeys(AMOUNTS, 0.0), now
        return line


def read_metrics(run_dir: Path) -> List[Dict[str, float]]:
    """All whole lines of a run's metrics; a last line cut off by a kill is left out."""
    path = run_dir / METRICS_FILE
    if not path.is_file():
        return []
    lines = []
    for line in path.read_bytes().decode("utf-8", "replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and {"step", *LOSSES} <= record.keys():
            lines.append(record)
    return lines


def check_finite(metrics: Dict[str, float], step: int) -> None:
    """Raises FloatingPointError naming the step when a loss is NaN or infinite."""
    for name in ("loss", "mlm_loss", "nsp_loss"):
        if not math.isfinite(metrics[name]):
            raise FloatingPointError(f"step {step}: {name} is {metrics[name]}")


def unigram_entropy(dataset: PackedDataset) -> float:
    """Entropy of the tokens that may be masked, in nats: the loss of knowing their frequencies only.

    Counted on all packs of the split, or on ENTROPY_PACKS spread evenly over it.
    """
    chosen = np.linspace(0, len(dataset) - 1, min(len(dataset), ENTROPY_PACKS)).astype(np.int64)
    counts = np.zeros(dataset.info.vocab_size, dtype=np.int64)
    for start in range(0, chosen.size, 1024):
        tokens = dataset.packed.read(chosen[start : start + 1024])["input_ids"]
        counts += np.bincount(tokens.ravel(), minlength=counts.size)
    ordinary = counts[ordinary_tokens(dataset.packed.token_kinds)]
    shares = ordinary[ordinary > 0] / max(1, ordinary.sum())
    return float(-(shares * np.log(shares)).sum())


def summarize(
    run_dir: Path, dataset: PackedDataset, validation: Optional[Dict[str, float]]
) -> Dict[str, Any]:
    """The run in numbers: data, first and last losses, throughput, validation.

    `last` is the mean over the last tenth of the logged steps, at least five of them.
    """
    lines = read_metrics(run_dir)
    if not lines:
        raise ValueError(f"{run_dir / METRICS_FILE}: no metrics there; --overwrite starts anew")
    tail = lines[-max(5, len(lines) // 10) :]
    packed = dataset.manifest["splits"][dataset.packed.split]
    data = ("sequences", "tokens", "packs", "packing_factor", "efficiency", "lower_bound")
    return {
        "max_length": dataset.info.max_length,
        **{name: packed[name] for name in data},
        "steps": int(lines[-1]["step"]),
        "first": {name: lines[0][name] for name in LOSSES},
        "last": {name: float(np.mean([line[name] for line in tail])) for name in LOSSES},
        "tokens_per_second": float(np.median([line["tokens_per_second"] for line in lines])),
        "sequences_per_second": float(np.median([line["sequences_per_second"] for line in lines])),
        "packs_per_second": float(np.median([line["packs_per_second"] for line in lines])),
        "unigram_entropy": unigram_entropy(dataset),
        "validation": validation,
    }

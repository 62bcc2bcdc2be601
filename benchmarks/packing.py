"""Packing, side by side: our solvers, the paper's method and the packers people install instead.

    python benchmarks/packing.py              all tables; writes benchmarks/results/packing.md
    python benchmarks/packing.py --sample 50000 --skip-dense --output /tmp/quick.md

Times are ratios within one run. Solvers are timed in one process; whole packers each in a process of its
own, in turn, so that their peak memory can be told. Peers: `pip install '.[bench]'` brings lightbinpack;
seqpacker is compared where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # instead of this folder, in which `packing` would be this file

import numpy as np  # noqa: E402

from packing import pack, solve  # noqa: E402
from packing.files import whole_file  # noqa: E402
from packing.histogram import read_histogram  # noqa: E402
from packing.nnlshp import full_strategies  # noqa: E402
from packing.online import OnlinePacker  # noqa: E402

DEPTHS: Tuple[Optional[int], ...] = (2, 3, 4, 8, 12, None)
SOLVERS = ("spfhp", "lpfhp", "nnlshp", "optimal")
LONG = (8192, 131072)  # tokens per pack
Table = List[List[str]]


def find_histogram(name: str) -> Optional[Path]:
    """A published histogram: in $PACKED_BERT_TEST_DATA, or in a `data` folder beside the project."""
    named = os.environ.get("PACKED_BERT_TEST_DATA")
    folders = [Path(named)] if named else sorted(ROOT.parent.glob("*/data"))
    paths = [folder / "histograms" / name for folder in folders]
    return next((path for path in paths if path.is_file()), None)


def machine() -> str:
    """Processor, cores, and the versions of what was measured, in one line."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n"):
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    names = ("numpy", "scipy", "highspy", "lightbinpack", "seqpacker")
    versions = [f"{name} {version_of(name)}" for name in names if version_of(name)]
    return (
        f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{', '.join(versions)}; one thread each"
    )


def version_of(name: str) -> Optional[str]:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_seconds(body: Callable[..., Any], *arguments: Any, **options: Any) -> Tuple[Any, float]:
    start = time.process_time()
    result = body(*arguments, **options)
    return result, time.process_time() - start


def dense_nnls(counts: Any, max_length: int) -> Tuple[float, float]:
    """The paper's own method at depth 3, scipy's nnls on the whole matrix: seconds, packs unrounded."""
    from scipy.optimize import nnls

    strategies = full_strategies(max_length, 3)
    weights = np.where(np.arange(max_length + 1) < 8, 0.09, 1.0)
    weights[0] = 0.0
    matrix = np.zeros((max_length + 1, len(strategies)))
    np.add.at(matrix, (strategies, np.arange(len(strategies))[:, None]), 1.0)
    matrix *= weights[:, None]
    (mix, _), seconds = cpu_seconds(nnls, matrix, weights * counts, maxiter=3 * len(strategies))
    return seconds, float(mix.sum())


def solver_table(counts: Any, max_length: int, dense: Optional[float], rounds: int) -> Table:
    """One row for each depth and solver; the bound of `optimal` holds for all of its depth."""
    rows = [["depth", "solver", "packs", "lower bound", "gap", "efficiency", "CPU seconds"]]
    if dense is not None:
        rows[0].append("of dense NNLS")
    for depth in DEPTHS:
        plans = {}
        for name in SOLVERS:
            if name == "nnlshp" and (depth is None or depth > 3):
                continue
            print(f"  depth {depth}, {name}", file=sys.stderr, flush=True)
            timed = [cpu_seconds(solve, counts, max_length, depth, name) for _ in range(rounds)]
            plans[name] = (timed[0][0], statistics.median(seconds for _, seconds in timed))
        bound = plans["optimal"][0].lower_bound
        for name, (plan, seconds) in plans.items():
            row = [
                "no limit" if depth is None else str(depth),
                name,
                f"{plan.num_packs:,}",
                f"{bound:,}",
                f"{plan.num_packs - bound:,}",
                f"{plan.efficiency:.3%}",
                f"{seconds:.3f}",
            ]
            rows.append([*row, f"1/{dense / seconds:,.0f}"] if dense is not None else row)
    return rows


WHOLE = ("ours, lpfhp", "ours, optimal", "lightbinpack obfd", "seqpacker obfd")


def pack_whole(name: str, path: Path, max_length: int) -> Dict[str, float]:
    """Packs the lengths of a file once, in this process: packs, wall and CPU seconds, peak MB."""
    import resource

    lengths = np.load(path)
    if name.startswith("ours"):
        algorithm = name.split(", ")[1]

        def run() -> int:
            return pack(lengths, max_length, algorithm=algorithm).num_packs
    elif name.startswith("lightbinpack"):
        from lightbinpack import obfd  # type: ignore[import-not-found]

        listed = lengths.tolist()

        def run() -> int:
            return len(obfd(listed, max_length))
    else:
        import seqpacker  # type: ignore[import-not-found]

        def run() -> int:
            packed = seqpacker.pack_sequences(lengths, capacity=max_length, strategy="obfd")
            return len(packed.bins)

    before = time.perf_counter()
    packs, cpu = cpu_seconds(run)
    wall = time.perf_counter() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"packs": packs, "wall": wall, "cpu": cpu, "megabytes": peak}


def whole_table(lengths: Any, max_length: int, folder: Path, rounds: int) -> Table:
    """Lengths in, packs out: each packer several times, in turn, in a process of its own."""
    path = folder / "lengths.npy"
    np.save(path, lengths)
    present = [
        name
        for name in WHOLE
        if name.startswith("ours") or importlib.util.find_spec(name.split(" ")[0])
    ]
    measured: Dict[str, List[Dict[str, float]]] = {name: [] for name in present}
    for _ in range(rounds):
        for name in present:
            print(f"  {name}", file=sys.stderr, flush=True)
            done = subprocess.run(
                [sys.executable, __file__, "--one", name, str(path), str(max_length)],
                check=True,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
            measured[name].append(json.loads(done.stdout))
    peer = next((name for name in present if name.startswith("lightbinpack")), present[0])
    rows = [["packer", "packs", "wall seconds", f"of {peer}", "CPU seconds", "peak MB"]]
    for name in present:
        wall, cpu, peak = (
            statistics.median(run[key] for run in measured[name])
            for key in ("wall", "cpu", "megabytes")
        )
        ratios = [
            ours["wall"] / theirs["wall"] for ours, theirs in zip(measured[name], measured[peer])
        ]
        rows.append(
            [
                name,
                f"{measured[name][0]['packs']:,.0f}",
                f"{wall:.2f}",
                f"{statistics.median(ratios):.3f}",
                f"{cpu:.2f}",
                f"{peak:,.0f}",
            ]
        )
    return rows


def long_table(number: int, time_limit: float) -> Table:
    """Log-normal lengths in long contexts, no depth limit."""
    rows = [["L", "solver", "packs", "lower bound", "gap", "CPU seconds"]]
    normal = np.random.default_rng(0).normal(6, 1, number)
    for max_length in LONG:
        lengths = np.clip(np.exp(normal).astype(np.int64), 1, max_length)
        for name in ("lpfhp", "auto", "optimal"):
            print(f"  L = {max_length:,}, {name}", file=sys.stderr, flush=True)
            packed, seconds = cpu_seconds(
                pack, lengths, max_length, algorithm=name, time_limit=time_limit
            )
            report = packed.report
            counted = (f"{report[key]:,}" for key in ("packs", "lower_bound", "gap"))
            rows.append([f"{max_length:,}", name, *counted, f"{seconds:.2f}"])
    return rows


def stream(packer: OnlinePacker, lengths: List[int]) -> int:
    packs = 0
    for number, length in enumerate(lengths):
        packs += len(packer.add(number, length))
    return packs + len(packer.flush())


def online_table(lengths: Any, max_length: int) -> Table:
    """Streaming packers with 1,000 open packs."""
    rows = [["packer", "depth", "packs", "efficiency", "million sequences per CPU second"]]
    values = lengths.tolist()
    for name in ("next_fit", "first_fit", "best_fit"):
        for depth in (None, 3):
            print(f"  {name}, depth {depth}", file=sys.stderr, flush=True)
            packer = OnlinePacker(max_length, depth, 1000, name)
            packs, seconds = cpu_seconds(stream, packer, values)
            rows.append(
                [
                    name,
                    "no limit" if depth is None else str(depth),
                    f"{packs:,}",
                    f"{int(lengths.sum(dtype=np.int64)) / packs / max_length:.2%}",
                    f"{len(values) / seconds / 1e6:.2f}",
                ]
            )
    return rows


def markdown(rows: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sample", type=int, help="so many sequences instead of all (for a try)")
    parser.add_argument("--rounds", type=int, default=3, help="runs, of which the median counts")
    parser.add_argument(
        "--skip-dense", action="store_true", help="leave out the paper's dense NNLS"
    )
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds, long contexts")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results" / "packing.md"
    )
    parser.add_argument(
        "--one", nargs=3, metavar=("PACKER", "LENGTHS", "L"), help=argparse.SUPPRESS
    )
    options = parser.parse_args(arguments)
    if options.one:
        name, path, max_length = options.one
        print(json.dumps(pack_whole(name, Path(path), int(max_length))))
        return 0
    sections = ["# Packing benchmarks", machine() + "."]
    rng = np.random.default_rng(0)
    for name, title, max_length in (
        ("wikipedia_512.csv", "Wikipedia, L = 512", 512),
        ("squad_384.csv", "SQuAD 1.1, L = 384", 384),
    ):
        path = find_histogram(name)
        if path is None:
            sections.append(
                f"{title}: {name} is not at hand (PACKED_BERT_TEST_DATA names its folder)."
            )
            continue
        print(title, file=sys.stderr, flush=True)
        counts = read_histogram(path)
        if options.sample and options.sample < counts.sum():
            counts = rng.multinomial(options.sample, counts / counts.sum())
        dense = None
        if max_length == 512 and not options.skip_dense:
            print("  dense NNLS", file=sys.stderr, flush=True)
            dense, packs = dense_nnls(counts, max_length)
            title += f" (dense NNLS: {dense:.1f} CPU seconds)"
        sections += [
            f"## {title}",
            markdown(solver_table(counts, max_length, dense, options.rounds)),
        ]
        if max_length == 512:
            lengths = np.repeat(np.arange(513, dtype=np.uint16), counts)
            rng.shuffle(lengths)
            with tempfile.TemporaryDirectory() as folder:
                table = whole_table(lengths, max_length, Path(folder), options.rounds)
            sections += [f"## {lengths.size:,} shuffled lengths to packs, L = 512", markdown(table)]
            streamed = lengths[:1_000_000]
            table = online_table(streamed, max_length)
            sections += [f"## {streamed.size:,} lengths as a stream, L = 512", markdown(table)]
    number = min(options.sample or 1_000_000, 1_000_000)
    print("Long contexts", file=sys.stderr, flush=True)
    table = long_table(number, options.time_limit)
    sections += [f"## {number:,} log-normal lengths in long contexts", markdown(table)]
    text = "\n\n".join(sections) + "\n"
    with whole_file(options.output) as partial:
        partial.write_bytes(text.encode("utf-8"))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

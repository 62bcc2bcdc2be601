"""One way to run a stage: a folder written aside, a manifest that goes last, work over partitions."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, TypeVar

from tqdm import tqdm

from packing.files import (
    file_sha256,
    fingerprint,
    first_difference,
    read_object,
    whole_folder,
    write_json,
)

log = logging.getLogger(__name__)

Manifest = Dict[str, Any]
Task = TypeVar("Task")
Result = TypeVar("Result")
MANIFEST = "manifest.json"


class StageState:
    """What a stage's folder holds: "missing", "done", "changed" settings, or "foreign" files."""

    def __init__(self, name: str, folder: Path, settings: Dict[str, Any]):
        self.name = name
        self.folder = folder
        self.settings = settings
        self.manifest: Optional[Manifest] = None
        self.status = "missing"
        self.difference = ""
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return
        self.status, self.difference = "foreign", f"it has no {MANIFEST} of this program"
        if (folder / MANIFEST).is_file():
            manifest = read_object(folder / MANIFEST)
            if not {"stage", "settings", "files"} <= manifest.keys():
                return
            self.manifest = manifest
            self.difference = _changed_setting(manifest["settings"], settings)
            self.difference = self.difference or _first_damage(folder, manifest["files"])
            self.status = "changed" if self.difference else "done"


def run_stage(
    name: str,
    folder: Path,
    settings: Dict[str, Any],
    body: Callable[[Path], Dict[str, Any]],
    overwrite: bool = False,
) -> Manifest:
    """Runs `body(scratch folder)` unless the folder already holds its result, and returns the manifest.

    settings  everything the result depends on, upstream fingerprints included, as plain JSON values
    body      fills the scratch folder and returns what the manifest shall say beside its files
    Raises ValueError naming the setting when the folder holds the result of other settings.
    """
    state = StageState(name, folder, settings)
    if state.status == "done":
        assert state.manifest is not None
        log.info("%-10s unchanged, kept (%s)", name, folder)
        return state.manifest
    if state.status == "foreign":
        raise ValueError(f"{folder}: {state.difference}; remove it, or choose another folder")
    if state.status == "changed" and not overwrite:
        raise ValueError(
            f"{folder}: {state.difference}; --overwrite makes it anew, or choose another folder"
        )
    log.info("%-10s running", name)
    with _only_run_in(folder.parent), whole_folder(folder) as scratch:
        result = body(scratch)
        files = {
            path.relative_to(scratch).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": file_sha256(path),
            }
            for path in sorted(scratch.rglob("*"))
            if path.is_file()
        }
        manifest = {"stage": name, "settings": settings, "files": files, **result}
        manifest["fingerprint"] = fingerprint(manifest)
        write_json(scratch / MANIFEST, manifest)
    return manifest


@contextlib.contextmanager
def _only_run_in(folder: Path) -> Iterator[None]:
    """Keeps a second run out of a folder while a stage is written. The lock goes with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"{folder}: another run is writing there, expected to be alone"
            ) from None
        yield


def _changed_setting(stored: Any, wanted: Any) -> str:
    """Says which setting differs first, or gives an empty string."""
    difference = first_difference(stored, wanted)
    if difference is None:
        return ""
    key, before, now = difference
    if key.endswith("_fingerprint"):
        return f"its input has changed ({key[: -len('_fingerprint')]})"
    return f"it was made with {key} = {before!r}, now {now!r}"


def _first_damage(folder: Path, files: Dict[str, Dict[str, Any]]) -> str:
    """Names the first file that is missing or of another size than recorded, or gives an empty string."""
    for name, recorded in files.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found != recorded["bytes"]:
            size = "missing" if found is None else f"{found} bytes"
            return f"its file {name} is damaged ({size}, expected {recorded['bytes']} bytes)"
    return ""


def num_workers(configured: int) -> int:
    """Processes to use: as configured, or one for each core this process may run on."""
    return configured or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0])


def run_partitions(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    workers: int,
    name: str,
    total: Optional[int] = None,
    unit: str = "part",
    amount: Callable[[Result], int] = lambda result: 1,
) -> Iterator[Result]:
    """Applies a function to every task, in `workers` processes, and gives the results in task order.

    At most two tasks per worker wait at a time, so tasks may be made from a stream.
    Raises ValueError naming the partition when a worker process dies.
    """
    bar = tqdm(
        total=total, desc=f"  {name}", unit=f" {unit}", disable=None, leave=False, file=sys.stderr
    )
    with bar:
        for result in _results(function, tasks, workers, name):
            bar.update(amount(result))
            yield result


def _begin_worker() -> None:
    """Keeps the tokenizers of several processes from using all cores each; ends with the parent."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _results(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int, name: str
) -> Iterator[Result]:
    stream = iter(tasks)
    first = list(itertools.islice(stream, workers))
    workers = min(workers, len(first))  # no process is started that would have nothing to do
    stream = itertools.chain(first, stream)
    if workers <= 1:
        yield from map(function, stream)
        return
    context = multiprocessing.get_context("spawn")
    pending: deque = deque()
    done = 0
    with ProcessPoolExecutor(workers, context, _begin_worker) as pool:
        try:
            while True:
                for task in itertools.islice(stream, 2 * workers - len(pending)):
                    pending.append(pool.submit(function, task))
                if not pending:
                    return
                yield pending.popleft().result()
                done += 1
        except BrokenProcessPool:
            raise ValueError(
                f"{name}: a worker process died near partition {done} (killed, perhaps for memory); "
                "run again with fewer --workers or a smaller --partition-size"
            ) from None
        finally:
            for future in pending:
                future.cancel()

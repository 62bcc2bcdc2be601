"""Where files that tests like to have are, and how tests run a command line."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Union

ROOT = Path(__file__).resolve().parent.parent
SAMPLE_DUMP = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
# LC_ALL=C alone would switch Python's UTF-8 mode on
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def find_published(name: str) -> Optional[Path]:
    """A published histogram or text: in $PACKED_BERT_TEST_DATA, or in a `data` folder beside us."""
    named = os.environ.get("PACKED_BERT_TEST_DATA")
    folders = [Path(named)] if named else sorted(ROOT.parent.glob("*/data"))
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def package_folder(name: str) -> Optional[Path]:
    """Where an installed package lies, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def find_sample_dump() -> Optional[Path]:
    folder = package_folder("gensim")
    path = folder / SAMPLE_DUMP if folder else None
    return path if path is not None and path.is_file() else None


def run_command(
    *arguments: str, env: Optional[Dict[str, str]] = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess:
    """Runs `python -m ARGUMENTS` in the C locale, warnings off as for a user; output as text."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env={**os.environ, **C_LOCALE, "PYTHONPATH": str(ROOT), **(env or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


class Called(NamedTuple):
    """What a command line did, like subprocess.CompletedProcess."""

    returncode: int
    stdout: str
    stderr: str


def call_command(main: Callable[[Sequence[str]], int], *arguments: str) -> Called:
    """Calls a command line's `main` in this process: quicker than `run_command`, same result."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:  # --help and --version
            code = int(stop.code or 0)
    return Called(code, out.getvalue(), err.getvalue())


def assert_one_line_error(
    done: Union[Called, subprocess.CompletedProcess], code: int, *words: str
) -> None:
    """The command failed as promised: exit code, one line on stderr with these words, no traceback."""
    lines = [line for line in done.stderr.split("\n") if line.strip()]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "error" in lines[-1] or code == 1, done.stderr
    for word in words:
        assert word in lines[-1], done.stderr

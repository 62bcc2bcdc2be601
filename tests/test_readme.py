"""The README is true: its commands run, its Python runs, what it says of the demo is what the demo does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.resources import C_LOCALE, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
LONG = ("make demo", "make test")  # minutes; .ci/run runs the second, people the first


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands():
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.split("\n")]
    return [line for line in lines if line and not line.startswith(LONG)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sample_dump):
    """A folder like the project's, with a space in its path, where every command has run once."""
    path = tmp_path_factory.mktemp("read me")
    shutil.copytree(ROOT / "configs", path / "configs")
    shutil.copy(ROOT / "README.md", path)
    environment = {
        **os.environ,
        **C_LOCALE,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{path / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    (path / "bin").mkdir()
    (path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    (path / "bin" / "python").chmod(0o755)
    for command in commands():
        done = subprocess.run(
            command,
            shell=True,
            cwd=path,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    return path


def test_commands_are_found_and_run(folder):
    assert len(commands()) >= 8
    assert (folder / "out" / "try" / "manifest.json").is_file()
    assert (folder / "out" / "try_run" / "summary.json").is_file()
    assert (folder / "out" / "try_model" / "model.safetensors").is_file()
    assert not (folder / "out" / "mine").exists()


def test_report_needs_no_network(folder):
    text = (folder / "out" / "try" / "report.html").read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 2
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)


@pytest.mark.parametrize(
    "code", blocks("python"), ids=["pack", "online packer", "own training loop"]
)
def test_python_runs(folder, monkeypatch, code):
    monkeypatch.chdir(folder)
    exec(compile(code, "README.md", "exec"), {})


def test_no_placeholder_is_left():
    assert not re.search(r"\b[A-Z]+_(?:TABLE|\d)\b", README)

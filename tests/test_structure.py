"""The house: who imports whom, files that must be there, settings that must load."""

from __future__ import annotations

import ast
import sys

import pytest
import yaml

from bert_ipu.__main__ import main as bert_ipu_main
from data_prep.__main__ import main as data_prep_main
from packing import __version__
from packing.__main__ import main as packing_main
from tests.resources import ROOT, call_command

PACKAGES = ("packing", "data_prep", "bert_ipu")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
# below `packing`: what training may import of it
FOUNDATION = {"packing.cli", "packing.files", "packing.folder", "packing.shards", "packing.version"}


def imported(path):
    """Every module that a file imports, anywhere in it, as full names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module in PACKAGES:
                yield from (f"{node.module}.{name.name}" for name in node.names)
            else:
                yield str(node.module)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_go_down_only(path):
    package = path.relative_to(ROOT).parts[0]
    for name in imported(path):
        root = name.split(".")[0]
        if package == "packing":
            assert root not in ("torch", "bert_ipu", "data_prep", "tokenizers", "transformers"), (
                name
            )
        if package == "data_prep":
            assert root not in ("torch", "bert_ipu", "transformers"), name
        if package == "bert_ipu":
            assert root not in ("data_prep", "tokenizers", "transformers", "scipy"), name
            assert root != "packing" or name in FOUNDATION or name == "packing.cli", name
        if root == "h5py":
            assert path == ROOT / "packing" / "shards.py"
        if root == "highspy":
            assert path == ROOT / "packing" / "programme.py"
        if root in ("poptorch", "popdist", "popart"):
            assert path == ROOT / "bert_ipu" / "backends" / "ipu.py"


def test_matplotlib_and_datasets_are_imported_only_where_they_are_used():
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:  # top level only
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = (
                    [node.module]
                    if isinstance(node, ast.ImportFrom)
                    else [name.name for name in node.names]
                )
                assert not any(
                    str(name).split(".")[0] in ("matplotlib", "datasets") for name in names
                ), path


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_are_readable_on_python_3_8(path):
    text = path.read_text(encoding="utf-8")
    if sys.version_info >= (3, 9):
        ast.parse(text, feature_version=(3, 8))
    assert text.startswith('"""'), "a file begins with what it is for"
    assert (
        path.name == "__init__.py"
        or "from __future__ import annotations" in text
        or (path.name == "version.py")
    )


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_config_is_accepted_by_its_command(path):
    main, command = {
        "data": (data_prep_main, "run"),
        "pretrain": (bert_ipu_main, "train"),
    }[path.relative_to(ROOT / "configs").parts[0]]
    done = call_command(main, command, "--config", str(path), "--print_config")
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    for key, value in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        found = shown[key]
        if isinstance(value, dict):
            assert value == {name: found[name] for name in value}
        else:
            assert found == value


@pytest.mark.parametrize("main", [packing_main, data_prep_main, bert_ipu_main])
def test_version_and_help(main):
    assert __version__ in call_command(main, "--version").stdout
    done = call_command(main, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage:")


def test_unknown_keys_in_a_config_are_errors(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("output_dir: out/x\nexamples:\n  max_lenght: 128\n", encoding="utf-8")
    done = call_command(data_prep_main, "run", "--config", str(path))
    assert done.returncode == 2
    assert "max_lenght" in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1


@pytest.mark.parametrize("text", ["source: null\n", "source: []\n", "[1, 2]\n", "a: &a [*a]\n"])
def test_configs_that_are_none_are_one_line(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    done = call_command(
        data_prep_main, "run", "--config", str(path), "--output-dir", str(tmp_path / "out")
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().split("\n")) == 1
    assert not (tmp_path / "out").exists()


def test_later_configs_win(tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("output_dir: out/x\nseed: 1\nexamples:\n  max_length: 64\n", encoding="utf-8")
    second.write_text("seed: 2\nexamples:\n  short_seq_prob: 0.5\n", encoding="utf-8")
    done = call_command(
        data_prep_main,
        *("run", "--config", str(first), "--config", str(second), "--examples.short-seq-prob=0.25"),
        "--print_config",
    )
    shown = yaml.safe_load(done.stdout)
    assert (shown["seed"], shown["examples"]["max_length"]) == (2, 64)
    assert shown["examples"]["short_seq_prob"] == 0.25


@pytest.mark.parametrize(
    "name", ["LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "requirements.txt", ".ci/run"]
)
def test_files_that_users_look_for(name):
    assert (ROOT / name).stat().st_size > 0


def test_citation_names_both_papers():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == __version__
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "2107.02027" in text
    assert "2410.08081" in text

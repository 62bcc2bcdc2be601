"""Checkpoints of a run, written aside and renamed, and weights read from wherever they were left."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from bert_ipu.backends import Backend
from bert_ipu.config import ModelConfig
from bert_ipu.huggingface import load_folder, load_pickled
from packing.files import file_sha256, read_object, whole_folder, write_json

log = logging.getLogger(__name__)

CHECKPOINT_FORMAT = "packed-bert-checkpoint"
CHECKPOINT_VERSION = 1
CHECKPOINTS_DIR = "checkpoints"
STATE_FILE, WEIGHTS_FILE, OPTIMIZER_FILE = "state.json", "model.safetensors", "optimizer.pt"
_NAME = re.compile(r"step-(\d+)$")


class Broken(Exception):
    """A checkpoint that cannot be read; the text says which file and why."""


class Checkpoints:
    """The checkpoints of one run: RUN/checkpoints/step-N, the newest `keep` of them."""

    def __init__(self, run_dir: Path, keep: int, about: Dict[str, Any]):
        """about: what every checkpoint says of its run: model config, vocabulary, data."""
        self.folder = run_dir / CHECKPOINTS_DIR
        self.keep = keep
        self.about = about

    def steps(self) -> List[int]:
        """Steps of the checkpoints there are, oldest first."""
        return list_steps(self.folder)

    def save(self, step: int, backend: Backend) -> Path:
        """Writes the state after `step` updates, then removes the oldest beyond `keep`."""
        path = self.folder / f"step-{step:08d}"
        with whole_folder(path) as scratch:
            save_file(backend.model_state(), scratch / WEIGHTS_FILE, metadata={"format": "pt"})
            torch.save(backend.optimizer_state(), scratch / OPTIMIZER_FILE)
            write_json(
                scratch / STATE_FILE,
                {
                    "format": CHECKPOINT_FORMAT,
                    "version": CHECKPOINT_VERSION,
                    "step": step,
                    **self.about,
                },
            )
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self.folder / f"step-{old:08d}")
        return path

    def restore(self, backend: Backend) -> int:
        """Loads the newest checkpoint that can be read into the backend and returns its step, else 0.

        A broken one is reported and the one before it used. Raises ValueError when all are broken.
        """
        steps = self.steps()
        for step in reversed(steps):
            path = self.folder / f"step-{step:08d}"
            try:
                _, weights = read_checkpoint(path)
                optimizer = _read_optimizer(path)
            except Broken as error:
                log.warning("broken checkpoint left aside: %s", error)
                continue
            backend.load_model_state(weights)
            backend.load_optimizer_state(optimizer)
            return step
        if steps:
            raise ValueError(f"{self.folder}: none of {len(steps)} checkpoints can be read")
        return 0


def list_steps(folder: Path) -> List[int]:
    matches = [_NAME.match(path.name) for path in folder.glob("step-*")]
    return sorted(int(match.group(1)) for match in matches if match)


def read_checkpoint(path: Path) -> Tuple[Dict[str, Any], Dict[str, torch.Tensor]]:
    """What a checkpoint says of itself, and its weights. Raises Broken when it is not whole."""
    try:
        about = read_object(path / STATE_FILE)
    except (ValueError, OSError) as error:
        raise Broken(str(error)) from None
    try:
        weights = load_file(path / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise Broken(f"{path / WEIGHTS_FILE}: {' '.join(str(error).split())}") from None
    if about.get("format") != CHECKPOINT_FORMAT or about.get("version") != CHECKPOINT_VERSION:
        raise Broken(
            f"{path / STATE_FILE}: expected {CHECKPOINT_FORMAT} version {CHECKPOINT_VERSION}"
        )
    missing = {"step", "model", "vocab_sha256"} - about.keys()
    if missing:
        raise Broken(f"{path / STATE_FILE}: has no {', '.join(sorted(missing))}")
    return about, weights


def _read_optimizer(path: Path) -> Dict[str, Any]:
    try:
        return load_pickled(path / OPTIMIZER_FILE)
    except Exception as error:  # torch.load raises whatever the damage leads to
        reason = " ".join(str(error).split())[:200]
        raise Broken(f"{path / OPTIMIZER_FILE}: {reason}") from None


class Weights(NamedTuple):
    """A model's weights and what is known of where they come from."""

    config: ModelConfig
    state: Dict[str, torch.Tensor]
    vocab_sha256: Optional[str]  # None: the folder has no vocab.txt
    run_dir: Optional[Path]  # of the run that made them, if one of ours did
    step: Optional[int]
    absent: Tuple[str, ...] = ()  # parts of the heads that stay fresh


def load_weights(path: Path) -> Weights:
    """Reads weights from a run folder (its newest checkpoint), a checkpoint, or a Hugging Face folder.

    Raises ValueError naming the path when it is none of these or broken.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(
            f"{path}: no such folder, expected a run, a checkpoint or a Hugging Face model"
        )
    steps = list_steps(path / CHECKPOINTS_DIR)
    if steps:
        path = path / CHECKPOINTS_DIR / f"step-{steps[-1]:08d}"
    if not (path / STATE_FILE).is_file():
        if not (path / WEIGHTS_FILE).is_file() and not (path / "pytorch_model.bin").is_file():
            raise ValueError(f"{path}: neither a run with checkpoints nor a model folder")
        loaded = load_folder(path)
        vocabulary = path / "vocab.txt"
        digest = file_sha256(vocabulary) if vocabulary.is_file() else None
        return Weights(loaded.config, loaded.state, digest, None, None, loaded.absent)
    try:
        about, state = read_checkpoint(path)
    except Broken as error:
        raise ValueError(str(error)) from None
    return Weights(
        ModelConfig(**about["model"]),
        state,
        about["vocab_sha256"],
        path.parent.parent,
        about["step"],
    )

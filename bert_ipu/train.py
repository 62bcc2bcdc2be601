"""The training loop, evaluation, and what makes a run folder safe to come back to."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Dict, Optional

import torch
from tqdm import tqdm

from bert_ipu.backends import Backend, make_backend
from bert_ipu.checkpoint import CHECKPOINTS_DIR, Checkpoints, Weights, load_weights
from bert_ipu.config import ModelConfig, RunConfig
from bert_ipu.dataset import (
    MicroBatches,
    PackedDataset,
    Schedule,
    steps_of_micro_batches,
    whole_split,
)
from bert_ipu.metrics import METRICS_FILE, MetricLog, check_finite, summarize
from bert_ipu.optim import learning_rate
from packing.files import first_difference, read_object, whole_folder, write_json
from packing.version import __version__

log = logging.getLogger(__name__)

CONFIG_FILE, RUN_FILE, SUMMARY_FILE = "config.json", "run.json", "summary.json"
TOKENIZER_DIR = "tokenizer"
RUN_FORMAT = "packed-bert-run"  # in run.json: marks the folder as ours
# What a run may be continued with although it changed: how it is computed, watched and stored.
FREE_TO_CHANGE = (
    "data_dir",  # the data's fingerprint is compared instead
    "output_dir",
    "steps",
    "workers",
    "micro_batch_size",
    "log_every",
    "save_every",
    "keep_checkpoints",
)


def train(config: RunConfig, overwrite: bool = False) -> Dict[str, Any]:
    """Trains until `config.steps` updates are done and returns the run's summary.

    Continues from the newest checkpoint in the output folder; `overwrite` starts anew.
    Raises ValueError on bad input or changed settings, FloatingPointError when the loss is not finite.
    """
    run_dir = Path(config.output_dir)
    dataset = open_split(config, "train")
    check_vocabulary(config.model, dataset)
    validation = open_split(config, "validation") if "validation" in splits(dataset) else None
    check_places(config)
    backend = make_backend(config)
    if config.init:  # before anything is written or deleted
        initialize(backend, config, dataset)
    prepare_run_folder(config, dataset, overwrite)
    store = Checkpoints(run_dir, config.keep_checkpoints, about_run(config, dataset))
    start = store.restore(backend)
    if start >= config.steps:
        log.info("%s: all %d steps are done", run_dir, start)
    elif start:
        log.info("continuing after step %d of %d (%s)", start, config.steps, run_dir)
    if start < config.steps:
        run_steps(config, dataset, backend, store, start)
    figures = evaluate_split(backend, validation, config.micro_batch_size) if validation else None
    summary = summarize(run_dir, dataset, figures)
    write_json(run_dir / SUMMARY_FILE, summary)
    return summary


def run_steps(
    config: RunConfig, dataset: PackedDataset, backend: Backend, store: Checkpoints, start: int
) -> None:
    """The loop: one global batch, one update; logs, saves, and stops where the loss is not finite."""
    schedule = Schedule(len(dataset), config.global_batch_size, config.seed)
    micro_batches = MicroBatches(dataset, schedule, config.micro_batch_size, config.steps)
    metric_log = MetricLog(Path(config.output_dir), start)
    stream = steps_of_micro_batches(micro_batches, start, config.workers)
    bar = tqdm(
        total=config.steps, initial=start, desc="train", unit="step", disable=None, file=sys.stderr
    )
    with bar:
        for step, batches in enumerate(stream, start=start):
            lr = learning_rate(step, config.steps, config.optimizer)
            metrics = backend.step(batches, step=step, learning_rate=lr)
            check_finite(metrics, step + 1)
            metric_log.count(metrics)
            bar.update()
            if step == 0 or (step + 1) % config.log_every == 0 or step + 1 == config.steps:
                line = metric_log.write(step + 1, lr, metrics)
                text = (
                    f"loss {line['loss']:.3f}, mlm {line['mlm_accuracy']:.1%}, "
                    f"{line['tokens_per_second']:,.0f} real tokens/s"
                )
                bar.set_postfix_str(text)
                if bar.disable:  # not a terminal: a log wants lines
                    log.info("step %d of %d: %s", step + 1, config.steps, text)
            if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
                store.save(step + 1, backend)


def open_split(config: RunConfig, split: str) -> PackedDataset:
    return PackedDataset(
        config.data_dir,
        split,
        masking=config.masking,
        loss_normalization=config.loss_normalization,
        seed=config.seed,
    )


def splits(dataset: PackedDataset) -> Any:
    return dataset.manifest["splits"]


def check_vocabulary(model: ModelConfig, dataset: PackedDataset) -> None:
    """Raises ValueError when the model cannot take the data: vocabulary, positions, segments."""
    info = dataset.info
    if model.vocab_size != info.vocab_size:
        raise ValueError(
            f"model.vocab_size: {model.vocab_size}, but {dataset.packed.folder} was made with a "
            f"vocabulary of {info.vocab_size} entries"
        )
    longest = int(dataset.packed.lengths.max())
    if model.max_position_embeddings < longest:
        raise ValueError(
            f"model.max_position_embeddings: {model.max_position_embeddings}, but "
            f"{dataset.packed.folder} has sequences of {longest} tokens"
        )
    if info.nsp and model.type_vocab_size < 2:
        raise ValueError(f"model.type_vocab_size: {model.type_vocab_size}, expected 2 for pairs")


def about_run(config: RunConfig, dataset: PackedDataset) -> Dict[str, Any]:
    """What a checkpoint remembers of its run."""
    return {
        "model": asdict(config.model),
        "vocab_sha256": dataset.info.vocab_sha256,
        "data_fingerprint": dataset.manifest["fingerprint"],
    }


def prepare_run_folder(config: RunConfig, dataset: PackedDataset, overwrite: bool) -> None:
    """Makes the run folder, or checks that the one there is of this run.

    Raises ValueError naming the first setting that differs.
    """
    run_dir = Path(config.output_dir)
    settings = json.loads(json.dumps(asdict(config)))
    data = dataset.manifest["fingerprint"]
    if run_dir.exists() and any(run_dir.iterdir()):
        found = read_object(run_dir / RUN_FILE) if (run_dir / RUN_FILE).is_file() else {}
        if found.get("format") != RUN_FORMAT:
            raise ValueError(f"{run_dir}: exists and is not a run of this program")
    if overwrite:
        delete_run(run_dir)
    if (run_dir / CONFIG_FILE).is_file():
        stored = read_object(run_dir / CONFIG_FILE)
        changed = first_difference(fixed(stored), fixed(settings))
        if changed:
            key, before, now = changed
            raise ValueError(
                f"{run_dir}: was begun with {key} = {before!r}, now {now!r}; --overwrite starts anew"
            )
        if read_object(run_dir / RUN_FILE).get("data_fingerprint") != data:
            raise ValueError(f"{run_dir}: was trained on other data; --overwrite starts anew")
    run_dir.mkdir(parents=True, exist_ok=True)
    write_json(  # first: whatever else is missing, the folder is known as a run
        run_dir / RUN_FILE,
        {
            "format": RUN_FORMAT,
            "version": __version__,
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "threads": torch.get_num_threads(),
            "data_fingerprint": data,
        },
    )
    write_json(run_dir / CONFIG_FILE, settings)
    if not (run_dir / TOKENIZER_DIR).exists():
        with whole_folder(run_dir / TOKENIZER_DIR) as scratch:
            for path in (dataset.packed.folder / TOKENIZER_DIR).iterdir():
                shutil.copyfile(path, scratch / path.name)


def check_places(config: RunConfig) -> None:
    """Raises ValueError when the run folder is, holds or lies in what the run reads."""
    run_dir = Path(config.output_dir).resolve()
    for key in ("data_dir", "init"):
        other = Path(getattr(config, key) or "/dev/null").resolve()
        if run_dir == other or run_dir in other.parents or other in run_dir.parents:
            raise ValueError(
                f"output_dir: {config.output_dir} and {key} must not contain each other"
            )


def delete_run(run_dir: Path) -> None:
    """Deletes what a run writes, the mark of the folder last, and nothing else that is there."""
    for name in (CHECKPOINTS_DIR, TOKENIZER_DIR):
        shutil.rmtree(run_dir / name, ignore_errors=True)
    for name in (METRICS_FILE, SUMMARY_FILE, CONFIG_FILE):
        (run_dir / name).unlink(missing_ok=True)


def fixed(settings: Dict[str, Any]) -> Dict[str, Any]:
    """The settings that a run must be continued with."""
    return {key: value for key, value in settings.items() if key not in FREE_TO_CHANGE}


def initialize(backend: Backend, config: RunConfig, dataset: PackedDataset) -> None:
    """Loads the weights named by `init`. Raises ValueError when they do not fit model or vocabulary."""
    assert config.init is not None
    weights = load_weights(Path(config.init))
    check_same_model(weights, config.model, config.init)
    check_same_vocabulary(weights, dataset, config.init)
    state = dict(backend.model_state())
    state.update(weights.state)
    backend.load_model_state(state)
    if weights.absent:
        log.warning("%s: has no %s; these start fresh", config.init, ", ".join(weights.absent))
    step = "" if weights.step is None else f", step {weights.step}"
    log.info("starting from %s%s", config.init, step)


def check_same_model(weights: Weights, model: ModelConfig, name: str) -> None:
    free = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
    same = replace(weights.config, **{key: getattr(model, key) for key in free})
    for key, value in asdict(model).items():
        if getattr(same, key) != value:
            raise ValueError(f"init: {name} has {key} = {getattr(same, key)!r}, expected {value!r}")


def check_same_vocabulary(weights: Weights, dataset: PackedDataset, name: str) -> None:
    if weights.vocab_sha256 not in (None, dataset.info.vocab_sha256):
        raise ValueError(
            f"{name}: was trained with vocabulary {weights.vocab_sha256[:12]}…, "
            f"{dataset.packed.folder} was made with {dataset.info.vocab_sha256[:12]}…"
        )
    if weights.config.vocab_size != dataset.info.vocab_size:
        raise ValueError(
            f"{name}: has a vocabulary of {weights.config.vocab_size} entries, "
            f"{dataset.packed.folder} one of {dataset.info.vocab_size}"
        )


def evaluate_split(
    backend: Backend, dataset: PackedDataset, micro_batch_size: int
) -> Dict[str, float]:
    """Exact means over a whole split: losses and accuracies."""
    return backend.evaluate(whole_split(dataset, micro_batch_size))


def evaluate(
    checkpoint: Path,
    data_dir: Path,
    *,
    split: str = "validation",
    micro_batch_size: int = 16,
    device: str = "auto",
    loss_normalization: Optional[str] = None,
    seed: Optional[int] = None,
) -> Dict[str, float]:
    """Figures of a run, a checkpoint or a Hugging Face folder on a split of a data folder.

    Masking, its seed and the loss normalization are those of the run where there is one, so that the
    same packs are masked alike in every evaluation.
    """
    weights = load_weights(checkpoint)
    stored: Dict[str, Any] = {}
    if weights.run_dir is not None and (weights.run_dir / CONFIG_FILE).is_file():
        stored = read_object(weights.run_dir / CONFIG_FILE)
    base = RunConfig(data_dir=str(data_dir), output_dir="unused", model=weights.config)
    masking = replace(base.masking, **stored.get("masking", {}))
    config = replace(
        base,
        masking=masking,
        device=device,
        seed=stored.get("seed", base.seed) if seed is None else seed,
        attention=stored.get("attention", base.attention),
        micro_batch_size=micro_batch_size,
        loss_normalization=loss_normalization
        or stored.get("loss_normalization", base.loss_normalization),
    )
    dataset = open_split(config, split)
    check_same_vocabulary(weights, dataset, str(checkpoint))
    check_vocabulary(config.model, dataset)
    backend = make_backend(config)
    backend.load_model_state({**backend.model_state(), **weights.state})
    return evaluate_split(backend, dataset, micro_batch_size)

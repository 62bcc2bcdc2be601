"""A cut of a real dump -> shards -> 20 steps, killed and continued -> export -> loaded in transformers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from bert_ipu.config import MaskingConfig, ModelConfig, OptimizerConfig, RunConfig
from bert_ipu.train import evaluate, train
from packing.files import read_json
from tests.resources import C_LOCALE, ROOT, run_command

DATA = """
source:
  inputs:
    - "{dump}"
vocabulary:
  size: 2000
examples:
  max_length: 128
  validation_fraction: 0.1
pack:
  algorithm: nnlshp
  max_per_pack: 3
limit: 8
partition_size: 3
"""
TRAINING = """
model:
  vocab_size: 2000
  hidden_size: 64
  num_hidden_layers: 2
  num_attention_heads: 4
  intermediate_size: 128
  max_position_embeddings: 128
optimizer:
  learning_rate: 1.0e-3
device: cpu
steps: 20
global_batch_size: 32
micro_batch_size: 16
log_every: 1
save_every: 6
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory, sample_dump):
    """A folder with a space, with both configs in it."""
    folder = tmp_path_factory.mktemp("end to end")
    (folder / "data.yaml").write_text(DATA.format(dump=sample_dump), encoding="utf-8")
    (folder / "train.yaml").write_text(TRAINING, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def data(work):
    done = run_command(
        *("data_prep", "run", "--config", str(work / "data.yaml")),
        *("--output-dir", str(work / "data set"), "--workers", "2"),
    )
    assert done.returncode == 0, done.stderr
    return work / "data set"


def train_arguments(work, data, run_dir):
    return (
        *("bert_ipu", "train", "--config", str(work / "train.yaml")),
        *("--data-dir", str(data), "--output-dir", str(run_dir)),
    )


def metrics(run_dir):
    path = run_dir / "metrics.jsonl"
    text = path.read_text(encoding="ascii") if path.is_file() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.fixture(scope="module")
def killed_and_continued(work, data):
    """A run that got SIGKILL on its way and was started again with the same command."""
    run_dir = work / "killed run"
    arguments = train_arguments(work, data, run_dir)
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **C_LOCALE, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while len(metrics(run_dir)) < 8:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (run_dir / "summary.json").exists()
    done = run_command(*arguments, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert "continuing after step" in done.stderr
    return run_dir


def test_killed_run_equals_an_unbroken_one(work, data, killed_and_continued):
    straight = work / "straight run"
    done = run_command(*train_arguments(work, data, straight), env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    one, other = metrics(straight), metrics(killed_and_continued)
    assert [line["step"] for line in one] == [line["step"] for line in other] == list(range(1, 21))
    assert [line["loss"] for line in one] == [line["loss"] for line in other]
    weights = "checkpoints/step-00000020/model.safetensors"
    assert (straight / weights).read_bytes() == (killed_and_continued / weights).read_bytes()
    assert one[-1]["loss"] < one[0]["loss"] - 0.3
    summary = read_json(straight / "summary.json")
    assert summary["validation"]["loss"] < one[0]["loss"]


def test_exported_model_loads_in_transformers_and_predicts_the_same(
    work, data, killed_and_continued, monkeypatch
):
    transformers = pytest.importorskip("transformers")
    out = work / "a model"
    done = run_command(
        *("bert_ipu", "export", "--checkpoint", str(killed_and_continued), "--output", str(out))
    )
    assert done.returncode == 0, done.stderr
    model, loading = transformers.BertForPreTraining.from_pretrained(out, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not loading[key], (key, loading[key])
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    encoded = tokenizer("The city was founded", "by settlers", return_tensors="pt")
    assert encoded["token_type_ids"].max() == 1
    with torch.no_grad():
        logits = model.eval()(**encoded).prediction_logits
    assert logits.shape[-1] == 2000
    assert torch.isfinite(logits).all()

    evaluated = [
        evaluate(folder, data, device="cpu", seed=42) for folder in (killed_and_continued, out)
    ]
    assert evaluated[0]["mlm_loss"] == pytest.approx(evaluated[1]["mlm_loss"], rel=1e-5)

    continued = train(
        replace(
            stored_config(killed_and_continued),
            output_dir=str(work / "from the export"),
            init=str(out),
            steps=1,
            optimizer=OptimizerConfig(learning_rate=1e-9),
        )
    )
    assert continued["validation"]["mlm_loss"] == pytest.approx(evaluated[0]["mlm_loss"], rel=1e-4)


def stored_config(run_dir):
    stored = read_json(run_dir / "config.json")
    return RunConfig(
        **{
            **stored,
            "model": ModelConfig(**stored["model"]),
            "optimizer": OptimizerConfig(**stored["optimizer"]),
            "masking": MaskingConfig(**stored["masking"]),
        }
    )


def test_verify_passes_and_manifest_counts_what_was_left_out(data):
    assert run_command("data_prep", "verify", str(data)).returncode == 0
    manifest = read_json(data / "manifest.json")
    assert manifest["documents"]["documents"] == 8
    assert manifest["excluded"]["redirect"] > 0
    assert manifest["splits"]["validation"]["documents"] == 2

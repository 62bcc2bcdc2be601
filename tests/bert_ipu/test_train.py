"""The run folder: trained, continued after a kill to the bit, refused when changed, evaluated, exported."""

from __future__ import annotations

import json
import logging
import math
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from bert_ipu.__main__ import main
from bert_ipu.checkpoint import Checkpoints, list_steps, load_weights
from bert_ipu.config import MaskingConfig, ModelConfig, OptimizerConfig, RunConfig
from bert_ipu.metrics import read_metrics
from bert_ipu.train import evaluate, train
from packing.files import read_json
from tests.resources import assert_one_line_error, call_command
from tests.shards import INFO, write_folder

METRIC_KEYS = {
    "step",
    "lr",
    "loss",
    "mlm_loss",
    "nsp_loss",
    "mlm_accuracy",
    "nsp_accuracy",
    "tokens_per_second",
    "packs_per_second",
    "sequences_per_second",
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "packed data"
    write_folder(path, [20, 13], splits=("train", "validation"))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
    entries = special + [f"word{i}" for i in range(INFO.vocab_size - 6)]
    (path / "tokenizer" / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    return path


def make_config(data, run_dir, **changes):
    config = RunConfig(
        data_dir=str(data),
        output_dir=str(run_dir),
        model=ModelConfig(
            vocab_size=INFO.vocab_size,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=INFO.max_length,
        ),
        optimizer=OptimizerConfig(learning_rate=1e-2),
        device="cpu",
        steps=12,
        global_batch_size=8,
        micro_batch_size=4,
        log_every=1,
        save_every=4,
    )
    return replace(config, **changes)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """An unbroken run, not to be changed: (config, folder, summary)."""
    run_dir = tmp_path_factory.mktemp("run") / "straight"
    config = make_config(data, run_dir)
    return config, run_dir, train(config)


def weights_of(run_dir):
    newest = list_steps(run_dir / "checkpoints")[-1]
    return load_file(run_dir / "checkpoints" / f"step-{newest:08d}" / "model.safetensors")


def losses_of(run_dir):
    return [(line["step"], line["lr"], line["loss"]) for line in read_metrics(run_dir)]


def assert_same_run(one, other):
    assert losses_of(one) == losses_of(other)
    left, right = weights_of(one), weights_of(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def test_metrics_and_summary(trained):
    config, run_dir, summary = trained
    lines = read_metrics(run_dir)
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert all(set(line) == METRIC_KEYS for line in lines)
    for line in lines:
        assert line["loss"] == pytest.approx(line["mlm_loss"] + line["nsp_loss"], rel=1e-5)
        assert math.isfinite(line["loss"])
        assert line["tokens_per_second"] > line["sequences_per_second"] > 0
    assert summary["steps"] == 12
    assert summary["first"]["loss"] == lines[0]["loss"]
    assert summary["validation"]["sequences"] > 33
    assert read_json(run_dir / "summary.json")["steps"] == 12
    assert list_steps(run_dir / "checkpoints") == [8, 12]
    assert read_json(run_dir / "config.json")["model"]["hidden_size"] == config.model.hidden_size


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", [1, 4, 7, 11])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_run_killed_at_any_step_continues_to_the_bit(data, tmp_path, monkeypatch, at, optimizer):
    changes = {"optimizer": OptimizerConfig(name=optimizer, learning_rate=1e-2)}
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(make_config(data, straight, **changes))
    from bert_ipu.backends.torch import TorchBackend

    step = TorchBackend.step

    def dies(self, micro_batches, *, step_function=step, **named):
        if named["step"] == at:
            raise Killed
        return step_function(self, micro_batches, **named)

    config = make_config(data, broken, **changes)
    monkeypatch.setattr(TorchBackend, "step", dies)
    with pytest.raises(Killed):
        train(config)
    monkeypatch.undo()
    assert list_steps(broken / "checkpoints") == ([at // 4 * 4] if at >= 4 else [])[-1:] or at == 11
    train(replace(config, workers=0))
    assert_same_run(straight, broken)


def test_finished_run_is_left_as_it_is_and_more_steps_continue(trained, tmp_path):
    config, run_dir, summary = trained
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    again = replace(config, output_dir=str(copy))
    before = weights_of(copy)
    assert train(again)["validation"] == summary["validation"]
    assert all(torch.equal(before[name], tensor) for name, tensor in weights_of(copy).items())
    more = train(replace(again, steps=15, micro_batch_size=8, log_every=2, save_every=100))
    assert more["steps"] == 15
    assert losses_of(copy)[:12] == losses_of(run_dir)


def test_micro_batch_size_and_workers_change_only_rounding(trained, data, tmp_path):
    _, run_dir, _ = trained
    config = make_config(data, tmp_path / "other", micro_batch_size=3, workers=1)
    no_dropout = replace(config.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    one = replace(config, model=no_dropout)
    two = replace(one, output_dir=str(tmp_path / "two"), micro_batch_size=8, workers=0)
    train(one)
    train(two)
    for left, right in zip(losses_of(tmp_path / "other"), losses_of(tmp_path / "two")):
        assert left[2] == pytest.approx(right[2], rel=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, ["seed = 42, now 1"]),
        ({"global_batch_size": 4}, ["global_batch_size = 8, now 4"]),
        ({"masking": MaskingConfig(mode="static")}, ["masking.mode = 'dynamic', now 'static'"]),
        ({"loss_normalization": "per_token"}, ["loss_normalization"]),
        ({"optimizer": OptimizerConfig(learning_rate=2e-2)}, ["optimizer.learning_rate"]),
    ],
)
def test_changed_settings_are_refused_by_key(trained, change, words):
    config, run_dir, _ = trained
    before = losses_of(run_dir)
    with pytest.raises(ValueError, match="--overwrite") as caught:
        train(replace(config, **change))
    for word in words:
        assert word in str(caught.value)
    assert losses_of(run_dir) == before


def test_overwrite_starts_anew_and_spares_foreign_folders(trained, tmp_path):
    config, run_dir, _ = trained
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    train(replace(config, output_dir=str(copy), seed=1, steps=2), overwrite=True)
    assert [line["step"] for line in read_metrics(copy)] == [1, 2]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("do not delete", encoding="utf-8")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="not a run of this program"):
            train(replace(config, output_dir=str(foreign)), overwrite=overwrite)
    assert (foreign / "thesis.txt").exists()


def test_overwrite_deletes_only_what_a_run_wrote(trained, data, tmp_path):
    config, run_dir, _ = trained
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    (copy / "notes.txt").write_text("mine", encoding="utf-8")
    train(replace(config, output_dir=str(copy), steps=1), overwrite=True)
    assert (copy / "notes.txt").exists()
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    (home / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="not a run of this program"):
        train(replace(config, output_dir=str(home)), overwrite=True)
    assert (home / "docs").exists()


@pytest.mark.parametrize("inside", [".", "run", ".."])
def test_run_folder_and_data_keep_apart(trained, data, tmp_path, inside):
    config, run_dir, _ = trained
    shutil.copytree(data, tmp_path / "x" / "data")
    folder = tmp_path / "x" / "data"
    with pytest.raises(ValueError, match="must not contain each other"):
        train(
            replace(config, data_dir=str(folder), output_dir=str(folder / inside)), overwrite=True
        )
    assert (folder / "manifest.json").exists()
    with pytest.raises(ValueError, match="must not contain each other"):
        train(replace(config, output_dir=str(run_dir), init=str(run_dir)), overwrite=True)
    assert list_steps(run_dir / "checkpoints") == [8, 12]


def test_a_refused_run_leaves_nothing_and_a_half_begun_one_goes_on(trained, tmp_path):
    config, run_dir, _ = trained
    with pytest.raises(ValueError, match="no such folder"):
        train(replace(config, output_dir=str(tmp_path / "a"), init=str(tmp_path / "none")))
    assert not (tmp_path / "a").exists()
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(run_dir / "run.json", begun)
    train(replace(config, output_dir=str(begun)))
    assert_same_run(run_dir, begun)


def test_export_does_not_replace_a_run(trained):
    _, run_dir, _ = trained
    done = call_command(
        main,
        *("export", "--checkpoint", str(run_dir), "--output", str(run_dir), "--overwrite"),
    )
    assert_one_line_error(done, 2, str(run_dir), "not replacing it")
    assert list_steps(run_dir / "checkpoints") == [8, 12]


def test_other_data_is_refused(trained, data, tmp_path):
    config, _, _ = trained
    other = tmp_path / "other data"
    write_folder(other, [20, 13], seed=9, splits=("train", "validation"))
    with pytest.raises(ValueError, match="other data"):
        train(replace(config, data_dir=str(other)))


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt", "state.json"])
def test_broken_newest_checkpoint_is_reported_and_the_one_before_used(
    trained, tmp_path, caplog, file
):
    config, run_dir, _ = trained
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    damaged = copy / "checkpoints" / "step-00000012" / file
    damaged.write_bytes(damaged.read_bytes()[:40])
    with caplog.at_level(logging.WARNING):
        train(replace(config, output_dir=str(copy)))
    assert file in caplog.text
    assert "broken checkpoint" in caplog.text
    assert_same_run(run_dir, copy)


def test_all_checkpoints_broken(trained, tmp_path):
    config, run_dir, _ = trained
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    for path in (copy / "checkpoints").glob("*/model.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="none of 2 checkpoints can be read"):
        train(replace(config, output_dir=str(copy)))


def test_phase_2_starts_from_the_weights_of_phase_1(trained, data, tmp_path):
    config, run_dir, _ = trained
    start = weights_of(run_dir)
    second = make_config(data, tmp_path / "second", init=str(run_dir), steps=1, log_every=1)
    second = replace(second, optimizer=OptimizerConfig(learning_rate=1e-9, warmup_fraction=0.0))
    train(second)
    for name, tensor in weights_of(tmp_path / "second").items():
        assert torch.allclose(tensor, start[name], atol=1e-6), name
    with pytest.raises(ValueError, match="init: .*hidden_size = 16, expected 32"):
        train(
            replace(
                second,
                output_dir=str(tmp_path / "third"),
                model=replace(config.model, hidden_size=32),
            )
        )
    with pytest.raises(ValueError, match="no such folder"):
        train(replace(second, output_dir=str(tmp_path / "fourth"), init="nowhere"))


def test_evaluate_is_exact_and_independent_of_the_cut(trained, data):
    _, run_dir, summary = trained
    figures = evaluate(run_dir, data, device="cpu")
    for name, value in summary["validation"].items():
        assert figures[name] == pytest.approx(value, rel=1e-5)
    for micro_batch_size in (1, 7, 100):
        cut = evaluate(run_dir, data, device="cpu", micro_batch_size=micro_batch_size)
        assert cut["loss"] == pytest.approx(figures["loss"], rel=1e-5)
        assert cut["mlm_accuracy"] == figures["mlm_accuracy"]
    with pytest.raises(ValueError, match="split: expected one of"):
        evaluate(run_dir, data, split="test")


def test_model_and_data_must_fit(data, tmp_path):
    config = make_config(data, tmp_path / "run")
    for change, message in (
        ({"vocab_size": 100}, "model.vocab_size: 100, but .* vocabulary of 64 entries"),
        ({"max_position_embeddings": 8}, "max_position_embeddings: 8, but .* sequences of"),
        ({"type_vocab_size": 1}, "type_vocab_size: 1, expected 2"),
    ):
        with pytest.raises(ValueError, match=message):
            train(replace(config, model=replace(config.model, **change)))
    assert not (tmp_path / "run").exists()


def test_loss_that_is_not_finite_stops_with_the_step(data, tmp_path, monkeypatch):
    from bert_ipu.backends.torch import TorchBackend

    step = TorchBackend.step

    def poisoned(self, micro_batches, **named):
        metrics = step(self, micro_batches, **named)
        return {**metrics, "loss": math.nan} if named["step"] == 5 else metrics

    monkeypatch.setattr(TorchBackend, "step", poisoned)
    with pytest.raises(FloatingPointError, match="step 6: loss is nan"):
        train(make_config(data, tmp_path / "run"))
    assert list_steps(tmp_path / "run" / "checkpoints") == [4]


def test_weights_come_from_run_checkpoint_or_export(trained, data, tmp_path):
    _, run_dir, _ = trained
    out = tmp_path / "exported model"
    done = call_command(
        main,
        *("export", "--checkpoint", str(run_dir), "--output", str(out)),
        *("--data", str(data)),
    )
    # this vocabulary has no tokenizer.json, so nobody says whether it is cased
    assert_one_line_error(done, 2, "lower")
    checkpoint = run_dir / "checkpoints" / "step-00000012"
    for path in (run_dir, checkpoint):
        weights = load_weights(path)
        assert weights.step == 12
        assert weights.run_dir == run_dir
        assert torch.equal(
            weights.state["cls.predictions.bias"], weights_of(run_dir)["cls.predictions.bias"]
        )
    with pytest.raises(ValueError, match="neither a run with checkpoints nor a model folder"):
        load_weights(tmp_path)


def test_command_line(trained, data, tmp_path):
    config, run_dir, summary = trained
    done = call_command(
        main,
        *("evaluate", "--checkpoint", str(run_dir), "--data", str(data), "--json"),
        *("--device", "cpu"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loss"] == pytest.approx(summary["validation"]["loss"], rel=1e-4)
    stored = run_dir / "config.json"
    done = call_command(
        main,
        *("train", "--config", str(stored), "--output-dir", str(tmp_path / "run")),
        *("--steps", "2", "--model.hidden-size", "8"),
    )
    assert done.returncode == 0, done.stderr
    assert "2 steps: loss" in done.stdout
    assert read_json(tmp_path / "run" / "config.json")["model"]["hidden_size"] == 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--steps", "0"], ["steps", "got 0"]),
        (["--steps", "many"], ["steps", "many"]),
        (["--model.hidden-size", "17"], ["hidden_size", "17"]),
        (["--optimizer.name", "sgd"], ["sgd"]),
        (["--optimiser.name", "lamb"], ["--optimiser.name"]),
        (["--data-dir", "/nowhere"], ["/nowhere", "not a data folder"]),
        (["--device", "tpu"], ["tpu"]),
        (["--config", "/nowhere.yaml"], ["nowhere.yaml"]),
    ],
)
def test_bad_options_are_one_line(trained, tmp_path, options, words):
    _, run_dir, _ = trained
    done = call_command(
        main,
        *("train", "--config", str(run_dir / "config.json")),
        *("--output-dir", str(tmp_path / "run"), *options),
    )
    assert_one_line_error(done, 2, *words)
    assert not (tmp_path / "run").exists()


def test_run_without_validation_split(tmp_path):
    write_folder(tmp_path / "data", [9])
    summary = train(make_config(tmp_path / "data", tmp_path / "run", steps=2))
    assert summary["validation"] is None


def test_checkpoints_sort_by_number(tmp_path):
    for step in (900, 1000, 99):
        (tmp_path / "checkpoints" / f"step-{step}").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-00001200.partial").mkdir()
    assert Checkpoints(tmp_path, 2, {}).steps() == [99, 900, 1000]

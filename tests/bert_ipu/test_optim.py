"""AdamW and LAMB against their formulas in numpy, parameter groups, and the schedule's edges."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from bert_ipu.config import ModelConfig, OptimizerConfig
from bert_ipu.model import BertForPackedPreTraining
from bert_ipu.optim import Lamb, learning_rate, make_optimizer, parameter_groups, trust_ratio

ADAMW = dict(name="adamw", learning_rate=0.05, weight_decay=0.1)
LAMB = dict(name="lamb", learning_rate=0.05, weight_decay=0.1)
CASES = {
    "adamw": ADAMW,
    "adamw, other constants": dict(ADAMW, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.0),
    "lamb": LAMB,
    "lamb without bias correction": dict(LAMB, bias_correction=False),
    "lamb, limited norms": dict(LAMB, max_weight_norm=0.3),
    "lamb, no trust ratio": dict(LAMB, max_weight_norm=0.0),
    "lamb, other constants": dict(LAMB, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.0),
}


def small_model() -> nn.Module:
    """Float64 weights of every group; `zero` starts at norm 0, `still` never gets a gradient."""
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False)).double()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    model.zero = nn.Parameter(torch.zeros(2, 3, dtype=torch.float64))
    model.still = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    return model


def numpy_step(config, name, w, g, m, v, t):
    """One update of one parameter: new w, m, v."""
    decay = config.weight_decay if w.ndim > 1 else 0.0
    b1, b2 = config.betas
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    mh, vh = m, v
    if config.bias_correction:
        mh, vh = m / (1 - b1**t), v / (1 - b2**t)
    x = mh / (np.sqrt(vh) + config.eps) + decay * w
    trust = 1.0
    if config.name == "lamb" and not name.endswith("bias") and config.max_weight_norm != 0:
        r1, r2 = np.sqrt((w**2).sum()), np.sqrt((x**2).sum())
        if config.max_weight_norm is not None:
            r1 = min(r1, config.max_weight_norm)
        if r1 > 0 and r2 > 0:
            trust = r1 / r2
    return w - config.learning_rate * trust * x, m, v


@pytest.mark.parametrize("case", sorted(CASES))
def test_three_updates_match_numpy(case):
    config = OptimizerConfig(**CASES[case])
    model = small_model()
    optimizer = make_optimizer(model, config)
    rng = np.random.default_rng(1)
    weights = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}
    for t in (1, 2, 3):
        for name, parameter in model.named_parameters():
            if name == "still":
                continue
            # the first gradient of `zero` is zero: both of LAMB's norms are then 0
            gradient = rng.normal(size=parameter.shape) * (name != "zero" or t > 1)
            parameter.grad = torch.from_numpy(gradient)
            weights[name], *moments[name] = numpy_step(
                config, name, weights[name], gradient, *moments[name], t
            )
        optimizer.step()
        for name, parameter in model.named_parameters():
            np.testing.assert_allclose(
                parameter.detach().numpy(), weights[name], rtol=1e-13, atol=1e-15, err_msg=name
            )
    assert torch.equal(model.still, torch.ones(2, 2, dtype=torch.float64))
    assert not torch.equal(model.zero, torch.zeros(2, 3, dtype=torch.float64))


def test_groups_of_the_model():
    config = ModelConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    model = BertForPackedPreTraining(config)
    names = {id(p): name for name, p in model.named_parameters()}
    biases, vectors, matrices = parameter_groups(model, 0.01, max_weight_norm=10.0)
    assert all(names[id(p)].endswith("bias") for p in biases["params"])
    assert {names[id(p)].split(".")[-2] for p in vectors["params"]} == {"LayerNorm"}
    assert all(p.dim() == 2 for p in matrices["params"])
    everything = [p for group in (biases, vectors, matrices) for p in group["params"]]
    assert sorted(map(id, everything)) == sorted(names)
    assert [g["weight_decay"] for g in (biases, vectors, matrices)] == [0.0, 0.0, 0.01]
    assert [g["max_weight_norm"] for g in (biases, vectors, matrices)] == [0.0, 10.0, 10.0]


def test_frozen_parameters_and_empty_groups_are_left_out():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    (group,) = parameter_groups(model, 0.5)
    assert group["params"] == [model.weight]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # torch 2.0.1 about itself
@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_a_restored_optimizer_continues_bit_identically(name, tmp_path):
    config = OptimizerConfig(name=name, learning_rate=0.1)

    def update(model, optimizer, step):
        for parameter in model.parameters():
            generator = torch.Generator().manual_seed(step)
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()

    model = small_model().float()
    optimizer = make_optimizer(model, config)
    for step in range(3):
        update(model, optimizer, step)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    restored_model = copy.deepcopy(model)
    restored = make_optimizer(restored_model, config)
    restored.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    for step in range(3, 6):
        update(model, optimizer, step)
        update(restored_model, restored, step)
    for straight, resumed in zip(model.parameters(), restored_model.parameters()):
        assert torch.equal(straight, resumed)


def test_norms_of_bfloat16_are_taken_in_float32():
    weight = torch.linspace(1.0, 2.0, 77).bfloat16()
    update = torch.linspace(3.0, 5.0, 77).bfloat16()
    expected = weight.double().norm() / update.double().norm()
    np.testing.assert_allclose(trust_ratio(weight, update, None), expected, rtol=1e-6)


def test_lamb_runs_a_closure():
    weight = nn.Parameter(torch.full((2, 2), 8.0))
    optimizer = Lamb([weight], lr=0.25, weight_decay=0.0, eps=1e-20)

    def closure():
        loss = weight.sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 32.0
    # the direction is 1 everywhere, so the trust ratio is 8 and the step 0.25 * 8
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), 6.0))


def rates(total: int, **options) -> list[float]:
    config = OptimizerConfig(learning_rate=2.0, **options)
    return [learning_rate(step, total, config) for step in range(total)]


def test_linear_schedule():
    assert rates(8, warmup_fraction=0.5) == [0.5, 1.0, 1.5, 2.0, 2.0, 1.5, 1.0, 0.5]
    assert rates(4, warmup_fraction=0.0) == [2.0, 1.5, 1.0, 0.5]
    assert rates(4, warmup_fraction=1.0) == [0.5, 1.0, 1.5, 2.0]
    assert rates(1, warmup_fraction=0.28) == [2.0]


def test_other_schedules():
    assert rates(6, warmup_fraction=0.5, schedule="constant")[3:] == [2.0, 2.0, 2.0]
    root = rates(4, warmup_fraction=0.0, schedule="polynomial", decay_power=0.5)
    np.testing.assert_allclose(root, 2.0 * np.sqrt([1.0, 0.75, 0.5, 0.25]), rtol=1e-15)


def test_reference_warm_up_of_7038_steps():
    values = rates(7038, warmup_fraction=0.28)
    assert np.argmax(values) == 1970  # steps 1970 and 1971 have the peak; 0.28 * 7038 = 1970.64
    assert values[1970] == values[1971] == 2.0
    assert min(values) > 0.0
    assert values[0] == 2.0 / 1971


@pytest.mark.parametrize("step", [-1, 5, 6])
def test_a_step_outside_the_run_is_refused(step):
    with pytest.raises(ValueError, match=rf"step must be in \[0, total_steps=5\), got {step}"):
        learning_rate(step, 5, OptimizerConfig())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(name="sgd"), "name must be one of adamw, lamb, got 'sgd'"),
        (dict(learning_rate=0.0), "learning_rate must be a number > 0, got 0.0"),
        (dict(learning_rate=float("nan")), "learning_rate must be a number > 0, got nan"),
        (dict(betas=(0.9,)), r"betas must be two numbers, got \(0.9,\)"),
        (dict(betas=(0.9, 1.0)), r"betas must be a number in \[0, 1\), got 1.0"),
        (dict(eps=0), "eps must be a number > 0, got 0"),
        (dict(weight_decay=-1), "weight_decay must be a number >= 0, got -1"),
        (dict(name="lamb", max_weight_norm=-1), "max_weight_norm must be a number >= 0, got -1"),
        (dict(max_weight_norm=1.0), "max_weight_norm needs name: lamb, got adamw"),
        (dict(bias_correction=False), "bias_correction: false needs name: lamb, got adamw"),
        (dict(max_grad_norm=0.0), "max_grad_norm must be a number > 0, got 0.0"),
        (dict(warmup_fraction=1.5), r"warmup_fraction must be a number in \[0, 1\], got 1.5"),
        (dict(schedule="cosine"), "schedule must be one of linear, constant, polynomial"),
        (dict(schedule="polynomial"), "schedule: polynomial needs decay_power"),
        (dict(decay_power=0.5), "decay_power needs schedule: polynomial, got linear"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**options)

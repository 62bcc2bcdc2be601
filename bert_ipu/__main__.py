"""Command line of training: python -m bert_ipu COMMAND."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

from packing import cli

try:
    from bert_ipu.checkpoint import load_weights
    from bert_ipu.config import RunConfig
    from bert_ipu.huggingface import export_folder
    from bert_ipu.train import evaluate, train
except ModuleNotFoundError as error:
    sys.exit("bert_ipu: error: " + cli.missing_library("train", error))


def add_train(parser: cli.Parser) -> Callable[[Any], None]:
    """Train BERT (MLM and NSP) on packed shards; continues a run that was broken off."""
    parser.add_argument("--config", action="config", help="YAML file; several: later ones win")
    parser.add_class_arguments(RunConfig)
    parser.add_argument(
        "--overwrite", action="store_true", help="delete what is in the output folder, start anew"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    return run_train


def run_train(options: Any) -> None:
    config = cli.dataclass_from(RunConfig, options)
    try:
        summary = train(config, options.overwrite)
    except FloatingPointError as error:
        raise cli.CheckFailed(str(error)) from None
    if options.json:
        print(json.dumps(summary))
        return
    first, last = summary["first"], summary["last"]
    print(
        f"{summary['steps']} steps: loss {first['loss']:.3f} -> {last['loss']:.3f}, "
        f"MLM accuracy {last['mlm_accuracy']:.1%}, "
        f"{summary['tokens_per_second']:,.0f} real tokens/s"
    )
    if summary["validation"]:
        print_figures("validation", summary["validation"])
    print(f"run folder: {config.output_dir}")


def add_evaluate(parser: cli.Parser) -> Callable[[Any], None]:
    """Print exact figures of a checkpoint on a held-out split."""
    parser.add_argument(
        "--checkpoint",
        type=str,
        required=True,
        help="run folder, checkpoint folder or Hugging Face folder",
    )
    parser.add_argument("--data", type=str, required=True, help="data folder")
    parser.add_argument("--split", type=str, default="validation", help="train or validation")
    parser.add_argument("--micro_batch_size", type=int, default=16, help="packs computed at once")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--loss_normalization",
        type=Optional[str],
        default=None,
        help="per_sequence or per_token (default: that of the run)",
    )
    parser.add_argument(
        "--seed", type=Optional[int], default=None, help="of the masks (default: that of the run)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return run_evaluate


def run_evaluate(options: Any) -> None:
    figures = evaluate(
        Path(options.checkpoint),
        Path(options.data),
        split=options.split,
        micro_batch_size=options.micro_batch_size,
        device=options.device,
        loss_normalization=options.loss_normalization,
        seed=options.seed,
    )
    if options.json:
        print(json.dumps(figures))
        return
    print_figures(options.split, figures)


def print_figures(split: str, figures: Dict[str, float]) -> None:
    print(
        f"{split}: loss {figures['loss']:.4f} (MLM {figures['mlm_loss']:.4f}, NSP "
        f"{figures['nsp_loss']:.4f}), MLM accuracy {figures['mlm_accuracy']:.2%}, NSP accuracy "
        f"{figures['nsp_accuracy']:.2%}, {figures['sequences']:,.0f} sequences in "
        f"{figures['packs']:,.0f} packs"
    )


def add_export(parser: cli.Parser) -> Callable[[Any], None]:
    """Write a folder that transformers' BertForPreTraining loads."""
    parser.add_argument(
        "--checkpoint", type=str, required=True, help="run folder or checkpoint folder"
    )
    parser.add_argument("--output", type=str, required=True, help="folder to write")
    parser.add_argument(
        "--data",
        type=Optional[str],
        default=None,
        help="data folder whose tokenizer is written too (default: the run's own)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    return run_export


def run_export(options: Any) -> None:
    weights = load_weights(Path(options.checkpoint))
    if options.data:
        tokenizer_dir = Path(options.data) / "tokenizer"
    elif weights.run_dir is not None:
        tokenizer_dir = weights.run_dir / "tokenizer"
    else:
        raise ValueError("data: expected a data folder, whose tokenizer goes with these weights")
    export_folder(
        weights.state,
        weights.config,
        tokenizer_dir,
        Path(options.output),
        overwrite=options.overwrite,
    )
    print(options.output)


def main(argv: Optional[Sequence[str]] = None) -> int:
    return cli.main(
        "bert_ipu",
        "Trains BERT on packed sequences.",
        {"train": add_train, "evaluate": add_evaluate, "export": add_export},
        argv,
    )


if __name__ == "__main__":
    sys.exit(main())

"""The run: stage after stage, each kept when nothing that it depends on has changed."""

from __future__ import annotations

import logging
import platform
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from data_prep.config import DataConfig
from data_prep.documents import Documents, extract
from data_prep.examples import examples_stage
from data_prep.pack import histogram_stage, plan_stage, publish, shards_stage
from data_prep.sources import InputFile, find_inputs
from data_prep.stage import MANIFEST, Manifest, StageState, num_workers, run_stage
from data_prep.verify import verify
from data_prep.vocabulary import (
    Vocabulary,
    make_vocabulary,
    read_vocabulary,
    train_vocabulary,
)
from packing import __version__
from packing.files import file_sha256, fingerprint, write_json

log = logging.getLogger(__name__)

STAGES = ("extract", "vocabulary", "examples", "histogram", "plan", "shards", "verify")
# For estimates only, measured on English Wikipedia: bytes of XML per byte of the compressed dump,
# clean text per byte of XML, tokens per byte of clean text.
EXPANSION = {".bz2": 4.5, ".gz": 3.0, ".xz": 5.0}
CLEAN_SHARE = 0.55
TOKENS_PER_BYTE = 0.24


@dataclass(frozen=True)
class Stage:
    """One stage of a run: where it lies, what it depends on, what it does."""

    name: str
    folder: Path
    settings: Dict[str, Any]
    body: Callable[[Path], Dict[str, Any]]


class Pipeline:
    """The stages of one configuration, made one after the other: each needs its forerunners' results."""

    def __init__(self, config: DataConfig):
        """Finds the inputs and reads a given vocabulary. Raises ValueError when one is missing or wrong."""
        self.config = config
        self.output_dir = Path(config.output_dir)
        self.corpus_dir = Path(config.corpus_dir or config.output_dir)
        self.workers = num_workers(config.workers)
        if not config.source.inputs:
            raise ValueError(
                "source.inputs: expected at least one file, folder or glob, found none"
            )
        self.files: List[InputFile] = find_inputs(config.source.inputs, config.source.format)
        self.given: Optional[Vocabulary] = None
        if config.vocabulary.tokenizer:
            self.given = read_vocabulary(
                Path(config.vocabulary.tokenizer), config.vocabulary.lowercase
            )
        self.done: Dict[str, Manifest] = {}

    def folder(self, name: str) -> Path:
        shared = name in ("extract", "vocabulary")
        return (self.corpus_dir if shared else self.output_dir) / name

    def _after(self, *names: str) -> Dict[str, str]:
        """Fingerprints of the stages that this one reads."""
        return {
            f"{name}_fingerprint": self.done[name]["fingerprint"] if name in self.done else "?"
            for name in names
        }

    def stage(self, name: str) -> Stage:
        """Describes a stage; those before it must be in `done`, or its settings are incomplete."""
        settings, body = getattr(self, f"_{name}")()
        return Stage(name, self.folder(name), settings, body)

    def _extract(self) -> Any:
        config = self.config
        settings = {
            "inputs": [
                {
                    "name": file.name,
                    "format": file.format,
                    "bytes": Path(file.path).stat().st_size,
                    "sha256": file_sha256(Path(file.path)),
                }
                for file in self.files
            ],
            "language": config.source.language,
            "limit": config.limit,
            "partition_size": config.partition_size,
        }
        return settings, lambda scratch: extract(
            scratch,
            self.files,
            language=config.source.language,
            limit=config.limit,
            partition_size=config.partition_size,
            workers=self.workers,
        )

    def _vocabulary(self) -> Any:
        if self.given is not None:
            given = self.given
            return (
                {"given": fingerprint(asdict(given))},
                lambda scratch: make_vocabulary(scratch, given, trained=False),
            )
        size = self.config.vocabulary.size
        lowercase = self.config.vocabulary.lowercase is not False

        def train(scratch: Path) -> Dict[str, Any]:
            documents = Documents(self.folder("extract"))
            trained = train_vocabulary(documents.sentences, size, lowercase)
            return make_vocabulary(scratch, trained, trained=True)

        return {"size": size, "lowercase": lowercase, **self._after("extract")}, train

    def _examples(self) -> Any:
        config = self.config
        settings = {
            **asdict(config.examples),
            "partition_size": config.partition_size,
            "seed": config.seed,
        }
        return (
            {**settings, **self._after("extract", "vocabulary")},
            lambda scratch: examples_stage(
                scratch,
                documents_dir=self.folder("extract"),
                vocabulary_dir=self.folder("vocabulary"),
                workers=self.workers,
                **settings,
            ),
        )

    def _histogram(self) -> Any:
        return self._after("examples"), lambda scratch: histogram_stage(
            scratch, self.folder("examples"), self.done["examples"]
        )

    def _plan(self) -> Any:
        settings = {
            "algorithm": self.config.pack.algorithm,
            "max_length": self.config.examples.max_length,
            "max_per_pack": self.config.pack.max_per_pack,
        }
        return {**settings, **self._after("histogram")}, lambda scratch: plan_stage(
            scratch, self.folder("histogram"), **settings
        )

    def _shards(self) -> Any:
        settings = {"packs_per_shard": self.config.pack.packs_per_shard, "seed": self.config.seed}
        return (
            {**settings, **self._after("vocabulary", "examples", "plan")},
            lambda scratch: shards_stage(
                scratch,
                vocabulary_dir=self.folder("vocabulary"),
                examples_dir=self.folder("examples"),
                plan_dir=self.folder("plan"),
                examples=self.done["examples"],
                vocabulary_sha256=self.done["vocabulary"]["vocab_sha256"],
                workers=self.workers,
                **settings,
            ),
        )

    def _verify(self) -> Any:
        return self._after("shards"), lambda scratch: verify(self.output_dir)


def run(config: DataConfig, overwrite: bool = False) -> Dict[str, Any]:
    """Runs every stage that is not done and returns the manifest of the data folder.

    Raises ValueError on bad input or when a folder holds the result of other settings, Mismatch when
    the written shards do not pass `verify`.
    """
    started = time.time()
    pipeline = Pipeline(config)
    seconds: Dict[str, float] = {}
    manifest: Dict[str, Any] = {}
    for name in STAGES:
        before = time.perf_counter()
        stage = pipeline.stage(name)
        changed = StageState(name, stage.folder, stage.settings).status != "done"
        if name == "shards" and changed and (overwrite or not stage.folder.exists()):
            (pipeline.output_dir / MANIFEST).unlink(missing_ok=True)  # no longer true
        pipeline.done[name] = run_stage(name, stage.folder, stage.settings, stage.body, overwrite)
        if name == "shards":
            manifest = publish(pipeline.output_dir, pipeline.folder("vocabulary"), pipeline.done)
        seconds[name] = round(time.perf_counter() - before, 3)
    write_json(pipeline.output_dir / "run.json", _run_record(config, pipeline, seconds, started))
    return manifest


def _run_record(
    config: DataConfig, pipeline: Pipeline, seconds: Dict[str, float], started: float
) -> Dict[str, Any]:
    """What belongs to this run and not to the data: clock, machine, paths, workers."""
    return {
        "config": asdict(config),
        "inputs": [str(Path(file.path).resolve()) for file in pipeline.files],
        "workers": pipeline.workers,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
        "seconds": seconds,
        "version": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
    }


def dry_run(config: DataConfig) -> Dict[str, Any]:
    """What `run` would do: the state of each stage, estimated disk use in bytes, free disk in bytes.

    A stage whose forerunner would run anew is listed as such; nothing is written.
    """
    pipeline = Pipeline(config)
    states: Dict[str, str] = {}
    anew = False
    for name in STAGES:
        if anew:
            states[name] = "would run"
            continue
        stage = pipeline.stage(name)
        state = StageState(name, stage.folder, stage.settings)
        states[name] = {
            "done": "unchanged, would be kept",
            "missing": "would run",
            "changed": f"refused without --overwrite: {state.difference}",
            "foreign": f"refused: {state.difference}",
        }[state.status]
        anew = state.status != "done"
        if state.manifest is not None:
            pipeline.done[name] = state.manifest
    existing = pipeline.output_dir.resolve()
    while not existing.exists():
        existing = existing.parent
    return {
        "stages": states,
        "folders": {name: str(pipeline.folder(name)) for name in STAGES},
        "estimated_bytes": estimate_bytes(pipeline.files, config),
        "free_bytes": shutil.disk_usage(existing).free,
    }


def estimate_bytes(files: List[InputFile], config: DataConfig) -> Dict[str, int]:
    """Rough disk use by stage, in bytes, from the sizes of the inputs (see EXPANSION)."""
    text = 0.0
    for file in files:
        size = Path(file.path).stat().st_size * EXPANSION.get(Path(file.path).suffix, 1.0)
        text += size * (CLEAN_SHARE if file.format == "mediawiki" else 1.0)
    tokens = text * TOKENS_PER_BYTE
    token_bytes = 2 if config.vocabulary.size <= 2**16 else 4
    return {
        "extract": int(text * 1.05),
        "examples": int(tokens * token_bytes * 1.1),
        "shards": int(tokens * token_bytes * 1.1),
    }

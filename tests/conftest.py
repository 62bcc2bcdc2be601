"""What all tests share: hypothesis's profile, and files that are there or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.resources import find_published, find_sample_dump

settings.register_profile(
    "project", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")


@pytest.fixture
def published():
    """Gives the path of a published file by its name; skips when the files are not at hand."""

    def get(name: str) -> Path:
        path = find_published(name)
        if path is None:
            pytest.skip(f"{name} is not at hand (PACKED_BERT_TEST_DATA names its folder)")
        return path

    return get


@pytest.fixture(scope="session")
def sample_dump() -> Path:
    """The piece of the English Wikipedia dump that the package gensim carries."""
    path = find_sample_dump()
    if path is None:
        pytest.skip("the package gensim, which carries the sample dump, is not installed")
    return path

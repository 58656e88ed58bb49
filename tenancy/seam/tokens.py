"""Counting tokens without ever asking the network."""

import hashlib
import os
import tempfile
from typing import Any, Final

import tiktoken
from haystack.core.serialization import default_to_dict, import_class_by_name
from haystack.dataclasses import ChatMessage
from haystack.token_counters import ApproximateTokenCounter, TiktokenCounter, TokenCounter
from haystack.tools import ToolsType

#: Where `tiktoken` gets its vocabularies (`tiktoken_ext/openai_public.py`): its cache address, its SHA-256.
VOCABULARIES: Final = {
    "o200k_base": (
        "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}

#: A long text is encoded in slices: some texts cost the encoder quadratic time. A cut adds at most a token or two.
_SLICE_CHARS: Final = 20_000


class SafeTokenCounter(TokenCounter):
    """
    Counts with `tiktoken` where its vocabulary is on disk already, else by Haystack's `ApproximateTokenCounter`.

    Nothing is ever downloaded, and no text can make it raise: `<|endoftext|>` in a tool's result is text like any
    other.
    """

    def __init__(self, encoding: str = "o200k_base") -> None:
        """
        Make a counter. The vocabulary is loaded at the first use.

        :param encoding: A key of `VOCABULARIES`. Any other name counts approximately.
        """
        self.encoding = encoding
        self._counter: TokenCounter | None = None

    def warm_up(self) -> None:
        """Load the vocabulary, if there is one on disk."""
        if self._counter is None:
            on_disk = vocabulary_on_disk(self.encoding)
            self._counter = _LocalTiktokenCounter(self.encoding) if on_disk else ApproximateTokenCounter()

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Return the number of tokens the messages and tools take, or an estimate of it.

        :param messages: The messages to measure.
        :param tools: Tools whose schemas are sent with them.
        """
        self.warm_up()
        return self._counter.count(messages, tools) if self._counter is not None else 0

    def to_dict(self) -> dict[str, Any]:
        """Serialise the counter; the vocabulary stays where it is."""
        return default_to_dict(self, encoding=self.encoding)


def counter_from_dict(data: dict[str, Any] | None) -> TokenCounter | None:
    """
    Make the counter again whose `to_dict` returned this.

    :param data: `None` for none.
    :raises ImportError: If there is no such class, or Haystack is not allowed to load its module.
    """
    if data is None:
        return None
    kind: Any = import_class_by_name(data["type"])
    counter: TokenCounter = kind.from_dict(data)
    return counter


def vocabulary_on_disk(encoding: str) -> bool:
    """
    Whether `tiktoken` will find this vocabulary in its cache, whole, and so will not download it.

    :param encoding: The name of an encoding.
    """
    if encoding not in VOCABULARIES:
        return False
    address, sha256 = VOCABULARIES[encoding]
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    if folder == "":
        return False
    # SHA-1 is how tiktoken names its cache files; it protects nothing.
    path = os.path.join(folder, hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest())
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


class _LocalTiktokenCounter(TiktokenCounter):
    """Haystack's counter with an encoder that takes any text."""

    def warm_up(self) -> None:
        if self._encoder is None:
            self._encoder = _Encoder(tiktoken.get_encoding(self.encoding))


class _Encoder:
    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = []
        for start in range(0, len(text), _SLICE_CHARS):
            tokens += self._encoding.encode(text[start : start + _SLICE_CHARS], disallowed_special=())
        return tokens

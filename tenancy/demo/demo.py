"""The demo from beginning to end."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from haystack.token_counters import TokenCounter

from tenancy.demo.agent import CONTEXT_WINDOW, ModelChoice, tool_name
from tenancy.demo.at_rest import Search, read_everything
from tenancy.demo.canaries import canaries_of
from tenancy.demo.checks import Verdicts
from tenancy.demo.conversation_checks import are_apart, are_found, are_read_back_exactly, are_small
from tenancy.demo.conversations import Conversation, are_readable, converse
from tenancy.demo.documents import Document, Kind
from tenancy.demo.endings import are_charged_exactly, clear, erase, everything_is_zero, expire
from tenancy.demo.house import House, Parts
from tenancy.demo.log_capture import LogCapture, captured_log
from tenancy.demo.people import gather
from tenancy.demo.probes import are_kept_out, overrun
from tenancy.demo.report import Figure, Report, figures_of
from tenancy.seam.tokens import SafeTokenCounter
from tenancy.startup import KEY_FILE

#: Pieces of each document that are searched for on disk.
_PIECES: Final = 3

T = TypeVar("T")


class Demo:
    """
    The main job, and a verdict on every promise that it shows.

    It works in one directory, which it fills and empties again, and needs neither server nor network.
    """

    def __init__(
        self,
        folder: Path,
        *,
        documents: Sequence[Document],
        model: ModelChoice | None = None,
        parts: Parts | None = None,
        counter: TokenCounter | None = None,
        keep: Path | None = None,
        on_step: Callable[[str], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Prepare. Nothing is written yet.

        :param folder: The data directory to be; it must not exist.
        :param documents: What the tools return.
        :param model: Who answers; the script by default.
        :param parts: What is put to the test; this library by default.
        :param counter: Counts tokens; one that never asks the network by default.
        :param keep: An empty directory for a copy of the data as it is when the conversations are over.
        :param on_step: Told what happens next.
        :param monotonic: Measures the seconds.
        :raises InputRefused: If the documents are not enough.
        """
        self._folder = folder
        self._people = gather(documents)
        self._model = model or ModelChoice()
        self._parts = parts or Parts()
        self._counter = counter or SafeTokenCounter()
        self._keep = keep
        self._on_step = on_step or _silent
        self._monotonic = monotonic
        self._verdicts = Verdicts()
        self._figures: dict[str, Figure] = {}

    def run(self) -> Report:
        """
        Do it.

        :raises InputRefused: If the model's key is missing.
        :raises TenancyError: If the installation cannot be opened. Whatever goes wrong later is in the report.
        """
        started = self._monotonic()
        with captured_log() as log:
            self._on_step("Opening an installation and building the agent")
            house = House.open(
                self._folder, people=self._people, model=self._model, parts=self._parts, counter=self._counter
            )
            try:
                self._attempt("the demo", lambda: self._go(house, log))
            finally:
                self._attempt("closing", house.manager.close)
                self._keep_copy()
        self._figures |= {
            "log_records": log.records,
            "model": self._model.name or "script",
            "seconds": round(self._monotonic() - started, 1),
        }
        return Report(self._verdicts.outcomes, self._figures, self._verdicts.problems)

    def _go(self, house: House, log: LogCapture) -> None:
        empty = read_everything(self._folder)
        self._on_step("Six users of three tenants talk to one agent, all at once")
        conversations = self._attempt("the conversations", lambda: converse(house))
        if conversations is None:
            return
        self._figures |= figures_of(conversations)
        self._figures |= {"context_window": CONTEXT_WINDOW, "runs_at_once": house.shared.witness.most_at_once}
        self._judge_conversations(house, conversations)
        was_exact = self._attempt("usage", lambda: are_charged_exactly(conversations)) is True
        full = read_everything(self._folder)
        self._figures |= {"disk_bytes": full.size_bytes, "files": len(house.files())}

        reopened = self._reopened(house, conversations)
        if reopened is not None:
            self._judge_endings(house, reopened, was_exact=was_exact)
        self._on_step("Searching what was on disk, and what still is, byte for byte")
        search = Search(empty, (full, read_everything(self._folder)), log=log.text)
        self._judge_search(search, references=[reference for each in conversations for reference in each.stored])

    def _judge_conversations(self, house: House, conversations: Sequence[Conversation]) -> None:
        judge, scripted = self._verdicts.judge, house.is_scripted
        judge("conversations_stay_small", lambda: are_small(conversations))
        judge("pages_equal_the_originals", lambda: are_read_back_exactly(conversations, scripted=scripted))
        judge("search_and_list_find_results", lambda: are_found(conversations))
        judge("nothing_of_another_user", lambda: are_apart(conversations))
        self._on_step("Everybody tries everybody else's references")
        judge("foreign_reference_is_not_found", lambda: are_kept_out(house, conversations))
        self._on_step("One session overruns its quota")
        judge("quota_refusal_is_a_bounded_notice", lambda: overrun(house).ended_in_a_notice)

    def _reopened(self, house: House, conversations: Sequence[Conversation]) -> list[Conversation] | None:
        self._on_step("Closing everything, and opening it again")

        def reopen() -> list[Conversation]:
            house.manager.close()
            self._keep_copy()
            house.reopen()
            return [each.again(house) for each in conversations]

        reopened = self._attempt("reopening", reopen)
        self._verdicts.judge("readable_after_reopening", lambda: reopened is not None and are_readable(reopened))
        return reopened

    def _judge_endings(self, house: House, conversations: Sequence[Conversation], *, was_exact: bool) -> None:
        judge = self._verdicts.judge
        self._on_step("A session expires, and cleanup runs")
        expiry = self._attempt("expiry", lambda: expire(house))
        judge("expired_session_is_gone", lambda: expiry is not None and expiry.is_gone)
        judge("expired_session_is_reclaimed", lambda: expiry is not None and expiry.is_reclaimed)
        self._figures["reclaimed_bytes"] = expiry.report.reclaimed_bytes if expiry is not None else 0
        self._on_step("One user is erased")
        erasure = self._attempt("erasure", lambda: erase(house, conversations))
        judge("erased_user_is_gone", lambda: erasure is not None and erasure.is_complete)
        self._figures["erased_bytes"] = erasure.receipt.used_bytes if erasure is not None else 0
        self._on_step("Everybody else's results go, one by one and at a stroke")
        self._attempt("clearing", lambda: clear(house, conversations))
        judge("usage_is_exact_and_zero_afterwards", lambda: was_exact and everything_is_zero(house))

    def _judge_search(self, search: Search, *, references: Sequence[str]) -> None:
        judge = self._verdicts.judge
        pieces = [
            piece
            for person in self._people
            for document in person.documents
            for piece in canaries_of(document.data, count=_PIECES)
        ]
        names = [name.encode() for name in (*map(tool_name, Kind), *references)]
        judge("no_plaintext_at_rest", lambda: search.finds_none_of(pieces))
        judge("no_tool_names_at_rest", lambda: search.finds_none_of(names))
        judge("no_keys_at_rest", lambda: search.finds_keys_only_in(KEY_FILE))
        self._figures["pieces_searched_for"] = len(pieces) + len(names)

    def _attempt(self, what: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the report says what it cost; the rest must still have its say
            self._verdicts.note(what, error)
            return None

    def _keep_copy(self) -> None:
        if self._keep is not None and not any(self._keep.iterdir()):
            shutil.copytree(self._folder, self._keep, dirs_exist_ok=True)


def _silent(_title: str) -> None:
    return

"""
What could be broken, and how to break it. Each sabotage names the check that must notice.

They reach into the library on purpose: what they make of it is what a bug there would.
"""

import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

import tenancy.sealing.envelope
import tenancy.seam.offload
import tenancy.seam.pages
import tenancy.seam.searching
from tenancy.backend import Backend
from tenancy.catalogue import charges, counters
from tenancy.clock import Clock
from tenancy.demo.at_rest import keys_in
from tenancy.demo.conversation_checks import APPLICATION_PAGE_CHARS
from tenancy.errors import ResultNotFound, TenancyError
from tenancy.manager import SessionManager
from tenancy.quotas import Limits
from tenancy.reading import Page
from tenancy.sealing.segments import zstd
from tenancy.seam.compaction import SessionCompactionHook
from tenancy.seam.offload import SessionOffloadHook
from tenancy.session import Session
from tenancy.verify import Finding, Verifier

Sabotage = Callable[[pytest.MonkeyPatch], None]

#: Every sabotage, with the check that must fail for it and the others that cannot but fail too.
SABOTAGES: Final[list[tuple[str, frozenset[str], Sabotage]]] = []


def fails(check: str, *, also: Iterable[str] = ()) -> Callable[[Sabotage], Sabotage]:
    """
    Enter a sabotage.

    :param check: The check whose subject it breaks.
    :param also: Checks whose ground it takes away.
    """

    def enter(sabotage: Sabotage) -> Sabotage:
        SABOTAGES.append((check, frozenset(also), sabotage))
        return sabotage

    return enter


def after(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Have a method's answer changed: `change(answer, *its arguments)` is returned in its place."""
    original = getattr(owner, name)

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(original(*args, **kwargs), *args, **kwargs)

    patch.setattr(owner, name, changed)


def never(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Have a method do nothing."""
    patch.setattr(owner, name, lambda *_args, **_kwargs: None)


# Conversations


@fails(
    "conversations_stay_small",
    also=(
        "pages_equal_the_originals",
        "search_and_list_find_results",
        "nothing_of_another_user",
        "foreign_reference_is_not_found",
        "quota_refusal_is_a_bounded_notice",
        "readable_after_reopening",
        "expired_session_is_gone",
        "expired_session_is_reclaimed",
        "usage_is_exact_and_zero_afterwards",
    ),
)
def nothing_is_offloaded(patch: pytest.MonkeyPatch) -> None:
    never(patch, SessionOffloadHook, "run")


@fails("conversations_stay_small")
def nothing_is_compacted(patch: pytest.MonkeyPatch) -> None:
    never(patch, SessionCompactionHook, "run")


@fails("pages_equal_the_originals")
def a_page_drops_a_character(patch: pytest.MonkeyPatch) -> None:
    after(patch, tenancy.seam.pages.Reader, "_page", lambda text, *_args, **_kwargs: text[:-1])


@fails("pages_equal_the_originals")
def the_application_gets_a_page_short_of_a_character(patch: pytest.MonkeyPatch) -> None:
    # The model's windows are smaller; what it reads stays right.
    def shortened(page: Page, *_args: Any, max_chars: int, **_kwargs: Any) -> Page:
        return replace(page, text=page.text[1:]) if max_chars == APPLICATION_PAGE_CHARS else page

    after(patch, Session, "read_page", shortened)


@fails(
    "pages_equal_the_originals",
    also=(
        "readable_after_reopening",
        "erased_user_is_gone",
    ),
)
def bytes_come_back_as_text(patch: pytest.MonkeyPatch) -> None:
    after(patch, Session, "read", lambda found, *_args: found if isinstance(found, str) else found.decode("latin-1"))


@fails("search_and_list_find_results")
def searching_finds_nothing(patch: pytest.MonkeyPatch) -> None:
    after(patch, tenancy.seam.searching.Searcher, "search", lambda *_args, **_kwargs: "No match.")


@fails("search_and_list_find_results")
def searching_finds_another_place(patch: pytest.MonkeyPatch) -> None:
    after(patch, tenancy.seam.searching.Searcher, "search", lambda text, *_a, **_k: text.replace("offset ", "offset 9"))


@fails("search_and_list_find_results")
def a_listing_leaves_one_out(patch: pytest.MonkeyPatch) -> None:
    after(patch, tenancy.seam.searching.Searcher, "listed", lambda text, *_args, **_kwargs: text.rpartition("\n")[0])


# Other people


@fails(
    "nothing_of_another_user",
    also=(
        "foreign_reference_is_not_found",
        "readable_after_reopening",
        "erased_user_is_gone",
        "usage_is_exact_and_zero_afterwards",
        "expired_session_is_gone",
        "expired_session_is_reclaimed",
    ),
)
def everybody_shares_one_room(patch: pytest.MonkeyPatch) -> None:
    original = SessionManager.session

    def shared(self: SessionManager, *, tenant: str, user: str, **rest: Any) -> Session:
        return original(self, tenant="acme", user="ann", **rest)

    patch.setattr(SessionManager, "session", shared)


@fails("nothing_of_another_user")
def a_tool_answers_with_what_another_user_asked_for(patch: pytest.MonkeyPatch) -> None:
    answers: list[str] = []

    def mixed(text: str, *_args: Any, **_kwargs: Any) -> str:
        answers.append(text)
        return answers[0] + text

    after(patch, tenancy.seam.searching.Searcher, "search", mixed)


@fails("foreign_reference_is_not_found")
def a_reference_opens_in_every_room(patch: pytest.MonkeyPatch) -> None:
    in_every_room(patch, Session, "read_page")


@fails("foreign_reference_is_not_found")
def a_whole_result_opens_in_every_room(patch: pytest.MonkeyPatch) -> None:
    in_every_room(patch, Session, "read")


@fails("foreign_reference_is_not_found")
def the_read_tool_looks_in_every_room(patch: pytest.MonkeyPatch) -> None:
    in_every_room(patch, tenancy.seam.pages.Reader, "read", room=1)


@fails("foreign_reference_is_not_found")
def the_search_tool_looks_in_every_room(patch: pytest.MonkeyPatch) -> None:
    in_every_room(patch, tenancy.seam.searching.Searcher, "search", room=1)


@fails(
    "foreign_reference_is_not_found",
    also=(
        "readable_after_reopening",
        "erased_user_is_gone",
        "usage_is_exact_and_zero_afterwards",
    ),
)
def anybody_may_delete(patch: pytest.MonkeyPatch) -> None:
    in_every_room(patch, Session, "delete")


def in_every_room(patch: pytest.MonkeyPatch, owner: Any, name: str, *, room: int = 0) -> None:
    """Have a method try the other open sessions where the one it is given has no such result."""
    rooms: list[Session] = []
    after(patch, SessionManager, "session", lambda opened, *_args, **_kwargs: rooms.append(opened) or opened)
    original = getattr(owner, name)

    def anywhere(*args: Any, **kwargs: Any) -> Any:
        for other in (args[room], *rooms):
            try:
                return original(*args[:room], other, *args[room + 1 :], **kwargs)
            except ResultNotFound as error:
                missing = error
            except TenancyError:
                continue
        raise missing

    patch.setattr(owner, name, anywhere)


# Quotas


@fails("quota_refusal_is_a_bounded_notice")
def a_charge_knows_no_limit(patch: pytest.MonkeyPatch) -> None:
    unlimited = {"limit_bytes": None, "limit_results": None, "limit_sessions": None}
    original = charges.charge_together
    patch.setattr(
        "tenancy.catalogue.results.charge_together",
        lambda t, tenant_id, *added: original(t, tenant_id, *(replace(each, **unlimited) for each in added)),
    )


@fails("quota_refusal_is_a_bounded_notice")
def a_new_session_forgets_its_limits(patch: pytest.MonkeyPatch) -> None:
    original = SessionManager.session

    def forgetful(self: SessionManager, *, limits: Limits | None = None, **rest: Any) -> Session:
        return original(self, **rest)

    patch.setattr(SessionManager, "session", forgetful)


@fails("quota_refusal_is_a_bounded_notice")
def a_notice_holds_the_whole_result(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        tenancy.seam.offload, "notice", lambda content, *_args, **_kwargs: f"[Not stored: no room.]\n{content}"
    )


@fails("quota_refusal_is_a_bounded_notice")
def a_refusal_fails_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionOffloadHook, "_not_stored", lambda _self, message, **_kwargs: message)


# At rest


@fails(
    "no_plaintext_at_rest",
    also=(
        "no_tool_names_at_rest",
        "pages_equal_the_originals",
        "search_and_list_find_results",
        "nothing_of_another_user",
        "foreign_reference_is_not_found",
        "readable_after_reopening",
        "expired_session_is_gone",
        "expired_session_is_reclaimed",
        "erased_user_is_gone",
        "usage_is_exact_and_zero_afterwards",
    ),
)
def sealing_does_not_encrypt(patch: pytest.MonkeyPatch) -> None:
    def plain(parts: Any, **_kwargs: Any) -> tuple[bytes, bytes]:
        return bytes(56), b"".join(bytes(part) for part in parts)

    patch.setattr(tenancy.sealing.envelope, "seal_message", plain)
    patch.setattr(tenancy.sealing.envelope, "seal_in_one", lambda message, **_: bytes(56) + message)


@fails("no_plaintext_at_rest")
def writes_spill_compressed_to_the_disk(patch: pytest.MonkeyPatch) -> None:
    spilling(patch, "spill.zst", lambda content: zstd.compress(content))


@fails("no_plaintext_at_rest")
def writes_spill_in_utf_16_to_the_disk(patch: pytest.MonkeyPatch) -> None:
    spilling(patch, "spill.txt", lambda content: content.decode("utf-8", "ignore").encode("utf-16-le"))


@fails("no_plaintext_at_rest")
def content_is_logged(patch: pytest.MonkeyPatch) -> None:
    after(patch, Session, "write_result", lambda ref, _self, content, **_k: log(str(content)) or ref)


@fails("no_tool_names_at_rest")
def the_tools_name_is_written_down(patch: pytest.MonkeyPatch) -> None:
    def note(reference: str, session: Session, _content: Any, *, tool: str | None = None, **_kwargs: Any) -> str:
        with folder_of(session._backend).joinpath("tools.txt").open("a") as file:
            file.write(f"{tool}\n")
        return reference

    after(patch, Session, "write_result", note)


@fails("no_tool_names_at_rest")
def a_file_is_named_after_a_reference(patch: pytest.MonkeyPatch) -> None:
    def named(reference: str, session: Session, *_args: Any, **_kwargs: Any) -> str:
        folder_of(session._backend).joinpath(reference).touch()
        return reference

    after(patch, Session, "write_result", named)


@fails("no_tool_names_at_rest")
def the_tools_name_is_logged(patch: pytest.MonkeyPatch) -> None:
    after(patch, Session, "write_result", lambda ref, *_a, tool=None, **_k: log(f"stored {tool}") or ref)


@fails("no_keys_at_rest")
def there_is_a_second_key_file(patch: pytest.MonkeyPatch) -> None:
    def copied(manager: SessionManager, path: Path, **_kwargs: Any) -> SessionManager:
        shutil.copy(path / "keys.json", path / "keys.json.bak")
        return manager

    opened_by(patch, copied)


@fails("no_keys_at_rest")
def the_key_stands_in_the_log_in_hex(patch: pytest.MonkeyPatch) -> None:
    def told(manager: SessionManager, path: Path, **_kwargs: Any) -> SessionManager:
        (key,) = keys_in((path / "keys.json").read_bytes())
        log(key.hex())
        return manager

    opened_by(patch, told)


def log(text: str) -> None:
    """Log as a careless line in the library would."""
    logging.getLogger("tenancy.session").warning("%s", text)


def folder_of(backend: Backend) -> Path:
    """The data directory of an installation."""
    path = backend.catalogue.database.sqlite_path
    assert path is not None
    return path.parent


def spilling(patch: pytest.MonkeyPatch, name: str, written: Callable[[bytes], bytes]) -> None:
    """Have each write leave its content in a file beside the catalogue."""

    def spill(reference: str, session: Session, content: str | bytes, **_kwargs: Any) -> str:
        data = content.encode() if isinstance(content, str) else content
        with folder_of(session._backend).joinpath(name).open("ab") as file:
            file.write(written(data))
        return reference

    after(patch, Session, "write_result", spill)


def opened_by(patch: pytest.MonkeyPatch, change: Callable[..., SessionManager]) -> None:
    """Change what `SessionManager.local` returns."""
    original = SessionManager.local

    def local(path: Path, **kwargs: Any) -> SessionManager:
        return change(original(path, **kwargs), path, **kwargs)

    patch.setattr(SessionManager, "local", local)


# Endings


@fails(
    "readable_after_reopening",
    also=(
        "erased_user_is_gone",
        "usage_is_exact_and_zero_afterwards",
    ),
)
def another_directory_is_opened_the_second_time(patch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    original = SessionManager.local

    def local(path: Path, **kwargs: Any) -> SessionManager:
        opened.append(path)
        return original(path if len(opened) == 1 else path.with_name("other"), **kwargs)

    patch.setattr(SessionManager, "local", local)


@fails("readable_after_reopening", also=("erased_user_is_gone",))
def closing_loses_the_files(patch: pytest.MonkeyPatch) -> None:
    def lose(_nothing: None, manager: SessionManager) -> None:
        shutil.rmtree(folder_of(manager._backend) / "results", ignore_errors=True)

    after(patch, SessionManager, "close", lose)


@fails("expired_session_is_gone", also=("expired_session_is_reclaimed",))
def time_stands_still(patch: pytest.MonkeyPatch) -> None:
    never(patch, Clock, "advance")


@fails("expired_session_is_gone", also=("expired_session_is_reclaimed",))
def a_lifetime_is_ignored(patch: pytest.MonkeyPatch) -> None:
    original = SessionManager.session

    def everlasting(self: SessionManager, *, lifetime: Any = None, **rest: Any) -> Session:
        return original(self, **rest)

    patch.setattr(SessionManager, "session", everlasting)


@fails("expired_session_is_reclaimed")
def cleanup_does_nothing(patch: pytest.MonkeyPatch) -> None:
    original = SessionManager.cleanup
    patch.setattr(
        SessionManager, "cleanup", lambda self, **_kwargs: replace(original(self, dry_run=True), dry_run=False)
    )


@fails("expired_session_is_reclaimed", also=("usage_is_exact_and_zero_afterwards",))
def cleanup_leaves_the_files(patch: pytest.MonkeyPatch) -> None:
    never(patch, Backend, "destroy_files")


@fails("expired_session_is_reclaimed")
def cleanup_miscounts(patch: pytest.MonkeyPatch) -> None:
    after(patch, SessionManager, "cleanup", lambda report, *_a, **_k: replace(report, results=report.results + 1))


@fails("erased_user_is_gone")
def erasing_only_says_so(patch: pytest.MonkeyPatch) -> None:
    original = SessionManager.erase_user
    once: list[Any] = []

    def pretended(self: SessionManager, *, tenant: str, user: str) -> Any:
        usage = self.usage(tenant=tenant, user=user)
        nothing = original(self, tenant=tenant, user="nobody")
        once.append(nothing)
        if len(once) > 1:
            return nothing
        now = self.clock.now_us()
        return replace(
            nothing,
            receipt_id="r",
            users=1,
            sessions=usage.sessions,
            results=usage.results,
            used_bytes=usage.used_bytes,
            keys_destroyed=usage.sessions,
            finished_at=now,
        )

    patch.setattr(SessionManager, "erase_user", pretended)


@fails("erased_user_is_gone")
def erasing_gives_no_receipt(patch: pytest.MonkeyPatch) -> None:
    after(patch, SessionManager, "erase_user", lambda receipt, *_a, **_k: replace(receipt, receipt_id=None))


@fails("erased_user_is_gone")
def erasing_a_user_takes_the_tenant(patch: pytest.MonkeyPatch) -> None:
    after(
        patch,
        SessionManager,
        "erase_user",
        lambda receipt, self, *, tenant, user: self.erase_tenant(tenant=tenant) and receipt,
    )


@fails("erased_user_is_gone", also=("foreign_reference_is_not_found",))
def erased_results_can_still_be_read(patch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {}
    original = Session.read

    def remembered(self: Session, reference: str) -> Any:
        try:
            return known.setdefault(reference, original(self, reference))
        except TenancyError:
            # Only what has been erased: what is expired or foreign is refused as ever.
            if (
                self.scope.user != "ann"
                or self.scope.session != "chat"
                or self.scope.tenant != "acme"
                or reference not in known
            ):
                raise
            return known[reference]

    patch.setattr(Session, "read", remembered)


@fails("usage_is_exact_and_zero_afterwards")
def nothing_is_refunded(patch: pytest.MonkeyPatch) -> None:
    never(patch, counters, "refund")
    patch.setattr("tenancy.catalogue.results.refund", lambda *_args, **_kwargs: None)


@fails("usage_is_exact_and_zero_afterwards", also=("quota_refusal_is_a_bounded_notice",))
def a_byte_too_much_is_charged(patch: pytest.MonkeyPatch) -> None:
    after(patch, Session, "usage", lambda usage, *_args: replace(usage, used_bytes=usage.used_bytes + 1))


@fails("usage_is_exact_and_zero_afterwards")
def deleting_leaves_the_files(patch: pytest.MonkeyPatch) -> None:
    never(patch, SessionManager, "delete_session")


@fails("usage_is_exact_and_zero_afterwards")
def catalogue_and_store_disagree(patch: pytest.MonkeyPatch) -> None:
    finding = Finding(kind="wrong_usage", count=1, repaired=False)
    after(patch, Verifier, "run", lambda report, *_a, **_k: replace(report, findings=(finding,)))

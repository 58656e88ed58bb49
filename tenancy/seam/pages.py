"""`read_result`: one page of a stored result."""

import base64
import mimetypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from haystack.dataclasses import FileContent, ImageContent, TextContent
from haystack.token_counters import TokenCounter

from tenancy.errors import ResultNotFound
from tenancy.reading import page_of
from tenancy.seam.answers import as_number, as_reference, longest_fitting, one_line
from tenancy.seam.notices import printable
from tenancy.seam.paths import MAX_JSON_CHARS, NoPart, part_of

if TYPE_CHECKING:
    from tenancy.reading import Page, Result
    from tenancy.session import Session

#: English takes about 4.4 characters for a token, code 3, so this is enough to fill a page.
_CHARS_PER_TOKEN: Final = 5
#: What generators accept as images.
_IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
#: What they accept as files.
_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_FILE_TYPES: Final = (
    "application/pdf",
    f"{_OFFICE}wordprocessingml.document",
    f"{_OFFICE}presentationml.presentation",
    f"{_OFFICE}spreadsheetml.sheet",
)
_BY_SUFFIX: Final = {
    **dict(zip(("png", "jpg", "gif", "webp"), _IMAGE_TYPES, strict=True)),
    "jpeg": "image/jpeg",
    **dict(zip(("pdf", "docx", "pptx", "xlsx"), _FILE_TYPES, strict=True)),
    "json": "application/json",
}
#: Larger ones are described: a request to a model has to hold them.
_MAX_PART_BYTES: Final = 20 * 2**20

Answer = str | list[TextContent | ImageContent | FileContent]


@dataclass(frozen=True, slots=True)
class Reader:
    """
    Reads pages for a model.

    :param counter: Counts a page.
    :param page_tokens: The most tokens an answer takes.
    :param images: Whether an image comes as `ImageContent`; a description otherwise.
    :param files: Whether a PDF or an office document comes as `FileContent`.
    """

    counter: TokenCounter
    page_tokens: int
    images: bool
    files: bool

    def read(self, session: "Session", *, reference: object, where: "Where", name: str) -> Answer:
        """
        Return a page, or a sentence that says why there is none.

        :param session: The session of the run.
        :param reference: What the model gave.
        :param where: What it gave of the place.
        :param name: The registered name of the tool, for the hint.
        :raises TenancyError: Whatever the session raises.
        """
        wanted = as_reference(reference)
        if wanted is None:
            raise ResultNotFound
        place = where.understood()
        if isinstance(place, str):
            return place
        max_chars, lines = self.page_tokens * _CHARS_PER_TOKEN, place.get("max_lines")
        if where.path not in (None, ""):
            try:
                page = page_of(part_of(_json_text(session, wanted), where.path), max_chars=max_chars, **place)
            except NoPart as why:
                return self._fitted(str(why), lambda text: text)
            # The path itself would take many tokens, and quotes in it the model's time.
            instead = " and no line" if "line" in place else ""
            return self._page(page, what="part", again=f"the same with {{}}{instead}".format, lines=lines)
        try:
            page = session.read_page(wanted, max_chars=max_chars, **place)
        except ValueError:
            return self._described(session.result(wanted), session.read(wanted))
        return self._page(page, what="result", again=lambda rest: f"{name}(reference='{wanted}', {rest})", lines=lines)

    def _page(self, page: "Page", *, what: str, again: Callable[[str], str], lines: int | None) -> str:
        if page.total_chars == 0:
            return f"[The {what} is empty.]"
        if not page.text:
            return f"[Past the end: the {what} has {page.total_chars} characters and lines 1-{page.total_lines}.]"

        def header(text: str) -> str:
            return _header(page, len(text), what=what, again=again, lines=lines) + text

        return self._fitted(page.text, header)

    def _fitted(self, text: str, compose: Callable[[str], str]) -> str:
        def shown(length: int) -> str:
            return compose(printable(text[:length]))

        length = longest_fitting(shown, length=len(text), budget=self.page_tokens, counter=self.counter)
        return shown(_at_a_line_end(text, length))

    def _described(self, result: "Result", content: str | bytes) -> Answer:
        media_type = _media_type(result)
        about = f"[{one_line(media_type, limit=80) or 'binary data'}, {len(content)} bytes]"
        if isinstance(content, bytes) and 0 < len(content) <= _MAX_PART_BYTES:
            payload = base64.b64encode(content).decode()
            if self.images and media_type in _IMAGE_TYPES:
                image = ImageContent(base64_image=payload, mime_type=media_type, validation=False)
                return [TextContent(text=about), image]
            if self.files and media_type in _FILE_TYPES:
                file = FileContent(
                    base64_data=payload, mime_type=media_type, filename=result.reference, validation=False
                )
                return [TextContent(text=about), file]
        if media_type == "application/json":
            return f"{about}\nIt can be read with a path; @ is all of it."
        return f"{about}\nIt cannot be read as text."


@dataclass(frozen=True, slots=True)
class Where:
    """What a model said of the place to read: any of it may be missing, or nonsense."""

    offset: object = None
    line: object = None
    lines: object = None
    path: object = None

    def understood(self) -> dict[str, int] | str:
        """Return the arguments for `Session.read_page`, or a sentence that says what is wrong."""
        given = {"offset": self.offset, "line": self.line, "max_lines": self.lines}
        # Some models send every parameter there is, and nothing for those that they do not mean.
        found = {name: as_number(value) for name, value in given.items() if value not in (None, "")}
        place = {name: number for name, number in found.items() if number is not None}
        if "offset" in found and "offset" not in place:
            return "offset must be a whole number of characters; a negative one counts from the end."
        if place.get("line") == 0 and place.get("offset"):
            del found["line"], place["line"]
        if place.get("max_lines") == 0:
            del found["max_lines"], place["max_lines"]
        if "line" in found and place.get("line", 0) == 0:
            return "line must be a whole number from 1 on; a negative one counts from the end."
        if "max_lines" in found and place.get("max_lines", 0) < 1:
            return "lines must be a whole number, 1 or more."
        if "line" in place and place.pop("offset", 0) != 0:
            return "Give either an offset or a line to start at, not both."
        return place


def _at_a_line_end(text: str, length: int) -> int:
    if length == len(text):
        return length
    line_end = text.rfind("\n", length * 3 // 4, length)
    return line_end + 1 if line_end >= 0 else length


def _media_type(result: "Result") -> str:
    """Return what kind of file a result is, as the tool said, or else by the suffix; `""` if neither tells."""
    said = (result.media_type or "").partition(";")[0].strip().lower()
    said = {"image/jpg": "image/jpeg"}.get(said, said)
    suffix = result.reference.rpartition(".")[2] if "." in result.reference else ""
    if said in ("", "application/octet-stream"):
        # Python's own table differs from machine to machine.
        return _BY_SUFFIX.get(suffix) or mimetypes.guess_type(f"result.{suffix}")[0] or said
    return said


def _json_text(session: "Session", reference: str) -> str:
    """Return a whole text in which to look for a part, or the text of a file."""
    try:
        page = session.read_page(reference, max_chars=MAX_JSON_CHARS)
    except ValueError:
        content = session.read(reference)
        text = content.decode("utf-8-sig", "replace") if isinstance(content, bytes) else content
        is_whole = len(text) <= MAX_JSON_CHARS
    else:
        text, is_whole = page.text, page.next_offset is None
    if not is_whole:
        raise NoPart(f"A path reaches into results of at most {MAX_JSON_CHARS} characters. Search this one instead.")
    return text


def _header(page: "Page", length: int, *, what: str, again: Callable[[str], str], lines: int | None) -> str:
    end, shown = page.offset + length, page.text.count("\n", 0, length)
    last = page.line + shown - (page.text[length - 1] == "\n")
    lines_shown = f"line {page.line}" if last == page.line else f"lines {page.line}-{last}"
    of = "" if what == "result" else f"{what}: "
    where = f"[{of}characters {page.offset}-{end} of {page.total_chars}, {lines_shown} of {page.total_lines}"
    if end >= page.total_chars:
        return f"{where}, the end]\n"
    left = "" if lines is None or shown >= lines else f", lines={lines - shown}"
    return f"{where}; next: {again(f'offset={end}{left}')}]\n"

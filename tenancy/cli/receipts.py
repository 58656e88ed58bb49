"""What a deletion would remove, and what it removed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenancy.cli.output import Output, Table, moment, note, size

if TYPE_CHECKING:
    from tenancy import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a deletion would remove if it ran now. `level` is `"session"`, `"user"` or `"tenant"`."""

    level: str
    sessions: int
    results: int
    used_bytes: int

    def spoken(self) -> str:
        """Say it in a question."""
        return f"{self.sessions} sessions, {self.results} results, {size(self.used_bytes)}"


def show_forecast(output: Output, forecast: Forecast) -> None:
    """Print what a dry run found."""
    document = {
        "dry_run": True,
        "level": forecast.level,
        "sessions": forecast.sessions,
        "results": forecast.results,
        "used_bytes": forecast.used_bytes,
    }
    note("Dry run: nothing was changed.")
    output.show(
        document,
        Table.of_fields(
            {
                "would remove": f"one {forecast.level}",
                "sessions": str(forecast.sessions),
                "results": str(forecast.results),
                "used bytes": size(forecast.used_bytes),
            }
        ),
    )


def show_receipt(output: Output, receipt: "Receipt") -> None:
    """Print the receipt of a deletion. Key ids are in it: of a key service, they name its account."""
    document = {
        "dry_run": False,
        "receipt_id": receipt.receipt_id,
        "level": receipt.level,
        "users": receipt.users,
        "sessions": receipt.sessions,
        "results": receipt.results,
        "used_bytes": receipt.used_bytes,
        "keys_destroyed": receipt.keys_destroyed,
        "key_ids": list(receipt.key_ids),
        "started_at": receipt.started_at,
        "finished_at": receipt.finished_at,
        "reached": receipt.reached,
        "statement": receipt.statement,
    }
    output.show(
        document,
        Table.of_fields(
            {
                "receipt": receipt.receipt_id or "",
                "removed": f"one {receipt.level}",
                "users": str(receipt.users),
                "sessions": str(receipt.sessions),
                "results": str(receipt.results),
                "used bytes": size(receipt.used_bytes),
                "keys destroyed": str(receipt.keys_destroyed),
                "which hung on": ", ".join(receipt.key_ids),
                "started": moment(receipt.started_at),
                "finished": moment(receipt.finished_at),
                "reached": receipt.reached or "",
                "statement": receipt.statement,
            }
        ),
    )

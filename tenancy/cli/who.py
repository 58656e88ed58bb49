"""The options that say whose."""

from typing import Annotated

import typer

TenantOption = Annotated[str, typer.Option("--tenant", metavar="NAME", help="The tenant.", show_default=False)]
UserOption = Annotated[str, typer.Option("--user", metavar="NAME", help="The user of that tenant.", show_default=False)]
SomeTenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant.", show_default=False)
]
SomeUserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="This user of the tenant.", show_default=False)
]
SomeSessionOption = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="This session of the user.", show_default=False)
]
OwnRoomOption = Annotated[
    bool, typer.Option("--own-room", help="The user's own room, which is the session without a name.")
]
ProviderOption = Annotated[
    str | None,
    typer.Option("--provider", metavar="NAME", help="That of this name in other_keys.", show_default=False),
]


def require_wider(*, user: str | None, session: str | None = None, tenant: str | None = "") -> None:
    """
    Refuse a narrower name without the wider one it belongs to.

    :raises typer.BadParameter: For instance `--session` without `--user`.
    """
    if session is not None and user is None:
        raise typer.BadParameter("--session needs --user.")
    if user is not None and tenant is None:
        raise typer.BadParameter("--user needs --tenant.")


def which_session(session: str | None, *, own_room: bool) -> str | None:
    """
    Return the session's name, `None` for the user's own room.

    A forgotten `--session` must not mean the own room: that would delete another session than the one in mind.

    :raises typer.BadParameter: If neither or both are given.
    """
    if (session is not None) == own_room:
        raise typer.BadParameter("Pass either --session NAME or --own-room.")
    return session


def spoken(*, tenant: str, user: str | None = None, session: str | None = None) -> str:
    """Say whose in a question or a note; `session=""` is the user's own room."""
    room = "the own room of" if session == "" else f"session {session!r} of" if session is not None else ""
    parts = [room, f"user {user!r} of" if user is not None else ""]
    return " ".join([*(part for part in parts if part), f"tenant {tenant!r}"])

"""Sealing: how one result becomes bytes that only its own session can open. `envelope` is the door to this room."""

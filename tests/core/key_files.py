"""A key file as an operator changes it, and the life of a key-encryption key."""

import base64
import json
import os
from pathlib import Path
from typing import Any

from tests.conftest import ManagerFactory


def add_primary(path: Path, key_id: str) -> str:
    """Add a key that is primary from now on; the one that was stays enabled. Returns that one's id."""
    keys = json.loads(path.read_text())["keys"]
    (old,) = (key for key in keys if key["state"] == "primary")
    new = {**old, "id": key_id, "key": base64.urlsafe_b64encode(os.urandom(32)).decode()}
    old["state"] = "enabled"
    write(path, [*keys, new])
    return str(old["id"])


def change(path: Path, key_id: str, **values: Any) -> None:
    """Change one key."""
    keys = json.loads(path.read_text())["keys"]
    write(path, [{**key, **values} if key["id"] == key_id else key for key in keys])


def destroy(path: Path, key_id: str) -> None:
    """Destroy one key for good."""
    change(path, key_id, state="destroyed", key=None)


def write(path: Path, keys: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"version": 1, "keys": keys}))


def rotate_root(make_manager: ManagerFactory) -> str:
    """Put every tenant's key under a new key-encryption key. Returns the id of the old one."""
    old = add_primary(make_manager.key_file, "second")
    assert make_manager(durability="process").rotate_keys("root").complete
    return old

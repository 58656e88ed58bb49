"""A key file as an operator changes it, and the life of a key-encryption key."""

import base64
import json
import os
from pathlib import Path
from typing import Any

from tenancy.keys.keyring import Keyring, _tenant_context
from tenancy.keys.providers import WrappedKey, open_key_provider, rewrap_key
from tests.conftest import ManagerFactory
from tests.core.ledger import Ledger


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


def rotate_root(make_manager: ManagerFactory, ledger: Ledger) -> str:
    """Put every tenant's key under a new key-encryption key. Returns the id of the old one."""
    old = add_primary(make_manager.key_file, "second")
    provider = open_key_provider(f"file:{make_manager.key_file}")
    rows = ledger.all("SELECT tenant_id, version, key_id, wrapped FROM tenancy_tenant_keys")
    for tenant_id, version, key_id, wrapped in rows:
        context = _tenant_context(tenant_id, version)
        new = rewrap_key(provider, WrappedKey(key_id, wrapped), context=context, new_context=context)
        ledger.run(
            "UPDATE tenancy_tenant_keys SET key_id = :key_id, wrapped = :wrapped WHERE tenant_id = :tenant_id",
            key_id=new.key_id,
            wrapped=new.data,
            tenant_id=tenant_id,
        )
    check = Keyring(provider).check_value(catalogue_id=ledger.one("SELECT catalogue_id FROM tenancy_catalogue"))
    ledger.run(
        "INSERT INTO tenancy_root_keys (provider, key_id, check_value, created_at_us)"
        " VALUES ('file', :key_id, :check_value, 0)",
        key_id=check.key_id,
        check_value=check.data,
    )
    return old

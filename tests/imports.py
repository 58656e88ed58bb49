"""The walls of the house: who may import whom, and which third-party package lives in which room."""

import ast
import fnmatch
import sys
from collections.abc import Iterator
from typing import Final

#: Packages of this repository that each of them may import, itself aside. Never the other way round.
_BELOW: Final = {"migrations": {"tenancy", "stores"}, "tenancy": {"stores"}, "stores": set()}

_TEST_SUITES: Final = (
    "stores/testing.py",
    "stores/testing_quarantine.py",
    "stores/testing_ranges.py",
    "tenancy/testing.py",
)
#: `tenancy doctor` reports on what is installed and switched on.
_DOCTOR: Final = "tenancy/cli/checks.py"
#: Where a third-party package, or a driver of the standard library, may be imported. What is not listed may be
#: imported nowhere outside the tests.
_ROOMS: Final = {
    "sqlalchemy": (
        "stores/connections.py",
        "stores/pools.py",
        "stores/lending.py",
        "stores/sql.py",
        "stores/transactions.py",
        "stores/database.py",
        "tenancy/isolation.py",
        "tenancy/schema.py",
        "tenancy/catalogue/*",
        "tenancy/upgrade.py",
        "tenancy/roles.py",
        "migrations/*",
    ),
    "alembic": ("tenancy/upgrade.py", "migrations/*"),
    "psycopg": ("stores/driver_errors.py", "stores/round_trips.py"),
    "sqlite3": ("stores/connections.py", "stores/pools.py", "stores/driver_errors.py", _DOCTOR),
    "cryptography": ("tenancy/sealing/cipher.py", "tenancy/sealing/ranges.py"),
    # Inside functions only: whoever has no key there loads none of it.
    "boto3": ("tenancy/keys/aws_kms.py",),
    "botocore": ("tenancy/keys/aws_kms.py", "tenancy/keys/aws_calls.py"),
    # The demo looks for plaintext also in what was only compressed.
    "compression": ("tenancy/sealing/segments.py", "tenancy/demo/at_rest.py"),
    "backports": ("tenancy/sealing/segments.py", "tenancy/demo/at_rest.py"),
    "haystack": ("tenancy/seam/*", "tenancy/session.py", "tenancy/events.py", "tenancy/demo/*", _DOCTOR),
    "jmespath": ("tenancy/seam/paths.py", "tenancy/seam/path_expressions.py"),
    "regex": ("tenancy/seam/graphemes.py", "tenancy/seam/patterns.py"),
    "tiktoken": ("tenancy/seam/tokens.py",),
    "typer": ("tenancy/cli/*", "tenancy/demo/*"),
    "rich": ("tenancy/cli/*", "tenancy/demo/*"),
    "pydantic": ("tenancy/settings/*",),
    "pydantic_settings": ("tenancy/settings/*",),
    "pytest": _TEST_SUITES,
    # A module that is computed. The public face looks its parts up in a table of its own.
    "?": ("tenancy/__init__.py",),
}


def breaches(path: str, source: str) -> list[str]:
    """
    Return what a file imports and should not, as `module` or `module (a relative import)`.

    :param path: The file inside the checkout, with forward slashes.
    """
    own = path.split("/", 1)[0]
    return [module for module, level in _imported(source) if level or not _may_import(path, own, module)]


def _may_import(path: str, own: str, module: str) -> bool:
    package = module.split(".", 1)[0]
    if package in _BELOW or package == "tests":
        return package == own or package in _BELOW[own]
    if package in _ROOMS:
        return any(fnmatch.fnmatchcase(path, room) for room in _ROOMS[package])
    return package in sys.stdlib_module_names


def _imported(source: str) -> Iterator[tuple[str, int]]:
    """Every import anywhere in a file: at the top, inside functions, for type checkers only, and by name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "", node.level)
        elif isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__", "find_spec"):
            # What is computed cannot be judged here, and so it is not allowed at all.
            first = node.args[0] if node.args else None
            yield (first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else "?", 0)


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""

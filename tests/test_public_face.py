"""What `import tenancy` offers is there to be found, and is loaded only when it is asked for."""

import pydoc
import subprocess
import sys

import tenancy


def test_every_public_name_is_there_and_can_be_found() -> None:
    assert [name for name in tenancy.__all__ if not hasattr(tenancy, name)] == []
    assert set(tenancy.__all__) <= set(dir(tenancy))
    assert {"SessionManager", "Session", "Settings", "SessionToolset", "session_hooks", "RoutedStore"} <= set(
        tenancy.__all__
    )


def test_an_unknown_name_is_an_attribute_error_as_of_any_module() -> None:
    assert not hasattr(tenancy, "Sessionmanager")


def test_help_names_where_to_begin() -> None:
    shown = pydoc.plain(pydoc.render_doc(tenancy))
    for name in ("SessionManager", "session_hooks", "SessionToolset", "RoutedStore", "hook_context"):
        assert name in shown


def test_importing_the_package_loads_neither_haystack_nor_a_database() -> None:
    heavy = {"haystack", "sqlalchemy", "alembic", "cryptography", "boto3", "botocore"}
    script = f"import sys, tenancy; print(sorted({heavy} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"

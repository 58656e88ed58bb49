"""`tenancy db`: the schema."""

from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table, note


def upgrade(invocation: Invocation) -> None:
    """Bring the database's schema to this version. Waits up to 60 s for another upgrade, then exits 5."""
    from tenancy.schema import HEAD_REVISION
    from tenancy.upgrade import upgrade as upgrade_schema

    place = invocation.place()
    place.require_made()
    place.require_roles()
    upgrade_schema(place.owner_url(), setting=place.owner_setting())
    # A new table is of no use to anybody before the roles may use it.
    place.prepare_roles()
    note("The schema is current.")
    _show(invocation, HEAD_REVISION)


def check(invocation: Invocation) -> None:
    """Exit 0 if the database has exactly this version's schema, 6 if not. Changes nothing."""
    from tenancy.schema import HEAD_REVISION
    from tenancy.upgrade import check as check_schema

    place = invocation.place()
    place.require_made()
    check_schema(place.database_url())
    _show(invocation, HEAD_REVISION)


def _show(invocation: Invocation, revision: str) -> None:
    invocation.output.show(
        {"revision": revision, "current": True}, Table.of_fields({"revision": revision, "current": "yes"})
    )

"""`tenancy doctor`: what is wrong here, and what to do about it."""

from typing import Final

from tenancy.cli.check import Check, Status
from tenancy.cli.checks import run_checks
from tenancy.cli.exits import ExitCode, Refusal
from tenancy.cli.invocation import Invocation
from tenancy.cli.output import Table
from tenancy.errors import ConfigurationError

_WHERE: Final = "Correct it in the --config file, the environment or the secret files."


def doctor(invocation: Invocation) -> None:
    """Look at settings, key, database, store and machine. Exits 1 if something fails; changes nothing."""
    try:
        place = invocation.place()
    except ConfigurationError as error:
        checks = [Check("settings", Status.FAIL, str(error), _WHERE)]
    else:
        checks = [Check("settings", Status.OK, "They can be read."), *run_checks(place)]
    failed = any(check.status is Status.FAIL for check in checks)
    invocation.output.show(
        {
            "ok": not failed,
            "checks": [
                {"name": check.name, "status": check.status, "detail": check.detail, "advice": check.advice}
                for check in checks
            ],
        },
        Table(
            columns=("check", "status", "detail", "what to do"),
            rows=[(check.name, check.status, check.detail, check.advice) for check in checks],
        ),
    )
    if failed:
        raise Refusal("Something is wrong; see above.", code=ExitCode.FAILED)

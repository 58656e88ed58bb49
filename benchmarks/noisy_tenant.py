"""
One tenant writes as fast as it can on PostgreSQL. What do the others feel?

Another tenant writes and reads all the while, in a process of its own; the noise is switched on and off in turns, so
that both halves of the table come from one run on one database. The noisy writers share the machine's processors with
everybody else, but no interpreter lock with the one that is measured.

Ends with 1 if anything failed, or if anybody waited for longer than a second.
"""

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

from benchmarks.place import Place, started_place
from benchmarks.processes import PROCESSES, hear_from, start_process
from tenancy import SessionManager

#: After the noise is switched, until a turn counts: whatever was under way has come to its end.
_SETTLING_SECONDS = 0.3
_KEPT_REFERENCES = 1000


@dataclass(frozen=True, slots=True)
class Times:
    """When calls began, by a clock that all processes share, and how long each took."""

    started: "array[float]" = field(default_factory=lambda: array("d"))
    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def time(self, call: Callable[[], Any]) -> Any:
        """Make a call, and take its time down."""
        started = time.monotonic()
        answer = call()
        self.seconds.append(time.monotonic() - started)
        self.started.append(started)
        return answer

    def within(self, turns: Sequence[tuple[float, float]]) -> list[float]:
        """Return how long those took that began in one of these turns."""
        pairs = zip(self.started, self.seconds, strict=True)
        return [seconds for started, seconds in pairs if any(begin <= started < end for begin, end in turns)]


@dataclass(frozen=True, slots=True)
class Heard:
    """What one process of the benchmark has to tell."""

    writes: Times
    reads: Times
    errors: list[str]


def write_noise(
    place: Place, number: int, threads: int, size: int, noise: Event, stop: Event, tell: Connection
) -> None:
    """Write as one of the noisy tenant's processes does, each thread in a session of its own."""
    heard = Heard(Times(), Times(), [])
    with SessionManager.from_settings(place.settings()) as manager:
        sessions = [manager.session(tenant="noisy", user=f"user {number} {each}") for each in range(threads)]

        def write(index: int) -> Times:
            times, content = Times(), os.urandom(size)
            while not stop.is_set():
                if noise.wait(0.05):
                    times.time(lambda: sessions[index].write(content))
            return times

        results: list[Times] = []

        def work(index: int) -> None:
            try:
                results.append(write(index))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a result
                heard.errors.append(f"noisy tenant: {error!r}")

        workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
        tell.send("ready")
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for times in results:
        heard.writes.started.extend(times.started)
        heard.writes.seconds.extend(times.seconds)
    tell.send(heard)


def live_beside(place: Place, number: int, size: int, pause: float, stop: Event, tell: Connection) -> None:
    """Write and read in turns, as a user of another tenant does, with a pause between any two calls."""
    heard, chance = Heard(Times(), Times(), []), random.Random(number)  # noqa: S311 - no secret
    with SessionManager.from_settings(place.settings()) as manager:
        session = manager.session(tenant="quiet", user=f"user {number}")
        content = os.urandom(size)
        references = [session.write(content) for _ in range(10)]
        tell.send("ready")
        while not stop.is_set():
            try:
                references.append(heard.writes.time(lambda: session.write(content)))
                time.sleep(pause)
                wanted = chance.choice(references)
                read = heard.reads.time(lambda: session.read(wanted))  # noqa: B023 - called at once
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a result
                heard.errors.append(f"other tenant: {error!r}")
                break
            if read != content:
                heard.errors.append("other tenant: a read gave something else than was written")
            time.sleep(pause)
            del references[:-_KEPT_REFERENCES]
    tell.send(heard)


def measure(place: Place, wanted: argparse.Namespace) -> dict[str, Any]:
    """Run everybody and return the figures."""
    noise, stop = PROCESSES.Event(), PROCESSES.Event()
    shares = [
        wanted.connections // wanted.processes + (number < wanted.connections % wanted.processes)
        for number in range(wanted.processes)
    ]
    noisy = [
        start_process(write_noise, place, number, share, wanted.bytes, noise, stop)
        for number, share in enumerate(shares)
    ]
    quiet = [
        start_process(live_beside, place, number, wanted.bytes, wanted.pause, stop) for number in range(wanted.users)
    ]
    for process, hear in (*noisy, *quiet):
        hear_from(process, hear)
    alone: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []
    until = time.monotonic() + wanted.seconds
    while time.monotonic() < until:
        alone.append(_turn(wanted.turn))
        noise.set()
        beside.append(_turn(wanted.turn))
        noise.clear()
    stop.set()
    noisy_heard = [hear_from(process, hear) for process, hear in noisy]
    quiet_heard = [hear_from(process, hear) for process, hear in quiet]
    for process, _ in (*noisy, *quiet):
        process.join()
    noisy_times = _merged(heard.writes for heard in noisy_heard)
    writes = _merged(heard.writes for heard in quiet_heard)
    reads = _merged(heard.reads for heard in quiet_heard)
    errors = [error for heard in (*noisy_heard, *quiet_heard) for error in heard.errors]
    longest = max([*noisy_times.seconds, *writes.seconds, *reads.seconds], default=0.0)
    in_noise = noisy_times.within(beside)
    if not (in_noise and writes.within(alone) and reads.within(beside)):
        errors.append("too short to measure anything")
    return {
        "server": place.server_version,
        "sync_ms": place.sync_ms,
        "processors": os.cpu_count(),
        "connections": wanted.connections,
        "content_bytes": wanted.bytes,
        "turns": len(alone),
        "noisy": {
            "writes_per_second": len(in_noise) / sum(end - begin for begin, end in beside),
            **asdict(Figures.of(in_noise)),
        },
        "other": {
            name: {"writes": asdict(Figures.of(writes.within(turns))), "reads": asdict(Figures.of(reads.within(turns)))}
            for name, turns in (("alone", alone), ("beside", beside))
        },
        "longest_ms": longest * 1000,
        "errors": errors,
        "ok": not errors and longest <= wanted.longest,
    }


@dataclass(frozen=True, slots=True)
class Figures:
    """How many calls there were, and how long they took, in milliseconds."""

    count: int
    median_ms: float
    p99_ms: float
    longest_ms: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Figures":
        """Sum up a list of times; all zero if it is empty."""
        if not seconds:
            return cls(0, 0.0, 0.0, 0.0)
        ordered = sorted(seconds)
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return cls(len(ordered), statistics.median(ordered) * 1000, p99 * 1000, ordered[-1] * 1000)


def table(figures: dict[str, Any]) -> str:
    """Set the figures out for a terminal."""
    noisy, other = figures["noisy"], figures["other"]
    lines = [
        f"PostgreSQL {figures['server']}, {figures['processors']} processors, fsync {figures['sync_ms']:.2f} ms,"
        f" results of {figures['content_bytes']} bytes, {figures['turns']} turns with and without noise",
        f"noisy tenant: {figures['connections']} connections, {noisy['writes_per_second']:,.0f} writes/s",
        "",
        f"{'':<38}{'calls':>8}{'median':>11}{'p99':>11}{'longest':>11}",
        _line("noisy tenant writes", noisy),
    ]
    for kind in ("writes", "reads"):
        lines += [
            _line(f"other tenant {kind}, without noise", other["alone"][kind]),
            _line(f"other tenant {kind}, beside it", other["beside"][kind]),
        ]
    return "\n".join(lines)


def _line(name: str, of: dict[str, Any]) -> str:
    times = "".join(f"{of[field]:>8.2f} ms" for field in ("median_ms", "p99_ms", "longest_ms"))
    return f"{name:<38}{of['count']:>8}{times}"


def _turn(seconds: float) -> tuple[float, float]:
    time.sleep(_SETTLING_SECONDS)
    begin = time.monotonic()
    time.sleep(seconds)
    return begin, time.monotonic()


def _merged(all_times: Iterable[Times]) -> Times:
    merged = Times()
    for times in all_times:
        merged.started.extend(times.started)
        merged.seconds.extend(times.seconds)
    return merged


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noisy_tenant", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long all turns take together")
    parser.add_argument("--turn", type=float, default=5.0, help="seconds of one turn, with noise or without")
    parser.add_argument("--connections", type=int, default=32, help="of the noisy tenant")
    parser.add_argument("--processes", type=int, default=4, help="the noisy tenant's connections are shared out among")
    parser.add_argument("--users", type=int, default=2, help="of the other tenant, each a process")
    parser.add_argument("--pause", type=float, default=0.005, help="seconds between two calls of such a user")
    parser.add_argument("--bytes", type=int, default=4096, help="of one result")
    parser.add_argument("--longest", type=float, default=1.0, help="seconds that anybody may wait")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    wanted = parser.parse_args(arguments)
    with started_place() as place:
        figures = measure(place, wanted)
    print(json.dumps(figures, indent=1) if wanted.json else table(figures))
    for error in figures["errors"][:20]:
        print(f"error: {error}", file=sys.stderr)
    if figures["longest_ms"] > wanted.longest * 1000:
        print(f"error: somebody waited for {figures['longest_ms']:.0f} ms", file=sys.stderr)
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

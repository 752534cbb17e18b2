"""Which measurement when; what one arm's failure, a time limit or an interrupt leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from typing import Any

from sglang_specv2.benchmark import client, recovery, timeline
from sglang_specv2.benchmark.display import Display
from sglang_specv2.benchmark.errors import ArmError
from sglang_specv2.benchmark.load import TIMELINES, Load
from sglang_specv2.benchmark.measure import Instruments, measure_round, warm_up
from sglang_specv2.benchmark.provenance import shown
from sglang_specv2.benchmark.results import RECOVERY, ROUNDS, STARTS, TIMELINE, Results
from sglang_specv2.benchmark.server import ArmServer
from sglang_specv2.benchmark.settings import Settings
from sglang_specv2.benchmark.stations import Station
from sglang_specv2.benchmark.workloads import Prompts

MOST_BINS, LEAST_BIN_S = 160, 0.25
"""Of a time line: as many as a picture can show, and no shorter than looking takes."""

_END_S = 15.0
"""Kept of the time limit for stopping servers and writing the report."""
_START_GUESS_S = 30.0


class Runner:
    """Measures everything that a result folder lacks.

    Args:
        stations: the servers, see :mod:`sglang_specv2.benchmark.stations`.
        prompts, recovery_prompts: for the two measures.
        begun_s: on the monotonic clock; the time limit counts from there.
    """

    def __init__(
        self,
        settings: Settings,
        stations: Sequence[Station],
        prompts: Prompts,
        recovery_prompts: Prompts | None,
        results: Results,
        instruments: Instruments,
        display: Display,
        begun_s: float,
    ) -> None:
        self._settings, self._stations = settings, stations
        self._prompts, self._recovery_prompts = prompts, recovery_prompts
        self._results, self._instruments, self._display = results, instruments, display
        self._deadline_s = (
            None if settings.time_limit_s is None else begun_s + settings.time_limit_s - _END_S
        )
        self._durations_s: dict[object, float] = {}
        self._rounds = {
            (line["arm"], line["load"], line["level"], line["round"])
            for line in results.lines(ROUNDS)
        }
        self._timelines = {
            (line["arm"], line["timeline"], line["round"]) for line in results.lines(TIMELINE)
        }
        self._recovered = [
            (line["arm"], line["asked_plain_tokens"]) for line in results.lines(RECOVERY)
        ]

    def run(self) -> None:
        """Returns when everything is measured, has failed, or does not fit the time limit."""
        for group in self._groups():
            group = [station for station in group if self._lacks_something(station)]
            if not group:
                continue
            if not self._fits("start", _START_GUESS_S):
                self._display.say(f"left out, no time for: {', '.join(s.name for s in group)}")
                continue
            with self._servers(group) as servers:
                self._measure(servers)

    def count(self) -> int:
        """Measurements that are asked for and not there yet."""
        return sum(self._count(station) for station in self._stations)

    def _count(self, station: Station) -> int:
        return (
            sum(self._lacks_round(station, *cell) for cell in self._cells())
            + sum(self._lacks_timeline(station, *each) for each in self._timeline_rounds())
            + sum(self._lacks_recovery(station, *batch) for batch in self._batches())
        )

    def _groups(self) -> list[list[Station]]:
        """Servers that are up at the same time."""
        if not self._settings.side_by_side:
            return [[station] for station in self._stations]
        speed = [station for station in self._stations if station.speed]
        return [speed, [station for station in self._stations if not station.speed]]

    def _lacks_something(self, station: Station) -> bool:
        return self._count(station) > 0

    def _cells(self) -> list[tuple[Load, int]]:
        """Rounds outermost: a time limit then costs rounds, not levels."""
        loads = self._settings.loads
        return [(load, number) for number in range(self._settings.rounds) for load in loads]

    def _timeline_rounds(self) -> list[tuple[str, int]]:
        names, rounds = self._settings.timelines, self._settings.timeline_rounds
        return [(name, number) for number in range(rounds) for name in names]

    def _batches(self) -> list[tuple[int, int]]:
        lengths = self._settings.recovery_plain_tokens
        return [(n, length) for n in range(self._settings.recovery_batches) for length in lengths]

    def _lacks_round(self, station: Station, load: Load, number: int) -> bool:
        return station.speed and ((station.name, load.kind, load.level, number) not in self._rounds)

    def _lacks_timeline(self, station: Station, name: str, number: int) -> bool:
        return station.speed and (station.name, name, number) not in self._timelines

    def _lacks_recovery(self, station: Station, number: int, length: int) -> bool:
        return station.recovery and (self._recovered.count((station.arm.name, length)) <= number)

    @contextmanager
    def _servers(self, group: Sequence[Station]) -> Iterator[dict[str, tuple[Station, ArmServer]]]:
        """Starts a group; yields those that came up, in order and by name, and stops them all.

        They start at once, but for those that time their own steps: they come when the others are
        idle, one after the other, since what they measure decides what they do.
        """
        servers: dict[str, tuple[Station, ArmServer]] = {}
        waiting = ThreadPoolExecutor(len(group))
        began = time.monotonic()
        try:
            together = [station for station in group if not station.arm.times_its_steps]
            self._start(together, servers, waiting)
            for station in group:
                if station.arm.times_its_steps:
                    self._start([station], servers, waiting)
            self._durations_s["start"] = time.monotonic() - began
            in_order = {s.name: servers[s.name] for s in group if s.name in servers}
            servers.clear()
            servers |= in_order
            yield servers
        finally:
            for _, server in servers.values():
                server.terminate()
            for _, server in servers.values():
                server.stop()
            waiting.shutdown()

    def _start(
        self,
        group: Sequence[Station],
        servers: dict[str, tuple[Station, ArmServer]],
        waiting: ThreadPoolExecutor,
    ) -> None:
        """Starts a group at once and adds those that come up."""
        for station in group:
            log = self._results.logs / f"{station.name}.log"
            server = ArmServer(station.name, station.command, station.environment(), log)
            servers[station.name] = station, server
        healthy = {
            station.name: waiting.submit(
                servers[station.name][1].wait_until_healthy, self._start_timeout_s()
            )
            for station in group
        }
        for station in group:
            server = servers[station.name][1]
            self._display.doing(f"starting {station.name}")
            with self._or_drop(servers, station, server):
                start_s = healthy[station.name].result()
                server.check_identity(station.arm.difference)
                self._warm_up(station, server)
                self._results.append(STARTS, [self._start_line(station, server, start_s)])

    def _start_timeout_s(self) -> float:
        """No longer than the time limit lets anything be measured."""
        if self._deadline_s is None:
            return self._settings.start_timeout_s
        left_s = max(1.0, self._deadline_s - time.monotonic())
        return min(self._settings.start_timeout_s, left_s)

    @contextmanager
    def _or_drop(
        self, servers: dict[str, tuple[Station, ArmServer]], station: Station, server: ArmServer
    ) -> Iterator[None]:
        """What fails in the body ends this arm, and this arm alone."""
        try:
            yield
        except ArmError as error:
            self._display.failed(station.name, str(error), self._count(station))
            self._results.append(STARTS, [self._start_line(station, server, None, error)])
            del servers[station.name]
            server.stop(patience_s=0)

    def _start_line(
        self,
        station: Station,
        server: ArmServer,
        start_s: float | None,
        error: ArmError | None = None,
    ) -> dict[str, Any]:
        line = {
            "arm": station.name,
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "start_s": start_s,
            "started_beside_others": self._settings.side_by_side,
            "command": shown(server.command, station.env),
            "error": None if error is None else str(error),
            "log_tail": None if error is None else error.log_tail,
        }
        if error is None:
            state = server.info()["internal_states"][0]
            line["memory_usage_gb"] = state.get("memory_usage")
        return line

    def _warm_up(self, station: Station, server: ArmServer) -> None:
        batch = self._settings.most_clients if station.speed else self._settings.recovery_matter
        prompts = self._prompts if station.speed else self._recovery_prompts
        assert prompts is not None
        for number in (1, batch):
            warm_up(server, prompts.make(number, seed=0), self._settings.round_timeout_s)

    def _measure(self, servers: dict[str, tuple[Station, ArmServer]]) -> None:
        for load, number in self._cells():
            present = [station for station, _ in servers.values()]
            if not any(self._lacks_round(station, load, number) for station in present):
                continue
            # Arms that are compared within a round are all measured in it, also again.
            for station in (s for s in present if s.speed):
                measure = partial(self._round, load=load, number=number)
                self._one(servers, station, load.label, f"round {number + 1}", measure)
        for name, number in self._timeline_rounds():
            for station in [station for station, _ in servers.values()]:
                if self._lacks_timeline(station, name, number):
                    measure = partial(self._timeline, name=name, number=number)
                    self._one(servers, station, name, f"round {number + 1}", measure)
        for number, length in self._batches():
            for station in [station for station, _ in servers.values()]:
                if self._lacks_recovery(station, number, length):
                    measure = partial(self._recovery, length=length)
                    what = f"recovery after {length}"
                    self._one(servers, station, what, f"batch {number + 1}", measure)

    def _one(
        self,
        servers: dict[str, tuple[Station, ArmServer]],
        station: Station,
        what: str,
        which: str,
        measure: Callable[[Station, ArmServer], None],
    ) -> None:
        """One measurement, if it is likely to fit the time that is left.

        Args:
            what: is measured, and takes about as long each time.
            which: of them this one is.
        """
        _, server = servers[station.name]
        if not self._fits((station.name, what), self._durations_s.get(what, 0.0)):
            self._display.left_out(station.name, what)
            return
        self._display.doing(f"{station.name}, {what}, {which}")
        began = time.monotonic()
        with self._or_drop(servers, station, server):
            measure(station, server)
            self._display.done()
        taken_s = time.monotonic() - began
        self._durations_s[station.name, what] = self._durations_s[what] = taken_s

    def _fits(self, key: object, guess_s: float) -> bool:
        if self._deadline_s is None:
            return True
        expected_s = self._durations_s.get(key, guess_s)
        return time.monotonic() + expected_s < self._deadline_s

    def _round(self, station: Station, server: ArmServer, load: Load, number: int) -> None:
        settings = self._settings
        seed = settings.seed * 1000 + number
        sampling = {"ignore_eos": not settings.natural}
        prompts = self._prompts.make(settings.requests_of(load), seed)
        requests = [client.body(ids, settings.output_tokens, sampling) for ids in prompts]
        line = measure_round(server, load, requests, self._instruments, seed=seed)
        where = {"arm": station.name, "load": load.kind, "level": load.level, "round": number}
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._results.append(ROUNDS, [where | {"at": at} | line])
        self._rounds.add((station.name, load.kind, load.level, number))
        self._display.rate(station.name, load, line["output_tokens_s"])

    def _timeline(self, station: Station, server: ArmServer, name: str, number: int) -> None:
        settings = self._settings
        phases = TIMELINES[name](settings.most_clients, settings.timeline_s)
        prompts = self._prompts.make(4 * settings.most_clients, settings.seed * 1000 + number)
        sampling = {"ignore_eos": not settings.natural}
        requests = [client.body(ids, settings.output_tokens, sampling) for ids in prompts]
        lines = timeline.measure_timeline(
            server,
            phases,
            requests,
            timeout_s=settings.round_timeout_s,
            bin_s=max(LEAST_BIN_S, settings.timeline_s / MOST_BINS),
        )
        where = {"arm": station.name, "timeline": name, "round": number}
        self._results.append(TIMELINE, [where | line for line in lines])
        self._timelines.add((station.name, name, number))

    def _recovery(self, station: Station, server: ArmServer, length: int) -> None:
        settings, prompts = self._settings, self._recovery_prompts
        assert prompts is not None
        protocol = recovery.Protocol(
            matter=settings.recovery_matter,
            fillers=settings.recovery_fillers,
            plain_tokens=length,
            sampling={"temperature": settings.recovery_temperature},
        )
        number = self._recovered.count((station.arm.name, length))
        made = prompts.make(protocol.matter + protocol.fillers, settings.seed * 1000 + number)
        line = recovery.measure_recovery(server, protocol, made, timeout_s=settings.round_timeout_s)
        self._results.append(RECOVERY, [{"arm": station.arm.name, **line}])
        self._recovered.append((station.arm.name, length))

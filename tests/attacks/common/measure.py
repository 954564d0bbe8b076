"""Rate, latency and memory before, during and after an attack, and what is said of them."""

import threading
import time
from dataclasses import dataclass, field

from .actors import Worker
from .pool import resident

SAMPLE_S = 0.02
# With more checks those that hold are counted, not listed.
MOST_LINES = 8
# Of its rate a user has at least so much again when an attack is over.
BACK = 0.1


@dataclass
class Phase:
    name: str
    rate: float
    p50: float
    p99: float
    failed: int
    daemon: float
    worker: float


@dataclass
class Trial:
    """One attack in one variant."""

    title: str
    phases: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    # Lines for information.
    notes: list = field(default_factory=list)

    def check(self, what, good, found=""):
        self.checks.append((what, bool(good), str(found)))

    def phase(self, name):
        return next(phase for phase in self.phases if phase.name == name)

    @property
    def good(self):
        return all(good for _, good, _ in self.checks)

    def show(self):
        print(f"\n{self.title}")
        if self.phases:
            print(f"  {'':8}{'rate/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'failed':>8}{'daemon MB':>11}{'worker MB':>11}")
        for phase in self.phases:
            print(f"  {phase.name:8}{phase.rate:>10.1f}{phase.p50 * 1e3:>10.2f}{phase.p99 * 1e3:>10.2f}"
                  f"{phase.failed:>8}{phase.daemon:>11.0f}{phase.worker:>11.0f}")
        few = len(self.checks) <= MOST_LINES
        if not few:
            print(f"  ok      {sum(good for _, good, _ in self.checks)} of {len(self.checks)} checks")
        for what, good, found in self.checks:
            if good and not few:
                continue
            print(f"  {'ok    ' if good else 'MISSED'}  {what}{': ' + found if found else ''}")
        for note in self.notes:
            print(f"  info    {note}")


class Memory:
    """The most resident memory of the daemon and of its largest other process since it was last asked."""

    def __init__(self, pool):
        self.pool, self.most, self.ended = pool, [0.0, 0.0], False
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        while not self.ended:
            now = resident(self.pool.daemon.pid), max(map(resident, self.pool.children()), default=0.0)
            self.most = [max(pair) for pair in zip(self.most, now)]
            time.sleep(SAMPLE_S)

    def take(self):
        most, self.most = self.most, [0.0, 0.0]
        return most


class Deeds:
    """An attack that is done once, by a function."""

    def __init__(self, deeds):
        self.start, self.end = deeds, lambda: None


def observe(pool, title, make_step, attackers, seconds, settle=1.0):
    """A trial: an honest user works before, during and after what the attackers do."""
    once = isinstance(attackers, Deeds)
    trial, memory, worker = Trial(title), Memory(pool), Worker(make_step)
    spans = []

    def pause(name, length):
        begun = time.monotonic()
        time.sleep(length)
        spans.append((name, begun, time.monotonic(), memory.take()))

    try:
        worker.start()
        time.sleep(0.3)
        memory.take()
        pause("before", seconds)
        try:
            begun = time.monotonic()
            attackers.start()
            # The memory is that from the begin of the attack on.
            pause("during", 0.0 if once else seconds)
            if once:
                name, _, end, most = spans.pop()
                spans.append((name, begun, end, most))
        finally:
            attackers.end()
        time.sleep(settle)
        memory.take()
        pause("after", seconds)
    finally:
        times = worker.end()
        memory.ended = True
    trial.phases = [phase(times, *span) for span in spans]
    trial.check("the daemon is alive", pool.alive())
    return trial


def phase(times, name, begin, end, most):
    done = [took for start, took in times if took > 0 and begin <= start + took < end]
    took = sorted(took for start, took in times if took > 0 and begin <= start < end)
    failed = sum(1 for start, took in times if took < 0 and begin <= start - took < end)

    def quantile(part):
        return took[min(len(took) - 1, int(part * len(took)))] if took else float("nan")

    return Phase(name, len(done) / (end - begin), quantile(0.5), quantile(0.99), failed, *most)


def keeps_rate(trial, share):
    """Against the mean of before and after, if it was quieter then: other work on the machine comes and goes."""
    before, during, after = (phase.rate for phase in trial.phases)
    usual = (before + max(before, after)) / 2
    part = during / usual if usual else 0.0
    trial.check(f"another user keeps {share} of the rate", part >= share, f"{part:.2f}")
    trial.check("and has it again afterwards", after >= BACK * before, f"{after:.0f}/s")


def keeps_memory(trial, most):
    for what in ("daemon", "worker"):
        found = max(getattr(phase, what) for phase in trial.phases)
        trial.check(f"the {what} stays under {most} MB", found < most, f"{found:.0f} MB")


def fails_nothing(trial):
    failed = sum(phase.failed for phase in trial.phases)
    trial.check("nothing of another user fails", failed == 0, f"{failed} failed" if failed else "")

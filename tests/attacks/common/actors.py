"""Processes of other users: those who attack, and one who only wants to work."""

import array
import multiprocessing
import os
import resource
import signal
import time

HONEST, HOSTILE, ANOTHER = 64001, 64002, 64003
# A process of an attack ends by itself after this, whatever becomes of its parent.
LONGEST_S = 240

fork = multiprocessing.get_context("fork")


def become(uid):
    signal.alarm(LONGEST_S)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.chdir("/")


class Attackers:
    """Processes that run `attack(number, stop, begun)` as users of their own; `begun()` says that the attack is on."""

    def __init__(self, attack, processes=1, uid=HOSTILE):
        self.stop = fork.Event()
        self.begun = fork.Semaphore(0)
        self.processes = [fork.Process(target=self._run, args=(attack, number, uid), daemon=True)
                          for number in range(processes)]

    def _run(self, attack, number, uid):
        become(uid)
        begun = [False]

        def begin():
            if not begun[0]:
                begun[0] = True
                self.begun.release()

        try:
            attack(number, self.stop, begin)
        except (OSError, EOFError):
            pass  # The daemon has ended what it should not serve.
        begin()
        self.stop.wait()

    def start(self, patience=60.0):
        for process in self.processes:
            process.start()
        end = time.monotonic() + patience
        for _ in self.processes:
            self.begun.acquire(timeout=max(0.0, end - time.monotonic()))

    def end(self):
        self.stop.set()
        for process in self.processes:
            if process.pid is not None:
                process.join(10)
                if process.is_alive():
                    process.kill()
                    process.join()


class Worker:
    """A process that does `make()()` again and again, and notes when each began, how long it took, and what failed."""

    def __init__(self, make, uid=HONEST):
        self.stop = fork.Event()
        self.ready = fork.Event()
        self.mine, theirs = fork.Pipe(duplex=False)
        self.process = fork.Process(target=self._run, args=(make, theirs, uid), daemon=True)

    def _run(self, make, out, uid):
        become(uid)
        times, step = array.array("d"), None
        while not self.stop.is_set():
            begun = time.monotonic()
            try:
                step = step or make()
                step()
                times.extend((begun, time.monotonic() - begun))
                self.ready.set()
            except Exception:  # noqa: BLE001 whatever it was, the person could not work
                times.extend((begun, -(time.monotonic() - begun)))
                step = None
                time.sleep(0.05)
        out.send_bytes(times.tobytes())

    def start(self):
        self.process.start()
        if not self.ready.wait(60):
            self.process.kill()
            raise TimeoutError("the honest user could not work at all")

    def end(self):
        """(begin, seconds) of each; a failed one has negative seconds."""
        self.stop.set()
        times = array.array("d")
        try:
            if self.mine.poll(60):
                times.frombytes(self.mine.recv_bytes())
        except EOFError:
            pass  # It was killed.
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return list(zip(times[::2], times[1::2]))

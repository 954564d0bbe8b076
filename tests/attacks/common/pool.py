"""A daemon with tokens in software, in a temporary folder, on ports that the system chooses."""

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

SOFTHSM = "/usr/lib/softhsm/libsofthsm2.so"
POOL_PIN = "pin-of-the-pool"
PATIENCE = 60.0
# Past it the daemon aborts, and not the machine.
MOST_MEMORY = 8 << 30


def until(what, ready, patience=PATIENCE):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {patience:.0f} s")


class Pool:
    """Use it as a context: the daemon ends and the folder goes at its end."""

    # Microseconds that a SoftHSM token takes for each use of a key, one after the other; without them it is as fast as
    # the CPUs are.
    service_us = None

    def __init__(self, binaries, listener="", sections="", softhsm=("hsm1",), standin=None, environment=None,
                 more="", pool="", service_us=None):
        self.binaries = Path(binaries)
        self.folder = Path(tempfile.mkdtemp(prefix="hsmux-attack-"))
        self.folder.chmod(0o711)
        self.daemon = None
        self.listener, self.sections, self.softhsm, self.standin = listener, sections, softhsm, standin
        self.more, self.pool = more, pool
        self.service_us = service_us or self.service_us
        self.environment = os.environ | {
            "HSMUX_CONFIG": str(self.path("hsmux.toml")), "SOFTHSM2_CONF": str(self.path("softhsm2.conf")),
            "HOME": str(self.folder), **(environment or {})}

    def path(self, name):
        return self.folder / name

    @property
    def socket(self):
        return self.path("hsmux.sock")

    def run(self, *command, check=True, **more):
        done = subprocess.run([str(part) for part in command], env=self.environment, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, **more)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def hsmux(self, line, **more):
        return self.run(self.binaries / "hsmux", *line.split(), **more)

    def __enter__(self):
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def prepare(self):
        self.secret("pool.pin", POOL_PIN)
        tokens = self.path("tokens")
        tokens.mkdir()
        self.path("softhsm2.conf").write_text(f"directories.tokendir = {tokens}\nlog.level = ERROR\n")
        members = "".join(self.softhsm_member(label) for label in self.softhsm)
        if self.standin is not None:
            members += self.standin_member()
        self.path("hsmux.toml").write_text(f"""
[pool]
label = "web"
deadline = "60s"
{self.pool}
[daemon]
socket = "hsmux.sock"
mode = "0666"
pin = {{ file = "pool.pin" }}
{self.listener}
[admin]
socket = "admin.sock"
mode = "0666"
{self.sections}
{members}""")

    def softhsm_member(self, label):
        pin = f"pin-of-{label}"
        self.secret(f"{label}.pin", pin)
        key = self.path("ec.key")
        if not key.exists():
            self.run("openssl", "genpkey", "-quiet", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-out", key)
        self.run("softhsm2-util", "--init-token", "--free", "--label", label, "--so-pin", "so-pin-12345",
                 "--pin", pin)
        self.run("softhsm2-util", "--token", label, "--pin", pin, "--label", "ec", "--id", "02", "--import", key)
        module = self.slow_module(label) if self.service_us else SOFTHSM
        return f'[[token]]\nmodule = "{module}"\nuri = "pkcs11:token={label}"\npin = {{ file = "{label}.pin" }}\n{self.more}\n'

    def slow_module(self, label):
        module = self.path(f"slow-{label}.so")
        shutil.copy(self.binaries / "libhsmux_standin.so", module)
        self.path(f"{module.name}.toml").write_text(f'forward = "{SOFTHSM}"\nsettled = true\n[[token]]\n'
                                                    f'label = "{label}"\nservice_time_us = {self.service_us}\n')
        return module

    def standin_member(self):
        module = self.path("standin.so")
        shutil.copy(self.binaries / "libhsmux_standin.so", module)
        self.secret("standin.pin", "1234")
        self.path("standin.so.toml").write_text(f'[[token]]\nlabel = "standin"\n{self.standin}\n')
        return (f'[[token]]\nmodule = "{module}"\nuri = "pkcs11:token=standin"\n'
                f'pin = {{ file = "standin.pin" }}\n{self.more}\n')

    def secret(self, name, text):
        path = self.path(name)
        path.write_text(text)
        path.chmod(0o600)

    def start(self):
        log = open(self.path("daemon.log"), "ab")

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))

        self.daemon = subprocess.Popen([self.binaries / "hsmux", "serve"], env=self.environment, cwd=self.folder,
                                       stdout=log, stderr=log, preexec_fn=limit)
        until("every member serves", self.serves)

    def serves(self):
        if not self.alive():
            raise RuntimeError(f"the daemon has ended\n{self.log()}")
        status = subprocess.run([self.binaries / "hsmux", "status", "--check"], env=self.environment,
                                capture_output=True, timeout=PATIENCE)
        return status.returncode == 0

    def alive(self):
        return self.daemon.poll() is None

    def log(self):
        return self.path("daemon.log").read_text(errors="replace")

    def port(self, what):
        """The first port that the log names after these words."""
        found = until(f"the log says {what}", lambda: re.search(what + r"\[?(?:Some\()?127\.0\.0\.1:(\d+)", self.log()))
        return int(found.group(1))

    def children(self):
        found = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children")
        tasks = Path(f"/proc/{self.daemon.pid}/task")
        try:
            return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
        except OSError:
            return [] if not found.exists() else []

    def __exit__(self, *_):
        if self.daemon is not None and self.alive():
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(30)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def resident(pid):
    """A process's resident memory in MB; 0 once it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() / 1e6
    except (OSError, IndexError):
        return 0.0

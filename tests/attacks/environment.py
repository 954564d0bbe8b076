"""1.2: set-uid programs and commands of root that another user's environment and files lead astray."""

import os
import shutil
import signal
import socket
import subprocess
import threading

import cbor2

from common import frames
from common.actors import ANOTHER, HOSTILE
from common.honest import signer
from common.measure import Deeds, fails_nothing, keeps_memory, observe
from common.pool import Pool

NUMBER = "1.2"
MOST_MB = 200
PIN = "a-secret-PIN-of-root"

# What ran, and as whom: the module when it is loaded, and the worker when it is started.
PAYLOAD = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/stat.h>
static void say(const char *what) {
    int file = open("%(proof)s", O_WRONLY | O_CREAT | O_APPEND, 0666);
    dprintf(file, "%%s as %%d\\n", what, (int)geteuid());
    fchmod(file, 0666);
    close(file);
}
#ifdef MODULE
__attribute__((constructor)) static void loaded(void) { say("module"); }
#else
int main(void) { say("worker"); return 0; }
#endif
"""


class Trap:
    """A folder of the attacker: a module, a worker, configurations and a socket."""

    def __init__(self, pool):
        self.pool, self.folder, self.proof = pool, pool.path("trap"), pool.path("trap/proof")
        self.folder.mkdir()
        source = self.folder / "payload.c"
        source.write_text(PAYLOAD % {"proof": self.proof})
        pool.run("gcc", "-shared", "-fPIC", "-DMODULE", source, "-o", self.folder / "evil.so")
        pool.run("gcc", source, "-o", self.folder / "evil-worker")
        self.config("embedded", 'mode = "embedded"', 'isolation = "thread"')
        self.config("worker", 'mode = "embedded"', 'isolation = "process"')
        self.config("socket", f'mode = "daemon"\nsocket = "{self.folder}/evil.sock"', "")
        for name in ("config/hsmux", "home/.config/hsmux"):
            (self.folder / name).mkdir(parents=True)
            shutil.copy(self.folder / "embedded.toml", self.folder / name / "hsmux.toml")
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, HOSTILE, HOSTILE)
        self.heard = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / "evil.sock"))
        os.chown(self.folder / "evil.sock", HOSTILE, HOSTILE)
        os.chmod(self.folder / "evil.sock", 0o777)
        self.listener.listen()
        threading.Thread(target=self.listen, daemon=True).start()

    def config(self, name, module, token):
        (self.folder / f"{name}.pin").write_text("1234")
        (self.folder / f"{name}.pin").chmod(0o600)
        (self.folder / f"{name}.toml").write_text(f"""
[pool]
label = "trap"
[daemon]
state = "{self.folder}/state"
socket = "{self.folder}/evil.sock"
pin = {{ file = "{self.folder}/{name}.pin" }}
worker = "{self.folder}/evil-worker"
[module]
{module}
[[token]]
name = "evil"
module = "{self.folder}/evil.so"
uri = "pkcs11:token=evil"
pin = {{ file = "{self.folder}/{name}.pin" }}
{token}
""")

    def listen(self):
        """A daemon that welcomes everybody and wants to hear a PIN."""
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream):
        connection = frames.Connection.__new__(frames.Connection)
        connection.socket = stream
        stream.settimeout(10)
        info = ["trap", "evil", "evil", "1", 0x40D, [], []]
        try:
            connection.receive()
            self.heard.append("a program has greeted")
            stream.sendall(frames.frame([0, [[2, 1, True, False]]]))
            while True:
                call = cbor2.loads(connection.receive())
                if call[0] == 4:
                    self.heard.append(f"a PIN: {call[1][0].decode()}")
                answer = [5, [[7, info, [], False]]] if call[0] == 3 else [0, []]
                stream.sendall(frames.frame([1, answer, None]))
        except (OSError, ValueError):
            pass

    def take(self):
        """What the trap has caught since it was last asked; what ran as the attacker itself is no catch."""
        return [what for what in self.take_all() if not what.endswith(f"as {HOSTILE}")]

    def take_all(self):
        heard, self.heard = self.heard, []
        if self.proof.exists():
            heard += self.proof.read_text().split("\n")[:-1]
            self.proof.unlink()
        state = self.folder / "state"
        if state.exists():
            if state.stat().st_uid == 0:
                heard.append("root has made the folder of the state")
            shutil.rmtree(state)
        return heard


def privileged(pool, name, source, mode):
    """A copy of a program that runs as its owner, as set-uid programs do."""
    program = pool.path(name)
    shutil.copy(source, program)
    os.chown(program, 0, 0)
    program.chmod(mode)
    return program


def as_user(command, environment, cwd, uid=HOSTILE):
    """What becomes of a command of another user, who has 20 s."""
    clean = {"PATH": "/usr/bin:/bin", "LANG": "C"} | environment
    try:
        subprocess.run([str(part) for part in command], env=clean, cwd=cwd, user=uid, group=uid, extra_groups=[],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)
    except subprocess.TimeoutExpired:
        pass


def environments(trap):
    """The variables with which the attacker starts a program."""
    folder = trap.folder
    return {
        "HSMUX_CONFIG with an embedded module": {"HSMUX_CONFIG": f"{folder}/embedded.toml"},
        "HSMUX_CONFIG with a worker": {"HSMUX_CONFIG": f"{folder}/worker.toml"},
        "HSMUX_CONFIG with a socket": {"HSMUX_CONFIG": f"{folder}/socket.toml"},
        "HSMUX_SOCKET": {"HSMUX_SOCKET": f"{folder}/evil.sock"},
        "XDG_CONFIG_HOME": {"XDG_CONFIG_HOME": f"{folder}/config"},
        "HOME": {"HOME": f"{folder}/home"},
        "HSMUX_DEBUG, LD_LIBRARY_PATH and all of them": {
            "HSMUX_CONFIG": f"{folder}/embedded.toml", "HSMUX_SOCKET": "", "HOME": f"{folder}/home",
            "HSMUX_DEBUG": f"{folder}/log", "XDG_CONFIG_HOME": f"{folder}/config"},
    }


def set_uid(trap, found, pool, module):
    tool = privileged(pool, "tool", "/usr/bin/pkcs11-tool", 0o4755)
    openssl = privileged(pool, "openssl", "/usr/bin/openssl", 0o4755)
    provider = pool.path("providers")
    provider.mkdir()
    provider.chmod(0o755)
    shutil.copy(module, provider / "hsmux.so")
    by_module = tool, "--module", module, "--login", "--pin", PIN, "--list-objects"
    reference = pool.path("ec.reference")
    pool.hsmux(f"key reference pkcs11:object=ec --out {reference}")
    reference.chmod(0o644)
    by_provider = (openssl, "dgst", "-sha256", "-provider-path", provider, "-provider", "hsmux", "-provider", "default",
                   "-sign", reference, reference)
    for what, command in (("the module", by_module), ("the provider", by_provider)):
        # The trap works: in a program without privileges the user's own configuration counts.
        plain = privileged(pool, "plain", command[0], 0o755)
        as_user((plain, *command[1:]), environments(trap)["HSMUX_CONFIG with an embedded module"], pool.folder)
        found.append((f"a program without privileges believes its user, with {what}",
                      f"module as {HOSTILE}" in trap.take_all(), ""))
        for name, variables in environments(trap).items():
            as_user(command, variables, pool.folder)
            caught = trap.take()
            found.append((f"a set-uid program with {what} believes no {name}", not caught, ", ".join(caught)))


def writable(trap, found, pool):
    """Commands of root whose configuration or module another user can change."""
    mine = pool.path("mine")
    mine.mkdir()
    good = (trap.folder / "embedded.toml").read_text().replace("evil.so", "module.so").replace(str(trap.folder), str(mine))
    # The daemon's own worker is to refuse the module.
    good = good.replace(f'worker = "{mine}/evil-worker"\n', "")
    shutil.copy(trap.folder / "evil.so", mine / "module.so")
    shutil.copy(trap.folder / "embedded.pin", mine / "embedded.pin")
    (mine / "hsmux.toml").write_text(good)
    for path in (mine, *mine.iterdir()):
        os.chown(path, 0, 0)
    config, module, pin = mine / "hsmux.toml", mine / "module.so", mine / "embedded.pin"
    loads(pool, config)
    found.append(("root loads a module that is root's by a configuration of root's", "module as 0" in trap.take(), ""))
    for what, path, mode, owner in (
        ("a configuration of mode 0666", config, 0o666, 0), ("a configuration of another user", config, 0o644, HOSTILE),
        ("a configuration in a folder of mode 0777", mine, 0o777, 0),
        ("a configuration in a folder of another user", mine, 0o755, HOSTILE),
        ("a module of mode 0777", module, 0o777, 0), ("a module of another user", module, 0o755, HOSTILE),
        ("a configuration that a group may write", config, 0o664, 0), ("a module that a group may write", module, 0o775, 0),
        ("a PIN file of mode 0644", pin, 0o644, 0),
    ):
        kept = path.stat()
        os.chown(path, owner, ANOTHER if mode & 0o020 and not mode & 0o002 else 0)
        path.chmod(mode)
        loads(pool, config)
        caught = trap.take()
        found.append((f"root refuses {what}", not caught, ", ".join(caught)))
        os.chown(path, 0, 0)
        path.chmod(kept.st_mode & 0o7777)


def loads(pool, config):
    """root's `hsmux serve`, and a program of root's with the module embedded; each has 3 s."""
    environment = {"PATH": "/usr/bin:/bin", "HSMUX_CONFIG": str(config)}
    module = pool.path("libhsmux_pkcs11.so")
    for command in ([str(pool.binaries / "hsmux"), "serve"], ["pkcs11-tool", "--module", str(module), "-L"]):
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def trials(bench):
    with Pool(bench.binaries) as pool:
        module = pool.path("libhsmux_pkcs11.so")
        shutil.copy(bench.binaries / "libhsmux_pkcs11.so", module)
        module.chmod(0o755)
        trap, found = Trap(pool), []

        def attack():
            set_uid(trap, found, pool, module)
            writable(trap, found, pool)

        trial = observe(pool, "set-uid copies of pkcs11-tool and openssl, and files that others can write", signer(pool),
                        Deeds(attack), bench.seconds)
        trap.listener.close()
        for check in found:
            trial.check(*check)
        keeps_memory(trial, MOST_MB)
        fails_nothing(trial)
        yield trial

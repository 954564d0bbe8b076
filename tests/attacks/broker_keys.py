"""1.6: a program on a listener without a `keys` filter wants a broker's keys."""

import http.client
import json

from common import frames
from common.honest import signer
from common.measure import Deeds, fails_nothing, keeps_memory, observe
from common.pool import POOL_PIN, Pool, until

NUMBER = "1.6"
MOST_MB = 200
GCM, CBC_HMAC, EC, HMAC = "aes256-gcm96", "aes256-cbc-hmac", "ecdsa-p256", "hmac"
KINDS = {"gcm": GCM, "ec": EC, "mac": HMAC}

SECTIONS = """
[broker]
listen = ["127.0.0.1:0"]

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]

[[listener]]
socket = "named.sock"
mode = "0666"
keys = ["pkcs11:object=app-gcm", "pkcs11:object=app-ec", "pkcs11:object=app-mac"]
pin = { file = "pool.pin" }
"""


def ask(port, token, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body and json.dumps(body), {"X-Vault-Token": token})
    answer = connection.getresponse()
    read = answer.read()
    connection.close()
    return answer.status, read


def make_keys(pool):
    """The broker's port, and a client's token for its keys `app-gcm`, `app-ec` and `app-mac`."""
    port = pool.port("addresses=")
    token = pool.hsmux("token-auth create app").strip()
    for name, kind in KINDS.items():
        body = {"type": kind} | ({"key_size": 64} if kind == HMAC else {})
        path = f"/v1/transit/keys/app-{name}"
        until("the broker makes a key", lambda: ask(port, token, "POST", path, body)[0] in (200, 204))
    return port, token


def uses(keys):
    """What a program may try: what, the key, the operation."""
    gcm, ec, mac = (keys[name] for name in ("gcm", "ec", "mac"))
    object_of = frames.token_object
    iv = b"\0" * 12
    session = [[0x1, b"\0"]]  # CKA_TOKEN = false
    chosen = [frames.CKM_AES_GCM, [5, [[iv, b"", 128]]]]
    counter = [0x1086, [6, [128, b"\0" * 16]]]
    for name, key, operation in (
        ("encrypts by AES-GCM with an IV of its choice", gcm, frames.use(frames.ENCRYPT, gcm, chosen, b"x" * 16)),
        ("encrypts by AES-ECB", gcm, frames.use(frames.ENCRYPT, gcm, frames.plain(frames.CKM_AES_ECB), b"x" * 16)),
        ("decrypts by AES-ECB", gcm, frames.use(frames.DECRYPT, gcm, frames.plain(frames.CKM_AES_ECB), b"x" * 16)),
        ("encrypts by AES-CBC", gcm, frames.use(frames.ENCRYPT, gcm, [frames.CKM_AES_CBC, [1, [b"\0" * 16]]], b"x" * 16)),
        ("encrypts by AES-CTR", gcm, frames.use(frames.ENCRYPT, gcm, counter, b"x" * 16)),
        ("signs by CMAC", gcm, frames.use(frames.SIGN, gcm, frames.plain(0x108A), b"x" * 16)),
        ("signs by ECDSA", ec, frames.use(frames.SIGN, ec, frames.plain(frames.CKM_ECDSA), b"x" * 32)),
        ("signs by HMAC", mac, frames.use(frames.SIGN, mac, frames.plain(frames.CKM_SHA256_HMAC), b"x" * 32)),
        ("derives a key", gcm, [4, [object_of(gcm), [0x1104, [9, [b"x" * 32]]], [*session, [0x100, number(0x1F)],
                                                                                [0x161, number(32)]]]]),
        ("wraps another key with it", gcm, [5, [object_of(gcm), frames.plain(0x2109), object_of(mac)]]),
        ("unwraps with it", gcm, [6, [object_of(gcm), frames.plain(0x2109), b"x" * 40, [*session, [0, number(4)],
                                                                                       [0x100, number(0x1F)]]]]),
        ("copies it to a session object", gcm, [8, [object_of(gcm), session]]),
        ("copies the private key", ec, [8, [object_of(ec), session]]),
        ("gives it another label", gcm, [10, [object_of(gcm), [[frames.CKA_LABEL, b"mine"]]]]),
        ("reads it", gcm, [11, [object_of(gcm)]]),
        ("destroys it", gcm, [9, [object_of(gcm)]]),
        ("destroys the private key", ec, [9, [object_of(ec)]]),
    ):
        yield name, key, operation


def number(value):
    return value.to_bytes(8, "little")


def logged_in(path):
    connection = frames.Connection(path)
    connection.call(frames.login(POOL_PIN.encode()))
    return connection


def tries(path, operation):
    """Whether the daemon does it, and what it says if it does not."""
    try:
        logged_in(path).execute(operation)
    except frames.Refused as error:
        return False, words(error)
    except ConnectionError as error:
        return False, error
    return True, "done"


def words(error):
    said = error.args[0]
    return next((part for part in said if isinstance(part, str)), said) if isinstance(said, list) else said


def trials(bench):
    with Pool(bench.binaries, sections=SECTIONS) as pool:
        port, token = make_keys(pool)
        named = logged_in(pool.path("named.sock"))
        classes = {"gcm": frames.SECRET_KEY, "ec": frames.PRIVATE_KEY, "mac": frames.SECRET_KEY}
        keys = {name: named.find(kind, f"app-{name}") for name, kind in classes.items()}
        found = []

        def attack():
            everybody = logged_in(pool.socket)
            shown = [key for key, _ in everybody.objects() if key in keys.values()]
            found.append(("a listener without `keys` shows no key of the broker", not shown, f"{len(shown)} shown"))
            for name, key in keys.items():
                try:
                    everybody.call(frames.hand_over(key))
                    found.append((f"a direct connection for app-{name}", False, "given"))
                except (frames.Refused, ConnectionError) as error:
                    found.append((f"no direct connection for app-{name}", True, words(error)))
                everybody = logged_in(pool.socket)
            for name, key, operation in uses(keys):
                done, said = tries(pool.socket, operation)
                found.append((f"a program that knows its name {name}: refused", not done, said))
            for name in ("gcm", "ec"):
                done, said = tries(pool.path("named.sock"), [9, [frames.token_object(keys[name])]])
                found.append((f"a listener that names app-{name} destroys it: refused", not done, said))
            status, _ = ask(port, token, "POST", "/v1/transit/encrypt/app-gcm", {"plaintext": "aGVsbG8="})
            found.append(("the broker still encrypts", status == 200, status))

        trial = observe(pool, "uses of three keys of a broker by their names", signer(pool), Deeds(attack),
                        bench.seconds)
        for check in found:
            trial.check(*check)
        keeps_memory(trial, MOST_MB)
        fails_nothing(trial)
        yield trial

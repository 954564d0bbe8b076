"""What a token says of keys that it generated, and pairs of which one half is a session object."""

import sys

from pkcs11 import *

CKA_LOCAL, CKA_NEVER_EXTRACTABLE, CKA_ALWAYS_SENSITIVE, CKA_KEY_GEN_MECHANISM = 0x163, 0x164, 0x165, 0x166

path, label, pin = sys.argv[1:]
module = Module(path)
module.initialize()
session = module.session(module.slot(label))
session.login(pin)


def number(key, attribute):
    return int.from_bytes(session.value(key, attribute), "little")


def origin(name, key, *more):
    kinds = {"local": CKA_LOCAL, "mechanism": CKA_KEY_GEN_MECHANISM} | dict(more)
    print(f"{name}:", *(f"{word} {number(key, kind):#x}" for word, kind in kinds.items()))
    session.destroy(key)


SECRET = {CKA_TOKEN: True, CKA_PRIVATE: True, CKA_SENSITIVE: True}
always = ("always sensitive", CKA_ALWAYS_SENSITIVE)
never = ("never extractable", CKA_NEVER_EXTRACTABLE)
key = session.generate(CKM_AES_KEY_GEN, SECRET | {CKA_VALUE_LEN: 32, CKA_ENCRYPT: True})
origin("aes", key, always, never, ("length", CKA_VALUE_LEN))
open_key = SECRET | {CKA_SENSITIVE: False, CKA_EXTRACTABLE: True, CKA_VALUE_LEN: 16, CKA_ENCRYPT: True}
origin("open aes", session.generate(CKM_AES_KEY_GEN, open_key), always, never, ("length", CKA_VALUE_LEN))
made = session.create(
    SECRET | {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_AES, CKA_VALUE: bytes(24), CKA_ENCRYPT: True}
)
print(f"created aes: local {number(made, CKA_LOCAL):#x} length {number(made, CKA_VALUE_LEN):#x}")
session.destroy(made)
public, private = session.generate_pair(
    CKM_EC_KEY_PAIR_GEN,
    {CKA_TOKEN: True, CKA_EC_PARAMS: P256},
    {CKA_TOKEN: True, CKA_PRIVATE: True, CKA_SENSITIVE: True, CKA_SIGN: True},
)
origin("private ec", private, always, never)
origin("public ec", public)

for kept, other in ((True, False), (False, True)):
    public, private = session.generate_pair(
        CKM_RSA_PKCS_KEY_PAIR_GEN,
        {CKA_TOKEN: other, CKA_PRIVATE: False, CKA_MODULUS_BITS: 1024, CKA_PUBLIC_EXPONENT: b"\x01\x00\x01"},
        {CKA_TOKEN: kept, CKA_PRIVATE: True, CKA_SENSITIVE: True, CKA_SIGN: True},
    )
    print(f"private {number(private, CKA_TOKEN)}, public {number(public, CKA_TOKEN)}")
    signature = session.keyed("Sign", private, CKM_SHA256_RSA_PKCS, b"a text")
    print(f"signature: {len(signature)} bytes")
    session.destroy(public)
    session.destroy(private)
try:
    for half in session.generate_pair(
        CKM_EC_KEY_PAIR_GEN,
        {CKA_TOKEN: False, CKA_PRIVATE: False, CKA_EC_PARAMS: P256},
        {CKA_TOKEN: True, CKA_PRIVATE: True, CKA_SENSITIVE: True, CKA_SIGN: True},
    ):
        session.destroy(half)
    print("private ec alone: made")
except Refused as refused:
    print(f"private ec alone: {refused.rv:#x}")
original = session.generate(CKM_AES_KEY_GEN, SECRET | {CKA_VALUE_LEN: 16, CKA_ENCRYPT: True, CKA_ID: b"one"})
for what, name in (("same", b"one"), ("other", b"two")):
    try:
        copy = session.copy(original, {CKA_ID: name})
        text = bytes(16)
        same = session.keyed("Encrypt", original, CKM_AES_ECB, text) == session.keyed("Encrypt", copy, CKM_AES_ECB, text)
        print(f"copy under the {what} id: {same}, a token object: {number(copy, CKA_TOKEN)}")
        if copy != original:
            session.destroy(copy)
    except Refused as refused:
        print(f"copy under the {what} id: {refused.rv:#x}")
session.destroy(original)
print("all destroyed")

"""Wrapped keys that were damaged on their way: each is refused, leaves nothing, and the token goes on."""

import sys

from pkcs11 import *

path, label, pin = sys.argv[1:]
module = Module(path)
module.initialize()
session = module.session(module.slot(label))
session.login(pin)

AES = {CKA_CLASS: CKO_SECRET_KEY, CKA_KEY_TYPE: CKK_AES, CKA_TOKEN: False, CKA_SENSITIVE: False, CKA_EXTRACTABLE: True}
wrapping = session.generate(
    CKM_AES_KEY_GEN, {CKA_TOKEN: False, CKA_VALUE_LEN: 32, CKA_WRAP: True, CKA_UNWRAP: True}
)
wrapped_key = session.generate(
    CKM_AES_KEY_GEN,
    {CKA_TOKEN: False, CKA_VALUE_LEN: 16, CKA_SENSITIVE: False, CKA_EXTRACTABLE: True, CKA_ENCRYPT: True},
)
blob = session.wrap(CKM_AES_KEY_WRAP, wrapping, wrapped_key)
before = len(session.find({CKA_CLASS: CKO_SECRET_KEY}))


def flipped(at):
    return blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]


damaged = [flipped(at) for at in range(len(blob))]
damaged += [blob[:-8], blob + bytes(8), bytes(len(blob)), b"\xff" * len(blob), blob[:-1], b""]
codes = {}
for text in damaged:
    try:
        session.unwrap(CKM_AES_KEY_WRAP, wrapping, text, AES)
        print(f"taken: {text.hex()}")
    except Refused as refused:
        codes[refused.rv] = codes.get(refused.rv, 0) + 1
print("codes:", *(f"{code:#x}×{count}" for code, count in sorted(codes.items())))
print(f"left: {len(session.find({CKA_CLASS: CKO_SECRET_KEY})) - before}")
again = session.unwrap(CKM_AES_KEY_WRAP, wrapping, blob, AES)
same = session.value(again, CKA_VALUE) == session.value(wrapped_key, CKA_VALUE)
print(f"the undamaged one is the key: {same}")

"""PyKCS11: finds keys on a token, signs, verifies, encrypts and decrypts."""

import os
import sys

import PyKCS11
from PyKCS11 import CKA_CLASS, CKA_LABEL, CKO_PRIVATE_KEY, CKO_PUBLIC_KEY, CKO_SECRET_KEY

path, label, pin = sys.argv[1:]
module = PyKCS11.PyKCS11Lib()
module.load(path)
slot = next(s for s in module.getSlotList(tokenPresent=True)
            if module.getTokenInfo(s).label.strip() == label)
session = module.openSession(slot, PyKCS11.CKF_SERIAL_SESSION | PyKCS11.CKF_RW_SESSION)
session.login(pin)


def key(kind, name):
    (found,) = session.findObjects([(CKA_CLASS, kind), (CKA_LABEL, name)])
    return found


for name, mechanism in (("rsa", PyKCS11.CKM_SHA256_RSA_PKCS), ("ec", PyKCS11.CKM_ECDSA)):
    mechanism, data = PyKCS11.Mechanism(mechanism, None), os.urandom(32)
    signature = session.sign(key(CKO_PRIVATE_KEY, name), data, mechanism)
    valid = session.verify(key(CKO_PUBLIC_KEY, name), data, signature, mechanism)
    print(f"{name}: {'valid' if valid else 'NOT valid'}")

cipher = PyKCS11.Mechanism(PyKCS11.CKM_AES_CBC_PAD, os.urandom(16))
secret = session.encrypt(key(CKO_SECRET_KEY, "aes"), b"plain text", cipher)
back = bytes(session.decrypt(key(CKO_SECRET_KEY, "aes"), secret, cipher))
print("aes:", "there and back" if back == b"plain text" else "lost")
session.logout()
session.closeSession()

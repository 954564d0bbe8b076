"""A session of hvac, the Python client of Vault, with the broker: every call as its manual has it.

broker.py URL TOKEN KIND...: the kinds of key to sign with
"""

import base64
import hashlib
import sys

import hvac
from hvac.exceptions import Forbidden, InvalidPath, InvalidRequest, ParamValidationError

url, token, *signing = sys.argv[1:]
client = hvac.Client(url=url, token=token)
transit = client.secrets.transit


def text(data):
    return base64.b64encode(data).decode()


def refused(error, call, **arguments):
    try:
        call(**arguments)
    except error as refusal:
        return str(refusal)
    raise AssertionError(f"{call.__name__}({arguments}) was not refused")


def create(name, kind):
    """hvac checks kinds of keys itself, and its manual does not have all that Vault has."""
    try:
        transit.create_key(name=name, key_type=kind)
    except ParamValidationError:
        client.write(f"transit/keys/{name}", type=kind)


assert client.is_authenticated()

for kind in ["aes128-gcm96", "aes256-gcm96", "aes256-cbc"]:
    name = f"app-{kind}"
    create(name, kind)
    sealed = transit.encrypt_data(name=name, plaintext=text(b"secret"))["data"]["ciphertext"]
    assert sealed.startswith("vault:v1:"), sealed
    opened = transit.decrypt_data(name=name, ciphertext=sealed)["data"]["plaintext"]
    assert base64.b64decode(opened) == b"secret"

    transit.rotate_key(name=name)
    renewed = transit.rewrap_data(name=name, ciphertext=sealed)["data"]["ciphertext"]
    assert renewed.startswith("vault:v2:"), renewed
    assert transit.decrypt_data(name=name, ciphertext=renewed)["data"]["plaintext"] == opened

    batch = [{"plaintext": text(b"%d" % n)} for n in range(20)]
    answer = transit.encrypt_data(name=name, plaintext=None, batch_input=batch)
    results = answer["data"]["batch_results"]
    assert len(results) == 20 and all("ciphertext" in item for item in results), results

    made = transit.generate_data_key(name=name, key_type="plaintext")["data"]
    again = transit.decrypt_data(name=name, ciphertext=made["ciphertext"])["data"]["plaintext"]
    assert again == made["plaintext"] and len(base64.b64decode(again)) == 32

    transit.update_key_configuration(name=name, min_decryption_version=2)
    message = refused(InvalidRequest, transit.decrypt_data, name=name, ciphertext=sealed)
    assert "too old" in message, message
    print(f"{kind}: there and back")

for kind in signing:
    name = f"app-{kind}"
    create(name, kind)
    shown = transit.read_key(name=name)["data"]
    assert shown["type"] == kind and shown["supports_signing"], shown
    assert shown["keys"]["1"]["public_key"], shown
    signed = transit.sign_data(name=name, hash_input=text(b"contract"))["data"]["signature"]
    for data, valid in [(b"contract", True), (b"contract.", False)]:
        answer = transit.verify_signed_data(name=name, hash_input=text(data), signature=signed)
        assert answer["data"]["valid"] is valid, (kind, data, answer)
    print(f"{kind}: signed and verified")

create("app-hmac", "hmac")
mac = transit.generate_hmac(name="app-hmac", hash_input=text(b"bill"))["data"]["hmac"]
answer = transit.verify_signed_data(name="app-hmac", hash_input=text(b"bill"), hmac=mac)
assert answer["data"]["valid"], answer
print("hmac: made and verified")

digest = hashlib.sha256(b"contract").digest()
signed = transit.sign_data(
    name="app-ecdsa-p256", hash_input=text(digest), prehashed=True, marshaling_algorithm="jws"
)["data"]["signature"]
answer = transit.verify_signed_data(
    name="app-ecdsa-p256", hash_input=text(b"contract"), signature=signed, marshaling_algorithm="jws"
)
assert answer["data"]["valid"], answer

random = transit.generate_random_bytes(n_bytes=32)["data"]["random_bytes"]
assert len(base64.b64decode(random)) == 32
sums = transit.hash_data(hash_input=text(b"abc"), algorithm="sha2-256")["data"]["sum"]
assert sums == hashlib.sha256(b"abc").hexdigest()

names = transit.list_keys()["data"]["keys"]
assert len(names) == 4 + len(signing), names
message = refused(InvalidRequest, transit.delete_key, name="app-hmac")
assert "deletion is not allowed" in message, message
transit.update_key_configuration(name="app-hmac", deletion_allowed=True)
transit.delete_key(name="app-hmac")
refused(InvalidPath, transit.read_key, name="app-hmac")
refused(Forbidden, transit.create_key, name="others")
print("keys: listed, guarded, deleted")

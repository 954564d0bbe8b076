//! The broker's sections.

use super::{Section, key};

pub(super) const BROKER: Section = Section {
    name: "broker",
    repeated: false,
    help: "Encrypt, decrypt and sign over HTTP, in the Transit dialect of OpenBao and Vault.",
    keys: &[
        key(
            "listen",
            r#"["127.0.0.1:8200"]"#,
            "none",
            "Addresses to listen on; beyond loopback only with HTTPS.",
        ),
        key(
            "socket",
            r#""run/broker.sock""#,
            "none",
            "A unix socket to listen on.",
        ),
        key(
            "mode",
            r#""0660""#,
            r#""0660""#,
            "The socket's permissions, octal.",
        ),
        key(
            "certificate",
            r#""broker.pem""#,
            "no HTTPS",
            "The server's certificate and those that lead to its root, PEM.",
        ),
        key(
            "key",
            r#""broker.key""#,
            "no HTTPS",
            "The private key of the certificate, PEM.",
        ),
        key(
            "client_ca",
            r#""clients.pem""#,
            "no client certificates",
            "The roots of certificates that clients may show, PEM.",
        ),
        key(
            "store",
            r#""state/broker.sqlite""#,
            r#""broker.sqlite" in the state folder"#,
            "Names, versions and hashed tokens of clients, never key material.",
        ),
        key(
            "max_body",
            "33554432",
            "33554432",
            "The longest body of a request, in bytes.",
        ),
        key(
            "metrics",
            "true",
            "false",
            "Whether everybody may read /metrics; else those on the unix socket, and whom a policy allows metrics.",
        ),
        key(
            "dev",
            "true",
            "false",
            "For trying things out, on loopback only: everybody may do everything.",
        ),
    ],
};

pub(super) const POLICY: Section = Section {
    name: "policy",
    repeated: true,
    help: "What some clients of the broker may do with some keys; what no policy allows is refused.",
    keys: &[
        key(
            "clients",
            r#"["token:orders"]"#,
            "required",
            "Who: token:NAME, or of a client certificate subject:, dns:, uri:, email:, fingerprint:; or uid: on the unix socket; or \"*\" for everybody who has shown who he is.",
        ),
        key(
            "keys",
            r#"["orders-*"]"#,
            "required",
            "Names of keys; `*` stands for any characters. Keys that the broker has not made: pkcs11:, label:, id:.",
        ),
        key(
            "allow",
            r#"["encrypt", "decrypt"]"#,
            "required",
            "What: encrypt, decrypt, rewrap, datakey, datakey-wrapped, sign, verify, hmac, random, hash, list, read, create, config, rotate, trim, delete, csr, set-certificate, or \"*\" for all these; raw-cbc, pkcs1-decrypt and metrics (for which keys do not matter) by name only.",
        ),
    ],
};

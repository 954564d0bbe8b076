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
            "client_crl",
            r#""clients.crl""#,
            "no revocation",
            "The certificate revocation lists of client_ca, PEM or DER, a file or a list of files; read again when they change. Revoked certificates are refused, and their open connections end. Every authority that issues client certificates needs a list. If a list has expired, all its certificates are refused.",
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
            "rate",
            "500",
            "any number",
            "Requests per second of one client; past it 429. A batch is one request.",
        ),
        key(
            "burst",
            "1000",
            "as rate",
            "How many of a client's requests may come at once.",
        ),
        key(
            "in_flight",
            "1024",
            "1024",
            "Requests of one client that may run or wait at once; past it 429.",
        ),
        key(
            "max_bodies",
            "268435456",
            "268435456",
            "Bytes of the bodies of all requests together, and of their answers until clients have taken them; past it 503. Never less than the longest max_body. One client has half of it at most, or one body.",
        ),
        key(
            "stranger_rate",
            "100",
            "100",
            "Requests per second from one address (IPv6: one /64) that show nothing, or a token or JWT that is not known yet.",
        ),
        key(
            "connections",
            "10000",
            "10000",
            "Connections of all clients together; past it the one that has been idle longest is closed. Half of the files that the process may open, at most.",
        ),
        key(
            "read_timeout",
            r#""30s""#,
            r#""30s""#,
            "How long a client may take to send the head of a request, to send its body, and to take the answer: for each.",
        ),
        key(
            "idle_timeout",
            r#""75s""#,
            r#""75s""#,
            "How long a connection may stay open without a request.",
        ),
        key(
            "jwt_keys",
            r#""jwks.json""#,
            "no JWTs",
            "The public keys of an issuer of JSON Web Tokens: a JWK set. A file, which is read again when it changes; or `{ url = \"https://...\", ca = \"roots.pem\", refresh = \"15m\", max_age = \"24h\" }`: fetched that often and when a token names a key that is not known, in use for `max_age` when it cannot be; without `ca` the system's roots count.",
        ),
        key(
            "jwt_issuer",
            r#""https://login.example.com""#,
            "no JWTs",
            "What a JWT's `iss` has to be.",
        ),
        key(
            "jwt_audience",
            r#""hsmux""#,
            "no JWTs",
            "What a JWT's `aud` has to be, or to have among others.",
        ),
        key(
            "jwt_name",
            r#""sub""#,
            r#""sub""#,
            "The claim that names the client: policies call it jwt:NAME.",
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
            "For trying things out, on loopback only: everybody may do everything, but web pages (requests with an Origin header).",
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
            "Who: token:NAME, jwt:NAME, or of a client certificate subject:, dns:, uri:, email:, fingerprint:; or uid: on the unix socket; or \"*\" for everybody who has shown who he is.",
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

pub(super) const LIMIT: Section = Section {
    name: "limit",
    repeated: true,
    help: "What some clients of the broker may cost in place of what [broker] says; the first that means a client counts.",
    keys: &[
        key(
            "clients",
            r#"["token:orders"]"#,
            "required",
            "Who, as in [[policy]].",
        ),
        key("max_body", "1048576", "as in [broker]", "As in [broker]."),
        key("rate", "50", "as in [broker]", "As in [broker]."),
        key(
            "burst",
            "100",
            "as rate, or as in [broker] where rate is",
            "As in [broker].",
        ),
        key("in_flight", "16", "as in [broker]", "As in [broker]."),
    ],
};

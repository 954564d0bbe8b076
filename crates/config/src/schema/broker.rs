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
            "Addresses to listen on. Addresses other than loopback require HTTPS.",
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
            "The server's certificate, followed by its chain, PEM.",
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
            "The roots that client certificates must lead to, PEM.",
        ),
        key(
            "client_crl",
            r#""clients.crl""#,
            "no revocation",
            "The certificate revocation lists of client_ca, PEM or DER: a file or a list of files, read again when they change. Revoked certificates are refused, and their open connections end. Every authority that issues client certificates needs a list. If a list has expired, all certificates of its authority are refused.",
        ),
        key(
            "store",
            r#""state/broker.sqlite""#,
            r#""broker.sqlite" in the state folder"#,
            "The database (SQLite): names and versions of keys, and hashed tokens of clients, never key material.",
        ),
        key(
            "user",
            r#""hsmux-broker""#,
            "the daemon's",
            "The user of the broker's process, if root has started the daemon. It must be a user of its own that can read `key` and the files of clients' roots and issuers, and that owns the folder of `store`, which is to be given then. Takes effect at the start.",
        ),
        key(
            "started_by",
            r#""systemd""#,
            r#""daemon""#,
            "What starts the process: \"daemon\", or \"systemd\" by the unit `hsmux-broker`. The daemon then accepts one process at a time at a socket beside that of [admin], with `-broker` in its name: of `user`, or without `user` of root or its own user. Takes effect at the start of the daemon.",
        ),
        key(
            "max_body",
            "33554432",
            "33554432",
            "The maximum length of a request's body, in bytes.",
        ),
        key(
            "rate",
            "500",
            "any number",
            "Requests per second of one client; further ones get 429. A batch counts as one request.",
        ),
        key(
            "burst",
            "1000",
            "as rate",
            "How many requests of one client may come at once.",
        ),
        key(
            "in_flight",
            "1024",
            "1024",
            "Requests of one client that may run or wait at once; further ones get 429.",
        ),
        key(
            "max_bodies",
            "268435456",
            "268435456",
            "Bytes that the bodies of all requests may hold together, including answers until clients have read them; further requests get 503. Never less than the longest max_body. One client gets at most half of it, or one body.",
        ),
        key(
            "stranger_rate",
            "100",
            "100",
            "Requests per second from one address (IPv6: one /64) without a credential, or with a token or JWT that the broker has not seen yet.",
        ),
        key(
            "connections",
            "10000",
            "10000",
            "Connections of all clients together. When all are taken, the one that has been idle longest is closed. At most half of the files that the process may open.",
        ),
        key(
            "read_timeout",
            r#""30s""#,
            r#""30s""#,
            "How long a client may take for each of these: to send the head of a request, to send its body, and to read the answer.",
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
            "The public keys of an issuer of JSON Web Tokens, as a JWK set: a file, read again when it changes, or `{ url = \"https://...\", ca = \"roots.pem\", refresh = \"15m\", max_age = \"24h\" }`. A URL is fetched every `refresh`, and when a token names an unknown key. If it cannot be fetched, the last set is used for `max_age`. Without `ca` the system's roots count.",
        ),
        key(
            "jwt_issuer",
            r#""https://login.example.com""#,
            "no JWTs",
            "The issuer that a JWT must name (`iss`).",
        ),
        key(
            "jwt_audience",
            r#""hsmux""#,
            "no JWTs",
            "The audience that a JWT must name (`aud`), alone or among others.",
        ),
        key(
            "jwt_name",
            r#""sub""#,
            r#""sub""#,
            "The claim that holds the client's name; policies refer to it as jwt:NAME.",
        ),
        key(
            "metrics",
            "true",
            "false",
            "Let everybody read /metrics. Otherwise only clients on the unix socket, and those whom a policy allows `metrics`, may read it.",
        ),
        key(
            "access_log",
            r#""/var/log/hsmux/broker.log""#,
            r#""off""#,
            "Where a line for each request goes: \"off\", \"journal\" (standard error, as the daemon's log) or a file, which is made with mode 0640.",
        ),
        key(
            "access_log_format",
            r#""combined""#,
            r#""json""#,
            "The format of these lines: json, or combined (NCSA), which log analysers read.",
        ),
        key(
            "dev",
            "true",
            "false",
            "Development mode, on loopback only: everybody may do everything, except web pages (requests with an Origin header).",
        ),
    ],
};

pub(super) const POLICY: Section = Section {
    name: "policy",
    repeated: true,
    help: "Operations that some clients of the broker may perform with some keys. Everything else is refused.",
    keys: &[
        key(
            "clients",
            r#"["token:orders"]"#,
            "required",
            "The clients: token:NAME, jwt:NAME; subject:, dns:, uri:, email: or fingerprint: of a client certificate; uid: on the unix socket; or \"*\" for every authenticated client.",
        ),
        key(
            "keys",
            r#"["orders-*"]"#,
            "required",
            "Names of keys; `*` matches any characters. Keys that the broker has not created: pkcs11:, label:, id:.",
        ),
        key(
            "allow",
            r#"["encrypt", "decrypt"]"#,
            "required",
            "The operations: encrypt, decrypt, rewrap, datakey, datakey-wrapped, sign, verify, hmac, random, hash, list, read, create, config, rotate, trim, delete, csr, set-certificate, or \"*\" for all these. raw-cbc, pkcs1-decrypt and metrics have to be listed by name; `keys` does not matter for metrics.",
        ),
    ],
};

pub(super) const LIMIT: Section = Section {
    name: "limit",
    repeated: true,
    help: "Limits for some clients, in place of those in [broker]. The first [[limit]] that matches a client counts.",
    keys: &[
        key(
            "clients",
            r#"["token:orders"]"#,
            "required",
            "The clients, as in [[policy]].",
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

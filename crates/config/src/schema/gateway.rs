//! The gateway's sections.

use super::{Section, key};

pub(super) const GATEWAY: Section = Section {
    name: "gateway",
    repeated: false,
    help: "TLS in front of web servers and other services, with private keys in the pool.",
    keys: &[
        key(
            "listen",
            r#"["0.0.0.0:443"]"#,
            "required",
            "Addresses to listen on, for TLS.",
        ),
        key(
            "http",
            r#"["0.0.0.0:80"]"#,
            "none",
            "Addresses to listen on, for plain HTTP: ACME's challenges, and for all else the way to https, where a site has the name.",
        ),
        key(
            "acme",
            r#""/var/lib/acme""#,
            "none",
            "Who answers ACME's challenges (http-01) on `http`: a folder that an ACME client writes them into, or http://HOST:PORT, where one listens itself. A site whose certificate file is not there yet is refused to clients until it is, and does not keep the gateway from starting.",
        ),
        key(
            "metrics",
            r#""127.0.0.1:9443""#,
            "none",
            "An address for plain HTTP: /metrics, and /health, which says whether handshakes can be signed.",
        ),
        key(
            "proxy_protocol",
            "true",
            "false",
            "Whether each connection, also to `http`, begins with a PROXY header, version 1 or 2, that says who the client is; without one it is closed.",
        ),
        key(
            "proxy_from",
            r#"["10.0.0.5", "10.1.0.0/16"]"#,
            r#"["127.0.0.0/8", "::1"]"#,
            "With proxy_protocol: the addresses and networks that PROXY headers are accepted from. A connection from any other address is closed.",
        ),
        key(
            "connections",
            "50000",
            "50000",
            "Connections of all clients together; past it an idle one of the address with the most gives way, or the new one is closed at once. So it is once three quarters of the files that the process may open are taken, by them and by what is behind them.",
        ),
        key(
            "handshakes",
            "16384",
            "16384",
            "Handshakes that may be under way at once; past it the same.",
        ),
        key(
            "memory",
            "268435456",
            "67108864",
            "Bytes that requests and bodies of all clients may hold before they are passed on. Past it back ends and files are read later, requests beyond the first of a connection are answered with 503, and connections that take less than they hold in 5 s are closed.",
        ),
        key(
            "source_connections",
            "1000",
            "three quarters of connections",
            "Connections of one client address (IPv6: of one /48); past it new ones are closed. Behind a proxy the address in the PROXY header counts.",
        ),
        key(
            "source_handshakes",
            "200",
            "three quarters of handshakes",
            "The same for handshakes that are under way.",
        ),
        key(
            "source_signatures",
            "100",
            "three quarters of [pool] queue",
            "Signatures of one client address (IPv6: of one /48) that may wait. Addresses take turns; past the limit a handshake is refused.",
        ),
        key(
            "handshake_timeout",
            r#""10s""#,
            r#""10s""#,
            "How long a client may take for its handshake; what the signature takes is not counted.",
        ),
        key(
            "sign_timeout",
            r#""30s""#,
            r#""30s""#,
            "How long a handshake may wait for its signature; one that would wait longer, by what the tokens have shown lately, is refused at once.",
        ),
        key(
            "idle_timeout",
            r#""60s""#,
            r#""60s""#,
            "How long a client may take for the head of its next request (on `http`: of its one), and to take something of what it is sent.",
        ),
        key(
            "tunnel_timeout",
            r#""1h""#,
            r#""1h""#,
            "How long nothing may pass, either way, over a WebSocket or a `tcp://` connection, up to \"168h\"; then it is ended.",
        ),
        key(
            "leave_time",
            r#""5s""#,
            r#""3s""#,
            "At the end: how long new connections are still served while /health says that the gateway ends; longer than a balancer takes to notice; from \"0s\", which is enough where no balancer asks.",
        ),
        key(
            "drain_timeout",
            r#""10s""#,
            r#""10s""#,
            "At the end: how long requests that run are waited for, from \"0s\".",
        ),
        key(
            "tickets",
            "false",
            "true",
            "Whether clients are given session tickets, with which they come back without a signature of a token (RFC 8446, section 4.6.1). `false`: every connection is a full handshake.",
        ),
        key(
            "ticket_secret",
            r#""pkcs11:object=tickets""#,
            "none",
            "What the keys of session tickets are made of, the same on all hosts of a cluster, so that each resumes what another has begun: a PKCS#11 URI of a generic secret key in the pool (for HMAC-SHA256), or a file of 32 bytes or more that nobody else can read. Without it a process has keys of its own.",
        ),
        key(
            "ticket_rotation",
            r#""12h""#,
            r#""12h""#,
            "How long a key seals new tickets, from \"1m\" to \"168h\", the same on all hosts; tickets are taken as long again.",
        ),
    ],
};

pub(super) const SITE: Section = Section {
    name: "site",
    repeated: true,
    help: "What the gateway serves under some names, with which certificates.",
    keys: &[
        key(
            "names",
            r#"["example.com", "*.example.com"]"#,
            r#"["*"]"#,
            "Names that clients ask for (SNI); a first label of `*` stands for any one label, `*` alone for every name that no other site has, and for clients that name none.",
        ),
        key(
            "certificates",
            r#"["ec.pem", "rsa.pem"]"#,
            "required",
            "Each a PEM file with those that lead to the root, or a PKCS#11 URI of one in the pool; of one key type each. EC goes before RSA.",
        ),
        key(
            "keys",
            r#"["pkcs11:object=web-ec", "rsa.key"]"#,
            "the pool's key that the certificate names",
            "The private key of each certificate: a PKCS#11 URI of a key in the pool, or a PEM file.",
        ),
        key(
            "ocsp",
            r#"["ec.ocsp", "rsa.ocsp"]"#,
            "none",
            "An OCSP response for each certificate, DER, that clients are given with it. Read again when it changes.",
        ),
        key(
            "backend",
            r#""http://127.0.0.1:8080""#,
            "root",
            "Where requests go: http://HOST:PORT, https://HOST[:PORT] for a server that speaks TLS, h2c://HOST:PORT or h2://HOST[:PORT] for one of HTTP/2, without TLS and with it, or tcp://HOST:PORT for any other protocol inside the clients' TLS. A list of them, `[\"http://...\", \"http://...\"]`, takes turns; one that takes no connection, or does not answer on it, is left out for a while.",
        ),
        key(
            "backend_ca",
            r#""backends.pem""#,
            "the system's roots",
            "The roots that the certificate of an https:// or h2:// backend has to lead to, PEM; it has to be for the name in its URL.",
        ),
        key(
            "backend_check",
            r#""/health""#,
            "none",
            "A path that each backend that speaks HTTP is asked for, by GET; one that does not answer with a status from 200 to 399 is left out until it does.",
        ),
        key(
            "backend_check_interval",
            r#""5s""#,
            r#""5s""#,
            "With backend_check: how often, from \"100ms\" to \"1h\"; how long the answer may take, too, up to five seconds.",
        ),
        key(
            "root",
            r#""/var/www/html""#,
            "backend",
            "A folder of files to serve in place of a backend.",
        ),
        key(
            "acme",
            r#""/var/lib/acme-shop""#,
            "as in [gateway]",
            "Who answers ACME's challenges for the names of this site, a folder or http://HOST:PORT, in place of [gateway] acme.",
        ),
        key(
            "http2",
            "false",
            "true",
            "Whether HTTP/2 is offered beside HTTP/1.1.",
        ),
        key(
            "upgrades",
            r#"["websocket"]"#,
            r#"["websocket"]"#,
            "Protocols that a connection of HTTP/1.1 may become, by `Upgrade`, if the backend agrees. A request for any other goes on as one of HTTP/1.1. `[]`: no WebSockets either.",
        ),
        key(
            "backend_timeout",
            r#""30s""#,
            r#""30s""#,
            "How long a backend may take to begin its answer; past it 504.",
        ),
        key(
            "send_proxy",
            r#""v2""#,
            "none",
            "Begin each connection to a tcp:// backend with a PROXY header: v1 or v2.",
        ),
        key(
            "hsts",
            "63072000",
            "31536000",
            "For how many seconds browsers remember to use TLS only (Strict-Transport-Security); 0: the header is not sent.",
        ),
        key(
            "client_ca",
            r#""clients.pem""#,
            "no client certificates",
            "The roots that clients' certificates have to lead to, PEM.",
        ),
        key(
            "client_crl",
            r#""clients.crl""#,
            "no revocation",
            "The certificate revocation lists of client_ca, PEM or DER, a file or a list of files; read again when they change. Revoked certificates are refused, and their open connections end. Every authority that issues client certificates needs a list. If a list has expired, all its certificates are refused.",
        ),
        key(
            "client_certificate",
            r#""optional""#,
            r#""required""#,
            "With client_ca: required, or optional.",
        ),
        key(
            "allow_rsa_1024",
            "true",
            "false",
            "Serve a certificate with an RSA key of less than 2048 bits: for measuring only.",
        ),
    ],
};

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
            "Addresses to listen on, for plain HTTP. ACME's challenges are answered; other requests for the name of a site are redirected to HTTPS.",
        ),
        key(
            "acme",
            r#""/var/lib/acme""#,
            "none",
            "Where ACME's challenges (http-01) on `http` are answered: a folder that an ACME client writes them into, or the http://HOST:PORT where one listens itself. While the certificate file of a site is missing, its clients are refused, but the gateway starts.",
        ),
        key(
            "metrics",
            r#""127.0.0.1:9443""#,
            "none",
            "An address for plain HTTP: /metrics, and /health, which reports whether handshakes can be signed.",
        ),
        key(
            "proxy_protocol",
            "true",
            "false",
            "Expect a PROXY header, version 1 or 2, with the client's address at the start of each connection, including those to `http`. A connection without one is closed.",
        ),
        key(
            "proxy_from",
            r#"["10.0.0.5", "10.1.0.0/16"]"#,
            r#"["127.0.0.0/8", "::1"]"#,
            "With proxy_protocol: the addresses and networks from which PROXY headers are accepted. A connection from any other address is closed.",
        ),
        key(
            "connections",
            "50000",
            "50000",
            "Connections of all clients together. When all are taken, an idle one of the address with the most connections is closed, or else the new one. The same applies once client and back end connections take three quarters of the files that the process may open.",
        ),
        key(
            "handshakes",
            "16384",
            "16384",
            "Handshakes that may run at once. The limit works like that of `connections`.",
        ),
        key(
            "memory",
            "268435456",
            "67108864",
            "Bytes that requests and bodies of all clients may hold before they are passed on. Above it, reads from back ends and files are delayed, and requests beyond the first of a connection get 503. Connections that take less than they hold in 5 s are closed.",
        ),
        key(
            "source_connections",
            "1000",
            "three quarters of connections",
            "Connections of one client address (IPv6: of one /48); further ones are closed. Behind a proxy the address in the PROXY header counts.",
        ),
        key(
            "source_handshakes",
            "200",
            "three quarters of handshakes",
            "Handshakes of one client address that may run at once.",
        ),
        key(
            "source_signatures",
            "100",
            "three quarters of [pool] queue",
            "Signatures of one client address (IPv6: of one /48) that may wait; further handshakes are refused. Addresses take turns.",
        ),
        key(
            "handshake_timeout",
            r#""10s""#,
            r#""10s""#,
            "How long a client may take for its handshake, without the time of the signature.",
        ),
        key(
            "sign_timeout",
            r#""30s""#,
            r#""30s""#,
            "How long a handshake may wait for its signature. If recent operations suggest a longer wait, the handshake is refused at once.",
        ),
        key(
            "idle_timeout",
            r#""60s""#,
            r#""60s""#,
            "How long a client may take to send the head of its next request (on `http`: of its only one), and to read some of the data that is sent to it.",
        ),
        key(
            "tunnel_timeout",
            r#""1h""#,
            r#""1h""#,
            "How long a WebSocket or a `tcp://` connection may carry no data in either direction before it is closed, up to \"168h\".",
        ),
        key(
            "leave_time",
            r#""5s""#,
            r#""3s""#,
            "At shutdown: how long new connections are still served while /health reports the end. It has to be longer than a load balancer takes to notice; \"0s\" is enough without one.",
        ),
        key(
            "drain_timeout",
            r#""10s""#,
            r#""10s""#,
            "At shutdown: how long running requests may take to finish, from \"0s\".",
        ),
        key(
            "tickets",
            "false",
            "true",
            "Give clients session tickets, which let them resume without a signature of a token (RFC 8446, section 4.6.1). `false`: every connection is a full handshake.",
        ),
        key(
            "ticket_secret",
            r#""pkcs11:object=tickets""#,
            "none",
            "The secret from which the keys of session tickets are derived. If all hosts of a cluster have the same, each resumes sessions of the others. It is a PKCS#11 URI of a generic secret key in the pool (for HMAC-SHA256), or a file of 32 bytes or more that nobody else can read. Without it each process has keys of its own.",
        ),
        key(
            "ticket_rotation",
            r#""12h""#,
            r#""12h""#,
            "How long a key seals new tickets, from \"1m\" to \"168h\", the same on all hosts. Its tickets are accepted for the same time after that.",
        ),
    ],
};

pub(super) const SITE: Section = Section {
    name: "site",
    repeated: true,
    help: "Names that the gateway serves, with their certificates and back ends.",
    keys: &[
        key(
            "names",
            r#"["example.com", "*.example.com"]"#,
            r#"["*"]"#,
            "Names that clients ask for (SNI). A first label of `*` matches any one label. `*` alone matches every name that no other site has, and clients that send no name.",
        ),
        key(
            "certificates",
            r#"["ec.pem", "rsa.pem"]"#,
            "required",
            "Certificates, at most one of each key type: PEM files with their chain, or PKCS#11 URIs of certificates in the pool. EC is preferred to RSA.",
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
            "An OCSP response for each certificate, DER, which the gateway sends with it. Read again when it changes.",
        ),
        key(
            "backend",
            r#""http://127.0.0.1:8080""#,
            "root",
            "Where requests go: http://HOST:PORT; https://HOST[:PORT]; h2c://HOST:PORT for HTTP/2 without TLS; h2://HOST[:PORT] for HTTP/2 with TLS; tcp://HOST:PORT for any other protocol inside the clients' TLS. The back ends of a list, `[\"http://...\", \"http://...\"]`, take turns. One that accepts no connection, or does not answer on it, is skipped for a while.",
        ),
        key(
            "backend_ca",
            r#""backends.pem""#,
            "the system's roots",
            "The roots that the certificate of an https:// or h2:// back end must lead to, PEM. The certificate must be valid for the name in its URL.",
        ),
        key(
            "backend_check",
            r#""/health""#,
            "none",
            "A path that the gateway requests from each HTTP back end, by GET. A back end that does not answer with a status from 200 to 399 is skipped until it does.",
        ),
        key(
            "backend_check_interval",
            r#""5s""#,
            r#""5s""#,
            "With backend_check: the interval of requests, from \"100ms\" to \"1h\". It is also how long the answer may take, up to five seconds.",
        ),
        key(
            "root",
            r#""/var/www/html""#,
            "backend",
            "A folder of files to serve in place of a back end.",
        ),
        key(
            "acme",
            r#""/var/lib/acme-shop""#,
            "as in [gateway]",
            "Where ACME's challenges for the names of this site are answered, a folder or http://HOST:PORT, in place of [gateway] acme.",
        ),
        key("http2", "false", "true", "Offer HTTP/2 beside HTTP/1.1."),
        key(
            "upgrades",
            r#"["websocket"]"#,
            r#"["websocket"]"#,
            "Protocols to which an HTTP/1.1 connection may be upgraded (`Upgrade`) if the back end agrees. A request for any other protocol is passed on as plain HTTP/1.1. `[]` forbids WebSockets as well.",
        ),
        key(
            "backend_timeout",
            r#""30s""#,
            r#""30s""#,
            "How long a back end may take to begin its answer; after that the client gets 504.",
        ),
        key(
            "send_proxy",
            r#""v2""#,
            "none",
            "Start each connection to a tcp:// back end with a PROXY header: v1 or v2.",
        ),
        key(
            "hsts",
            "63072000",
            "31536000",
            "How many seconds browsers remember to use TLS only (Strict-Transport-Security). 0: the header is not sent.",
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
            "client_certificate",
            r#""optional""#,
            r#""required""#,
            "With client_ca: whether a client certificate is required or optional.",
        ),
        key(
            "allow_rsa_1024",
            "true",
            "false",
            "Serve a certificate with an RSA key of less than 2048 bits; for measurements only.",
        ),
    ],
};

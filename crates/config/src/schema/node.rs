//! The sections of a host among others.

use super::{Section, key};

pub(super) const NODE: Section = Section {
    name: "node",
    repeated: false,
    help: "This host among others: its certificate, and where it offers its tokens to them over mutual TLS (nodes.md).",
    keys: &[
        key(
            "listen",
            r#"["0.0.0.0:7443"]"#,
            "none: it only uses others",
            "Addresses to listen on, for the hosts of [[peer]]. Takes effect at the start.",
        ),
        key(
            "certificate",
            r#""node.pem""#,
            "required",
            "This host's certificate, PEM: `hsmux node enroll` makes it. Read again when it has changed.",
        ),
        key(
            "key",
            r#""node.key""#,
            "required",
            "Its private key, PEM, for the daemon's user alone (`0600`), or its group too (`0640`): refused where every user can read or change it.",
        ),
        key(
            "ca",
            r#""ca.pem""#,
            "required",
            "The certificate of the authority of all hosts, PEM: `hsmux node ca init` makes it.",
        ),
        key(
            "revoked",
            r#""revoked.pem""#,
            "none",
            "The authority's list of revoked certificates, PEM: `hsmux node revoke` writes it, and hosts that are linked hand it on and put it in place, in a folder where the daemon may write. Connections of a host that comes on it end within a second.",
        ),
        key(
            "connections",
            "4096",
            "4096",
            "Connections of all peers together; each peer has an equal share, and is refused past it. A host takes as many as its `sessions`, and two more. Takes effect at the start.",
        ),
        key(
            "user",
            r#""hsmux-node""#,
            "the daemon's",
            "Whose process serves the hosts, if root has started the daemon: a user of its own, who can read `key` and write `revoked`, and none of the daemon's files. Takes effect at the start.",
        ),
    ],
};

pub(super) const PEER: Section = Section {
    name: "peer",
    repeated: true,
    help: "A host that may use the keys of this one's tokens; nobody else may. It changes no object, and takes no key out.",
    keys: &[
        key(
            "name",
            r#""web2""#,
            "required",
            "Its name, as its certificate says it.",
        ),
        key(
            "keys",
            r#"["pkcs11:object=web"]"#,
            "all but keys of the broker",
            "Only objects that match one of these URIs are shown and served. Keys of the broker as in [daemon].",
        ),
        key(
            "broker_keys",
            "true",
            "false",
            "Trust this host's broker with the keys of the broker here: `keys` shows them as all others, and it may encrypt with them. Each of the two brokers counts the uses of a GCM key for itself.",
        ),
    ],
};

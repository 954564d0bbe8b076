//! The sections of a host among others.

use super::{Section, key};

pub(super) const NODE: Section = Section {
    name: "node",
    repeated: false,
    help: "This host as a node of a cluster: its certificate, and the addresses where it offers its tokens to other hosts over mutual TLS (nodes.md).",
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
            "This host's certificate, PEM; `hsmux node enroll` creates it. Read again when it changes.",
        ),
        key(
            "key",
            r#""node.key""#,
            "required",
            "Its private key, PEM, readable by the daemon's user only (`0600`) or also by its group (`0640`). A key that every user can read or change is refused.",
        ),
        key(
            "ca",
            r#""ca.pem""#,
            "required",
            "The certificate of the authority of all hosts, PEM; `hsmux node ca init` creates it.",
        ),
        key(
            "revoked",
            r#""revoked.pem""#,
            "none",
            "The authority's list of revoked certificates, PEM; `hsmux node revoke` writes it. Linked hosts pass it on and replace the file, in a folder that the daemon may write. Connections of a revoked host end within a second.",
        ),
        key(
            "connections",
            "4096",
            "4096",
            "Connections of all peers together. Each peer has an equal share; further connections are refused. A host uses as many as its `sessions`, and two more. Takes effect at the start.",
        ),
        key(
            "user",
            r#""hsmux-node""#,
            "the daemon's",
            "The user of the process that serves the hosts, if root has started the daemon. It must be a user of its own that can read `key` and write `revoked`, but no file of the daemon. Takes effect at the start.",
        ),
        key(
            "started_by",
            r#""systemd""#,
            r#""daemon""#,
            "What starts the process: \"daemon\", or \"systemd\" by the unit `hsmux-node`. The daemon then accepts one process at a time at a socket beside that of [admin], with `-node` in its name: of `user`, or without `user` of root or its own user. Takes effect at the start of the daemon.",
        ),
    ],
};

pub(super) const PEER: Section = Section {
    name: "peer",
    repeated: true,
    help: "A host that may use keys of this host's tokens; all others are refused. A peer cannot change objects or export keys.",
    keys: &[
        key(
            "name",
            r#""web2""#,
            "required",
            "Its name, as in its certificate.",
        ),
        key(
            "keys",
            r#"["pkcs11:object=web"]"#,
            "all but keys of the broker",
            "Show and serve only objects that match one of these URIs. For keys of the broker see [daemon].",
        ),
        key(
            "broker_keys",
            "true",
            "false",
            "Trust the peer's broker with the keys of the broker on this host: `keys` treats them like all others, and it may encrypt with them. Each of the two brokers counts the uses of a GCM key separately.",
        ),
    ],
};

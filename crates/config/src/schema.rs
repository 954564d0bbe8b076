//! Every key of the configuration file: the one table for the parser, the example and the page in docs/.

mod broker;
mod gateway;
mod node;
mod token;
mod traces;

/// A section of the file: `[pool]`, or repeated, `[[token]]`.
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Whether it may occur several times.
    pub repeated: bool,
    /// One sentence.
    pub help: &'static str,
    /// Its keys.
    pub keys: &'static [ConfigKey],
}

impl Section {
    /// Its header in the file: `[pool]`, `[[token]]`.
    pub fn title(&self) -> String {
        if self.repeated {
            format!("[[{}]]", self.name)
        } else {
            format!("[{}]", self.name)
        }
    }
}

/// A key of a section.
pub struct ConfigKey {
    /// Its name.
    pub name: &'static str,
    /// The example's value, as TOML.
    pub example: &'static str,
    /// The value without the key, as TOML or in words.
    pub default: &'static str,
    /// Whether the example shows it as a live line. Others are comments.
    pub shown: bool,
    /// One sentence.
    pub help: &'static str,
}

const fn key(
    name: &'static str,
    example: &'static str,
    default: &'static str,
    help: &'static str,
) -> ConfigKey {
    ConfigKey {
        name,
        example,
        default,
        shown: false,
        help,
    }
}

const fn shown(
    name: &'static str,
    example: &'static str,
    default: &'static str,
    help: &'static str,
) -> ConfigKey {
    ConfigKey {
        shown: true,
        ..key(name, example, default, help)
    }
}

/// The section of that name, which must be one of [`SECTIONS`].
pub fn section(name: &str) -> &'static Section {
    let found = SECTIONS.iter().find(|section| section.name == name);
    found.expect("a section of the schema")
}

/// All sections, in the order of the example.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "pool",
        repeated: false,
        help: "The one token that applications see.",
        keys: &[
            shown(
                "label",
                r#""web""#,
                "required",
                "The one token's label, at most 32 bytes.",
            ),
            shown(
                "policy",
                r#""least-loaded""#,
                r#""least-loaded""#,
                "How the pool chooses the worker for an operation: least-loaded, round-robin or first-available.",
            ),
            shown(
                "read_only",
                "false",
                "false",
                "Refuse every call that would change a token, on every listener.",
            ),
            shown(
                "queue",
                "1024",
                "1024",
                "The maximum number of waiting operations. If it is reached, the pool refuses further ones as busy.",
            ),
            shown(
                "deadline",
                r#""30s""#,
                r#""30s""#,
                "How long an operation may take, including its wait in the queue.",
            ),
            key(
                "replicas",
                "2",
                "2, or 1 if this host has one token",
                "How many members must hold a new object at once. If fewer can, it is created on none. Without this setting, a key is created on one member if no member exports it even wrapped, or if hsmux cannot check its copies.",
            ),
            key(
                "envelope_life",
                r#""72h""#,
                r#""168h""#,
                "How long the journal keeps a new key, wrapped under a member's transport key, for a member that is away. After that the member does not get the key automatically; `hsmux key list` shows what it lacks. The state folder and one PIN together reveal the keys that are kept.",
            ),
            key(
                "counted",
                r#"["pkcs11:object=notary;type=private"]"#,
                "none",
                "Keys with a use counter (SmartCard-HSM), which PKCS#11 does not show. hsmux does not prove them automatically, because each proof counts as a use. `hsmux key verify URI` proves one until the worker ends, with one use on each worker.",
            ),
            key(
                "watch",
                "true",
                "true with [broker], else false",
                "Watch the members. A process for each member finds keys that other programs add or remove, within a second. Workers that have become slow, or no longer see such keys, are replaced while they serve. With hundreds of keys a scan takes milliseconds, a few times a second (operations.md). Takes effect at the start.",
            ),
        ],
    },
    Section {
        name: "daemon",
        repeated: false,
        help: "The daemon and its first listener.",
        keys: &[
            shown(
                "socket",
                r#""run/hsmux.sock""#,
                r#""run/hsmux.sock""#,
                "The unix socket of the first listener.",
            ),
            shown(
                "mode",
                r#""0660""#,
                r#""0660""#,
                "The socket's permissions, octal.",
            ),
            key(
                "group",
                r#""hsmux""#,
                "the daemon's group",
                "The socket's group.",
            ),
            key(
                "allow_users",
                r#"["www-data", 1000]"#,
                "everybody whom the mode lets in",
                "Only these users (names or numbers), root and the daemon's own user may connect.",
            ),
            key(
                "keys",
                r#"["pkcs11:object=web"]"#,
                "all but keys of the broker",
                "Show and serve only objects that match one of these URIs. Keys of the broker are included only if a URI names one by `object` or `id`, and only for uses that cannot break the broker's guarantees (broker.md).",
            ),
            key(
                "read_only",
                "true",
                "pool.read_only",
                "Refuse every call that would change a token, on this listener.",
            ),
            key(
                "direct",
                "false",
                "true",
                "Let workers of fast tokens serve programs directly: for uses of one key, on a connection of its own. The gateway and the broker have no listener: they get such connections unless a listener has `false`.",
            ),
            shown(
                "login",
                r#""pin""#,
                r#""pin""#,
                "What C_Login needs: \"pin\" (the pool's PIN) or \"peer\" (the connecting user is enough).",
            ),
            shown(
                "pin",
                r#"{ file = "pool.pin" }"#,
                "the first member's PIN",
                "The pool's own PIN: { file = ... }, { env = ... } or { credential = ... }.",
            ),
            key(
                "state",
                r#""state""#,
                r#""state""#,
                "The folder of journals, PIN breakers and locks; it must survive a restart.",
            ),
            key(
                "worker",
                r#""/usr/bin/hsmux""#,
                "the daemon's own executable",
                "The executable to start as a worker.",
            ),
        ],
    },
    Section {
        name: "listener",
        repeated: true,
        help: "A further listener, for other applications with other rights.",
        keys: &[
            shown(
                "socket",
                r#""run/readers.sock""#,
                "required",
                "Its unix socket.",
            ),
            key("mode", r#""0660""#, r#""0660""#, "As in [daemon]."),
            key(
                "group",
                r#""hsmux""#,
                "the daemon's group",
                "As in [daemon].",
            ),
            key(
                "allow_users",
                r#"["www-data"]"#,
                "everybody whom the mode lets in",
                "As in [daemon].",
            ),
            key(
                "keys",
                r#"["pkcs11:object=web"]"#,
                "all but keys of the broker",
                "As in [daemon].",
            ),
            shown("read_only", "true", "pool.read_only", "As in [daemon]."),
            key("direct", "false", "true", "As in [daemon]."),
            key("login", r#""peer""#, r#""pin""#, "As in [daemon]."),
            key(
                "pin",
                r#"{ file = "readers.pin" }"#,
                "the first member's PIN",
                "As in [daemon].",
            ),
        ],
    },
    Section {
        name: "admin",
        repeated: false,
        help: "The listener for administration. By default only root and the daemon's user may connect.",
        keys: &[
            key(
                "socket",
                r#""run/hsmux-admin.sock""#,
                "beside the first listener's",
                "The unix socket.",
            ),
            key(
                "mode",
                r#""0600""#,
                r#""0600""#,
                "The socket's permissions, octal.",
            ),
            key(
                "group",
                r#""hsmux-admin""#,
                "the daemon's group",
                "The socket's group.",
            ),
            key(
                "allow_users",
                r#"["operator"]"#,
                "none",
                "Users who may administer besides root and the daemon's user. They also need access to the socket: `mode = \"0660\"` and a `group` that includes them and the daemon's user.",
            ),
        ],
    },
    Section {
        name: "module",
        repeated: false,
        help: "How libhsmux_pkcs11.so reaches the pool.",
        keys: &[
            key(
                "mode",
                r#""daemon""#,
                r#""daemon""#,
                "\"daemon\": over the socket; \"embedded\": the pool runs within the application. Embedded members with `isolation = \"process\"` need threads: if the application forbids them (CKF_LIBRARY_CANT_CREATE_OS_THREADS), C_Initialize returns CKR_NEED_TO_CREATE_THREADS.",
            ),
            key(
                "socket",
                r#""run/readers.sock""#,
                "the first listener's",
                "The socket that the module connects to.",
            ),
        ],
    },
    Section {
        name: "audit",
        repeated: false,
        help: "The audit trail: a JSON line for each administrative act and each change of a token's objects, chained and signed (audit.md). An embedded pool (`[module] mode`) keeps no trail.",
        keys: &[
            key(
                "file",
                r#""state/audit.log""#,
                r#""audit.log" in the state folder"#,
                "The file of the trail; the daemon only appends to it. Its mode is 0600. `hsmux audit` reads the file itself, and therefore works only for root and the daemon's user.",
            ),
            key(
                "keys",
                "true",
                "false",
                "Record each use of a key as well: by programs, other hosts, the broker's clients and the gateway.",
            ),
            key(
                "on_failure",
                r#""stop""#,
                r#""stop""#,
                "How to proceed when the trail cannot be written (a full disk). \"stop\": refuse administrative acts, changes of token objects and, with `keys = true`, uses of keys, until it can be written (CKR_DEVICE_MEMORY, 503). \"continue\": proceed, and count lost lines in the trail and in `hsmux status`.",
            ),
            key(
                "checkpoint",
                r#""1m""#,
                r#""1m""#,
                "How long lines may stay without a signed checkpoint. A checkpoint is also written after 10,000 lines.",
            ),
        ],
    },
    traces::TRACES,
    broker::BROKER,
    broker::POLICY,
    broker::LIMIT,
    gateway::GATEWAY,
    gateway::SITE,
    node::NODE,
    node::PEER,
    token::TOKEN,
];

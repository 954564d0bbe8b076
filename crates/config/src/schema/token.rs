//! The section of a member.

use super::{Section, key, shown};

pub(super) const TOKEN: Section = Section {
    name: "token",
    repeated: true,
    help: "A member: one token of a vendor's PKCS#11 module or, with `node`, another host (nodes.md).",
    keys: &[
        shown(
            "module",
            r#""/usr/lib/softhsm/libsofthsm2.so""#,
            "required",
            "The vendor's PKCS#11 module.",
        ),
        shown(
            "uri",
            r#""pkcs11:token=hsm1""#,
            "required",
            "The token of the module, by token=, serial=, slot-id=, model= or manufacturer=.",
        ),
        shown(
            "pin",
            r#"{ file = "hsm1.pin" }"#,
            "no login",
            "The user PIN: { file = ... }, { env = ... } or { credential = ... }.",
        ),
        shown(
            "isolation",
            r#""process""#,
            r#""process""#,
            "\"process\": in a worker process; \"thread\": within the program, for modules that are fast and thread-safe. \"thread\" counts only with `[module] mode = \"embedded\"`: the daemon always uses worker processes.",
        ),
        key(
            "node",
            r#""web2.example:7443""#,
            "none",
            "Another host in place of module, uri and pin. Its [node] listens at this address, and has a [[peer]] for this host. `name` is the name in its certificate.",
        ),
        key(
            "sessions",
            "4",
            "4; 8 of SoftHSM; 64 of a node",
            "Operations that one worker runs at once, each in a session of the token. A worker opens further sessions: one for session objects, one for copies of keys in use, up to four for AES-CBC of many callers, and up to four for prepared signatures. For a node: the maximum number of operations at once, up to what its tokens run.",
        ),
        key(
            "workers",
            "1",
            "1",
            "Worker processes for this token; fast tokens can use several.",
        ),
        key(
            "weight",
            "1",
            "1",
            "Its share of the work, as far as speed alone does not decide.",
        ),
        key(
            "timeout",
            r#""10s""#,
            "10s; 60s of a node",
            "How long one operation may take on the token, without its wait for other operations there. If a token gives no answer for this time, its worker is ended, or the connection to the node.",
        ),
        key(
            "name",
            r#""hsm1""#,
            "the URI's token, serial or slot-id",
            "The member's name in commands and logs. For a node: its name, by default the host in `node`.",
        ),
        key(
            "env",
            r#"{ SOFTHSM2_CONF = "softhsm2.conf" }"#,
            "none",
            "Environment variables for the worker.",
        ),
        key(
            "sandbox",
            r#""auto""#,
            r#""auto""#,
            "The sandbox of the module within its worker. \"file\" (SoftHSM) and \"pcsc\" (OpenSC): no network, no other program, and only files of the system, of the module and in `folders`. \"network\": no other program. \"none\": anything. \"auto\" recognises SoftHSM, OpenSC and sc-hsm-embedded by the module's file name, and is \"none\" for others (operations.md).",
        ),
        key(
            "folders",
            r#"["/var/lib/vendor"]"#,
            "none",
            "Files and folders that the module may write in a sandbox \"file\" or \"pcsc\".",
        ),
        key(
            "user",
            r#""hsm1""#,
            "the daemon's",
            "The user of the workers, by name or number, if root has started the daemon. It needs access to the module's resources: the token folder, pcscd (operations.md).",
        ),
        key(
            "watch",
            "false",
            "as [pool] watch; false for a card",
            "Watch this member. true also watches a card (a token that can be removed from its slot), with a second login.",
        ),
        key(
            "trusted",
            "false",
            "false",
            "Let secret keys of this member serve without a comparison to a member listed before it that may hold them and has never been present. This also applies to a key that differs from the one compared before. By default a secret key is compared with a serving replica, else with the recorded answers. Without both, the first member in the file that holds it is trusted.",
        ),
        key(
            "copies",
            "false",
            "true for SoftHSM, else false",
            "Copy keys in use within the token, as session objects of the worker (C_CopyObject). The originals are checked one to ten times a second. This helps with tokens that read files at each use of a key. Use false for a key whose uses the token counts or limits.",
        ),
    ],
};

//! The section of a member.

use super::{Section, key, shown};

pub(super) const TOKEN: Section = Section {
    name: "token",
    repeated: true,
    help: "A member: one token of a vendor's PKCS#11 module, or with `node` another host (nodes.md).",
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
            "Which of its tokens: token=, serial=, slot-id=, model=, manufacturer=.",
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
            "\"process\": a worker process; \"thread\": within the daemon, for modules that are fast and thread-safe; one that becomes slow or blind by keys that others change is loaded once more beside itself: SoftHSM's module, or any with `watch = true`.",
        ),
        key(
            "node",
            r#""web2.example:7443""#,
            "none",
            "Another host in place of module, uri and pin: its [node] listens there, and has a [[peer]] for this one. `name` is what its certificate says.",
        ),
        key(
            "sessions",
            "4",
            "4; 64 of a node",
            "Operations that one worker runs at once, each in a session of the token; one session more is for session objects, one for copies of keys in use, up to four are for AES-CBC of many callers and as many for signatures that are expected. Of a node: at most as many operations as its tokens run.",
        ),
        key(
            "workers",
            "1",
            "1",
            "Worker processes for this token; a fast token may have several.",
        ),
        key(
            "weight",
            "1",
            "1",
            "Its share of the work where speed alone does not decide.",
        ),
        key(
            "timeout",
            r#""10s""#,
            "10s; 60s of a node",
            "How long one operation may take on the token, without what it waits there for others: when a token has answered nothing for so long its worker is ended, or the connection of a node.",
        ),
        key(
            "name",
            r#""hsm1""#,
            "the URI's token, serial or slot-id",
            "The member's name in commands and logs; of a node its name, by default the host in `node`.",
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
            "What the module may do to the system, from within its worker. \"file\": for SoftHSM, and \"pcsc\": for OpenSC: no network, no other program, and no file but the system's, the module's own and `folders`; \"network\": no other program; \"none\": anything. \"auto\" knows SoftHSM, OpenSC and sc-hsm-embedded by the name of the module's file, and is \"none\" for others (operations.md).",
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
            "User of the workers, by name or number, if root has started the daemon. It needs access to what the module needs: the token folder, pcscd (operations.md).",
        ),
        key(
            "watch",
            "false",
            "as [pool] watch; false for a card",
            "Watch this member; true watches a card, too (a token whose slot says that it can leave it), with a second login.",
        ),
        key(
            "trusted",
            "false",
            "false",
            "Its secret keys serve though a member before it, which may hold them, has never been there to compare them with, or though a key is another one than was compared before. Of a secret key the first member in this file that holds it is believed, and what the others hold is compared with that.",
        ),
        key(
            "copies",
            "false",
            "true for SoftHSM, else false",
            "Keys that are used often are copied within the token, as session objects of the worker (C_CopyObject), and looked at again one to ten times a second: for tokens that look at files with each use of a key. false also for a key whose uses the token counts or limits.",
        ),
    ],
};

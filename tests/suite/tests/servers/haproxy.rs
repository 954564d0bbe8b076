//! Debian's haproxy takes keys from files only.

use std::fs;

use hsmux_suite::{Rig, Setup};

/// If this fails, haproxy may have learnt it, and the guide has to say how.
#[test]
fn haproxy_takes_no_key_through_an_engine() {
    let rig = Rig::prepare(Setup::Daemon, 0);
    rig.run("haproxy").arg("-vv").ok().says("-ENGINE");
    let refused = [
        ("global\n    ssl-engine pkcs11\n", "ssl-engine"),
        (
            "listen tls\n    bind 127.0.0.1:8443 ssl crt pkcs11:object=ec;type=private\n",
            "pkcs11:object=ec",
        ),
    ];
    for (configuration, reason) in refused {
        fs::write(rig.path("haproxy.cfg"), configuration).unwrap();
        let check = rig.run("haproxy").args("-c -f haproxy.cfg");
        check.fails().says(reason);
    }
}

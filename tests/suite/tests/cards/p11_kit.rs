//! Programs that make OpenSC's module known to others.

use std::fs;

use hsmux_suite::{Cards, OPENSC};

/// Firefox, Chrome and their kind keep their modules in an NSS database.
#[test]
fn the_module_is_registered_with_browsers() {
    let cards = Cards::start(1);
    fs::create_dir_all(cards.path(".pki/nssdb")).unwrap();
    let database = format!("sql:{}", cards.path(".pki/nssdb").display());
    cards
        .run("certutil")
        .args("-N --empty-password -d")
        .arg(&database)
        .ok();
    cards
        .run("pkcs11-register")
        .args(&format!(
            "--module {OPENSC} --skip-firefox --skip-thunderbird --skip-seamonkey"
        ))
        .ok();
    cards
        .run("modutil")
        .args("-list -dbdir")
        .arg(&database)
        .ok()
        .says("opensc-pkcs11.so")
        .says("card0");
}

/// Of root p11-kit reads no configuration of its own: it gets another view of the system's.
const BIND: &str = "mount --bind modules /usr/share/p11-kit/modules && exec p11-kit list-modules";

#[test]
fn p11_kit_shows_the_cards() {
    let cards = Cards::start(2);
    fs::create_dir(cards.path("modules")).unwrap();
    fs::write(
        cards.path("modules/opensc.module"),
        format!("module: {OPENSC}\n"),
    )
    .unwrap();
    cards
        .run("unshare")
        .args("--mount sh -c")
        .arg(BIND)
        .ok()
        .says("token: card0")
        .says("token: card1")
        .says("manufacturer: www.CardContact.de");
}

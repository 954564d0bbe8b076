//! Programs with an older module loaded, and a newer daemon.

use hsmux_suite::{Rig, Setup};
use hsmux_token::Class;
use hsmux_wire::{Call, OLDEST, VERSION};

use crate::raw::{client, log_in, named, sign, soon};

/// The client of the module, speaking the version before.
#[test]
fn a_module_of_the_previous_version_goes_on() {
    let rig = Rig::new(Setup::Daemon);
    let client = client(&rig, OLDEST..=VERSION - 1);
    log_in(&rig, &client);
    let key = named(&client, Class::PRIVATE_KEY, "ec").expect("the key ec");
    let signature = client.execute(&sign(key), soon()).unwrap();
    assert_eq!(signature.into_bytes().unwrap().len(), 64);
    assert_eq!(client.welcome().unwrap().version, VERSION - 1);
}

#[test]
fn a_module_of_another_age_is_told_so() {
    let rig = Rig::new(Setup::Daemon);
    let client = client(&rig, VERSION + 1..=VERSION + 2);
    let refused = client
        .call(Call::Info, soon())
        .expect_err("no common version");
    assert!(refused.to_string().contains("upgrade"), "{refused}");
}

use hsmux_suite::{Rig, on_every_setup, source};

on_every_setup![signs_with_pykcs11];

fn signs_with_pykcs11(rig: &Rig) {
    rig.run("/usr/bin/python3")
        .arg(source().join("tests/suite/programs/sign.py"))
        .arg(rig.module())
        .arg(rig.label())
        .arg(rig.pin())
        .ok()
        .says("rsa: valid")
        .says("ec: valid")
        .says("aes: there and back");
}

use std::fs;

use hsmux_suite::{Rig, on_every_setup, source};

on_every_setup![lists_a_key_store_and_signs_in_ten_threads];

fn lists_a_key_store_and_signs_in_ten_threads(rig: &Rig) {
    let config = format!(
        "name = tested\nlibrary = {}\nslotListIndex = 0\n",
        rig.module().display()
    );
    fs::write(rig.path("sun.cfg"), config).unwrap();
    fs::write(rig.path("pin"), rig.pin()).unwrap();
    rig.run("java")
        .arg("-XX:TieredStopAtLevel=1")
        .arg(source().join("tests/suite/programs/SignWithThreads.java"))
        .args("sun.cfg pin")
        .ok()
        .says("entries: [ec, rsa]")
        .says("500 signatures by 10 threads, all valid");
}

use std::fs;

use hsmux_suite::{Rig, Run, on_every_setup};

on_every_setup![lists_certificates_and_keys, makes_a_certificate];

/// NSS with a new database that knows the module.
fn database(rig: &Rig) {
    fs::create_dir(rig.path("nss")).unwrap();
    fs::write(rig.path("pin"), rig.pin()).unwrap();
    certutil(rig, "-N --empty-password").ok();
    rig.run("modutil")
        .args("-dbdir sql:nss -force -add tested -libfile")
        .arg(rig.module())
        .ok()
        .says("added to database");
    rig.run("modutil")
        .args("-dbdir sql:nss -list tested")
        .ok()
        .says(rig.label());
}

fn certutil(rig: &Rig, line: &str) -> Run {
    rig.run("certutil").args(line).args("-d sql:nss")
}

fn lists_certificates_and_keys(rig: &Rig) {
    database(rig);
    let label = rig.label();
    certutil(rig, &format!("-L -h {label} -f pin"))
        .ok()
        .says(&format!("{label}:rsa"))
        .says(&format!("{label}:ec"));
    certutil(rig, &format!("-K -h {label} -f pin"))
        .ok()
        .says("< 0>")
        .says("< 1>");
}

fn makes_a_certificate(rig: &Rig) {
    database(rig);
    let label = rig.label();
    fs::write(rig.path("noise"), [7; 64]).unwrap();
    certutil(
        rig,
        &format!("-S -h {label} -f pin -n made -s CN=made -x -t ,, -k ec -q nistp256 -z noise"),
    )
    .ok();
    certutil(rig, &format!("-L -h {label} -f pin -n {label}:made"))
        .ok()
        .says("CN=made");
}

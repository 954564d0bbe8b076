use std::fs;

use hsmux_suite::{Rig, Run, on_every_setup};

on_every_setup![
    embedded as Threadless:
    lists_the_token,
    lists_keys,
    test_signs,
    generates_and_deletes
];

fn p11tool(rig: &Rig, line: &str) -> Run {
    rig.run("p11tool")
        .arg("--provider")
        .arg(rig.module())
        .args(line)
        .env("GNUTLS_PIN", rig.pin())
}

fn token(rig: &Rig) -> String {
    format!("pkcs11:token={}", rig.label())
}

fn lists_the_token(rig: &Rig) {
    p11tool(rig, "--list-token-urls")
        .ok()
        .says(&format!("token={}", rig.label()));
}

fn lists_keys(rig: &Rig) {
    let list = p11tool(rig, "--login --list-all").arg(token(rig)).ok();
    list.says("object=rsa;type=private")
        .says("object=ec;type=private")
        .says("object=ec;type=cert")
        .says("object=aes;type=secret-key");
}

fn test_signs(rig: &Rig) {
    for key in ["rsa", "ec"] {
        p11tool(rig, "--login --test-sign")
            .arg(format!("{};object={key};type=private", token(rig)))
            .ok()
            .says("Verifying against public key in the token... ok");
    }
}

fn generates_and_deletes(rig: &Rig) {
    let uri = format!("{};object=made", token(rig));
    p11tool(
        rig,
        "--login --generate-privkey ecdsa --curve secp256r1 --label made",
    )
    .arg("--outfile")
    .arg(rig.path("made.pub"))
    .arg(token(rig))
    .ok();
    let public = fs::read_to_string(rig.path("made.pub")).unwrap();
    assert!(public.contains("BEGIN PUBLIC KEY"), "{public}");
    p11tool(rig, "--login --test-sign")
        .arg(format!("{uri};type=private"))
        .ok();
    p11tool(rig, "--login --batch --delete").arg(&uri).ok();
    p11tool(rig, "--login --list-all")
        .arg(token(rig))
        .ok()
        .never_says("object=made");
}

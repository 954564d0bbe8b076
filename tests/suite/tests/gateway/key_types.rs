//! Types and sizes of keys, in the pool and in files.

use std::path::Path;

use hsmux_suite::{Rig, Run, SoftHsm, write_secret};

use crate::rig::{ASK, FOLDER, Gateway};

fn openssl(folder: &Path, line: &str) {
    Run::new("openssl").dir(folder).args(line).limit(120).ok();
}

/// A key, `<name>.key`, and its certificate, `<name>.pem`.
fn make(rig: &Rig, name: &str, kind: &str) {
    openssl(&rig.path(""), &format!("genpkey {kind} -out {name}.key"));
    certificate(rig, name);
}

fn certificate(rig: &Rig, name: &str) {
    openssl(
        &rig.path(""),
        &format!("req -x509 -new -key {name}.key -days 30 -subj /CN={name} -out {name}.pem"),
    );
}

/// Puts a key into both tokens of the rig.
fn import(rig: &Rig, name: &str, id: &str) {
    for label in ["hsm1", "hsm2"] {
        let pin = SoftHsm::pin(label);
        let line = format!("--token {label} --pin {pin} --label {name} --id {id} --import");
        let key = rig.path(&format!("{name}.key"));
        rig.run("softhsm2-util").args(&line).arg(key).ok();
    }
}

const KINDS: [(&str, &str, &str, &str); 4] = [
    (
        "rsa1024",
        "-algorithm RSA -pkeyopt rsa_keygen_bits:1024",
        "11",
        "rsa_pss_rsae_sha256",
    ),
    (
        "rsa3072",
        "-algorithm RSA -pkeyopt rsa_keygen_bits:3072",
        "13",
        "rsa_pss_rsae_sha256",
    ),
    (
        "rsa4096",
        "-algorithm RSA -pkeyopt rsa_keygen_bits:4096",
        "14",
        "rsa_pss_rsae_sha256",
    ),
    (
        "p384",
        "-algorithm EC -pkeyopt ec_paramgen_curve:P-384",
        "15",
        "ecdsa_secp384r1_sha384",
    ),
];

#[test]
fn keys_of_every_type_are_served_from_the_pool() {
    let rig = Gateway::prepare();
    let site = |(name, kind, id, _): (&str, &str, &str, &str)| {
        make(&rig, name, kind);
        import(&rig, name, id);
        let small = name == "rsa1024";
        format!(
            "[[site]]\nnames = [\"{name}.test\"]\ncertificates = [\"{name}.pem\"]\n\
             allow_rsa_1024 = {small}\n{FOLDER}\n"
        )
    };
    let sites: Vec<_> = KINDS.into_iter().map(site).collect();
    let gateway = Gateway::start(rig, "", &sites.concat());
    for (name, .., algorithm) in KINDS {
        let exact = format!("hsmux_gateway_signatures_total{{algorithm=\"{algorithm}\"}}");
        // In TLS 1.2 the algorithm does not tell the curve.
        for (version, series) in [
            ("-tls1_3", &*exact),
            ("-tls1_2", "hsmux_gateway_signatures_total"),
        ] {
            let before = gateway.metric(series);
            let options = format!("{version} -servername {name}.test -cipher ALL@SECLEVEL=0");
            let ask = ASK.replace("a.test", &format!("{name}.test"));
            let said = gateway.s_client(&options, &ask);
            let served = said.contains(&format!("CN = {name}")) && said.contains("a page");
            assert!(served, "{name} {version}: {said}");
            assert_eq!(gateway.metric(series) - before, 1, "{name} {version}");
        }
    }
}

#[test]
fn a_short_rsa_key_is_refused_unless_allowed() {
    let mut rig = Gateway::prepare();
    make(&rig, "rsa1024", KINDS[0].1);
    let site =
        format!("[[site]]\ncertificates = [\"rsa1024.pem\"]\nkeys = [\"rsa1024.key\"]\n{FOLDER}");
    crate::rig::configure(&mut rig, "", &site);
    rig.write_config();
    let said = rig.hsmux("gateway").fails();
    said.says("rsa1024.pem").says("allow_rsa_1024");
}

/// For the published comparison. Generating such a key may take minutes, so it is a file. It protects nothing.
#[test]
fn a_long_rsa_key_is_served_from_a_file() {
    let rig = Gateway::prepare();
    write_secret(&rig.path("rsa8192.key"), include_str!("rsa8192.key"));
    certificate(&rig, "rsa8192");
    let site =
        format!("[[site]]\ncertificates = [\"rsa8192.pem\"]\nkeys = [\"rsa8192.key\"]\n{FOLDER}");
    let gateway = Gateway::start(rig, "", &site);
    let said = gateway.s_client("-tls1_3", ASK);
    assert!(said.contains("a page"), "{said}");
    assert!(said.contains("8192 bit"), "{said}");
}

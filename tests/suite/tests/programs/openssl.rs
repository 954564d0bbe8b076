use std::fs;

use hsmux_suite::{Process, Rig, Run, free_port, on_every_setup};

on_every_setup![makes_a_certificate, signs_a_digest, serves_tls];

/// OpenSSL 3 with the engine of libp11.
fn openssl(rig: &Rig, line: &str) -> Run {
    rig.run("openssl")
        .args(line)
        .env("PKCS11_MODULE_PATH", rig.module())
}

fn key(rig: &Rig, label: &str) -> String {
    let (token, pin) = (rig.label(), rig.pin());
    format!("pkcs11:token={token};object={label};type=private;pin-value={pin}")
}

fn makes_a_certificate(rig: &Rig) {
    for label in ["rsa", "ec"] {
        openssl(
            rig,
            "req -engine pkcs11 -keyform engine -new -x509 -days 1 -subj /CN=made",
        )
        .args("-out made.pem -key")
        .arg(key(rig, label))
        .ok();
        openssl(rig, "verify -CAfile made.pem made.pem")
            .ok()
            .says("made.pem: OK");
    }
}

fn signs_a_digest(rig: &Rig) {
    fs::write(rig.path("data"), "what is signed").unwrap();
    for label in ["rsa", "ec"] {
        openssl(
            rig,
            "dgst -engine pkcs11 -keyform engine -sha256 -out signature -sign",
        )
        .arg(key(rig, label))
        .arg("data")
        .ok();
        openssl(rig, "dgst -sha256 -signature signature -verify")
            .arg(rig.keys.public(label))
            .arg("data")
            .ok()
            .says("Verified OK");
    }
}

fn serves_tls(rig: &Rig) {
    for (label, version) in [("rsa", "tls1_2"), ("rsa", "tls1_3"), ("ec", "tls1_3")] {
        let port = free_port();
        let server = openssl(
            rig,
            "s_server -engine pkcs11 -keyform engine -certform DER -www",
        )
        .args(&format!("-accept 127.0.0.1:{port} -cert"))
        .arg(rig.keys.certificate(label))
        .arg("-key")
        .arg(key(rig, label));
        // A log of its own: what an earlier server has said is not this one's word.
        let name = format!("s_server-{label}-{version}");
        let mut server = Process::start(&name, &rig.path(""), server);
        server.wait_for("ACCEPT");
        for _ in 0..5 {
            openssl(
                rig,
                &format!("s_client -connect 127.0.0.1:{port} -{version} -verify_return_error"),
            )
            .args("-CAfile")
            .arg(pem(rig, label))
            .input("GET / HTTP/1.0\r\n\r\n")
            .ok()
            .says("Verification: OK");
        }
        server.kill();
    }
}

fn pem(rig: &Rig, label: &str) -> std::path::PathBuf {
    let pem = rig.path("certificate.pem");
    openssl(rig, "x509 -inform DER -out certificate.pem -in")
        .arg(rig.keys.certificate(label))
        .ok();
    pem
}

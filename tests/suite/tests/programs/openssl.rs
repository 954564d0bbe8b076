use std::fs;

use hsmux_suite::{PATIENCE, Process, Rig, Run, on_every_setup, until};

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
        let server = openssl(
            rig,
            "s_server -engine pkcs11 -keyform engine -certform DER -www",
        )
        .args("-accept 127.0.0.1:0 -cert")
        .arg(rig.keys.certificate(label))
        .arg("-key")
        .arg(key(rig, label));
        // A log of its own: what an earlier server has said is not this one's word.
        let name = format!("s_server-{label}-{version}");
        let mut server = Process::start(&name, &rig.path(""), server);
        // Which port the system has given it.
        server.wait_for("ACCEPT 127.0.0.1:");
        let port = port(&server);
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

/// The port of a server that has said the beginning of `ACCEPT 127.0.0.1:<port>`.
fn port(server: &Process) -> u16 {
    until("the end of the line", PATIENCE, || {
        let log = server.log();
        let (_, after) = log.split_once("ACCEPT 127.0.0.1:")?;
        after.split_once('\n')?.0.trim().parse().ok()
    })
}

fn pem(rig: &Rig, label: &str) -> std::path::PathBuf {
    let pem = rig.path("certificate.pem");
    openssl(rig, "x509 -inform DER -out certificate.pem -in")
        .arg(rig.keys.certificate(label))
        .ok();
    pem
}

//! Groups of the key agreement. One of them is post-quantum.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use boring::ssl::{
    SslConnector, SslMethod, SslSignatureAlgorithm, SslStream, SslVerifyMode, SslVersion,
};
use hsmux_suite::{PATIENCE, Run};

use crate::backends::{backend, in_front_of};
use crate::rig::{ASK, Gateway};
use crate::tls_backends::{answers, believing, certify};

/// Post-quantum and classical together (draft-ietf-tls-ecdhe-mlkem).
const HYBRID: &str = "X25519MLKEM768";

/// Its number in the registry of IANA.
const HYBRID_NUMBER: u16 = 0x11ec;

/// A client of one version that offers these groups, after its handshake and its request.
fn served(gateway: &Gateway, version: SslVersion, groups: &str) -> SslStream<TcpStream> {
    let connector = || {
        let mut connector = SslConnector::builder(SslMethod::tls())?;
        connector.set_verify(SslVerifyMode::NONE);
        connector.set_min_proto_version(Some(version))?;
        connector.set_max_proto_version(Some(version))?;
        connector.set_curves_list(groups)?;
        connector.build().configure()
    };
    let config = connector().expect("a context").verify_hostname(false);
    let stream = TcpStream::connect(&gateway.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let stream = config.connect("a.test", stream);
    let mut stream = stream.unwrap_or_else(|error| panic!("{groups}: {error}"));
    stream.write_all(ASK.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("a page"), "{groups}: {answer}");
    stream
}

/// The signature is as classical as before, by a key in the pool.
#[test]
fn a_client_with_the_hybrid_group_alone_is_served() {
    let gateway = Gateway::with_folder();
    let stream = served(&gateway, SslVersion::TLS1_3, HYBRID);
    let ssl = stream.ssl();
    assert_eq!(ssl.curve(), Some(HYBRID_NUMBER));
    assert_eq!(ssl.curve_name(), Some(HYBRID));
    let signature = ssl.peer_signature_algorithm();
    assert_eq!(
        signature,
        Some(SslSignatureAlgorithm::ECDSA_SECP256R1_SHA256)
    );
    let signed = "hsmux_gateway_signatures_total{algorithm=\"ecdsa_secp256r1_sha256\"}";
    assert_eq!(gateway.metric(signed), 1);
}

/// Clients of TLS 1.2 without P-256 cannot use the EC certificate, and get the other one.
#[test]
fn clients_with_one_classical_group_are_served() {
    let gateway = Gateway::with_folder();
    for version in [SslVersion::TLS1_3, SslVersion::TLS1_2] {
        for group in ["X25519", "P-256", "P-384"] {
            let stream = served(&gateway, version, group);
            assert_eq!(stream.ssl().curve_name(), Some(group), "{version:?}");
        }
    }
    let said = gateway.s_client("-groups P-521", "");
    assert!(said.contains("alert handshake failure"), "{said}");
}

/// The gateway's order counts. TLS 1.2 has no hybrid groups.
#[test]
fn the_hybrid_group_is_preferred() {
    let gateway = Gateway::with_folder();
    for (version, group) in [(SslVersion::TLS1_3, HYBRID), (SslVersion::TLS1_2, "X25519")] {
        let groups = format!("P-256:X25519:{HYBRID}");
        let stream = served(&gateway, version, &groups);
        assert_eq!(stream.ssl().curve_name(), Some(group), "{version:?}");
    }
}

#[test]
fn a_browser_agrees_on_the_hybrid_group() {
    let gateway = Gateway::with_folder();
    let log = gateway.rig.path("net-log.json");
    Run::new("chromium")
        .env("HOME", gateway.rig.path(""))
        .args("--headless --no-sandbox --disable-gpu --ignore-certificate-errors")
        .arg(format!("--log-net-log={}", log.display()))
        .arg(format!("--host-resolver-rules=MAP * {}", gateway.address))
        .args("--dump-dom https://a.test/page.txt")
        .limit(300)
        .ok()
        .says("a page");
    let log = fs::read_to_string(log).expect("the browser's log");
    let group = format!("\"key_exchange_group\":{HYBRID_NUMBER}");
    assert!(log.contains(&group), "{log}");
}

#[test]
fn back_ends_are_offered_the_hybrid_group() {
    let folder = tempfile::tempdir().expect("a folder");
    certify(folder.path(), "IP:127.0.0.1");
    let group = |ssl: &boring::ssl::SslRef| format!("group {:?}.", ssl.curve_name());
    let address = backend(answers(folder.path(), group));
    let roots = believing(&folder.path().join("cert.pem"));
    let gateway = in_front_of("https", &address, &roots);
    let said = gateway.curl("a.test", "/", "");
    said.says(" 200")
        .says(&format!("group {:?}.", Some(HYBRID)));
}

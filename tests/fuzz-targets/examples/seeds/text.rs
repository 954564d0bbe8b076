//! URIs, paths and bodies of requests, hosts.

use super::write;

pub fn text() {
    let uris = [
        "pkcs11:token=hsm1;object=web;type=private;id=%01%02",
        "pkcs11:model=SoftHSM%20v2;manufacturer=A;serial=12;library-version=2.6;slot-id=3",
        "pkcs11:library-manufacturer=a;library-description=b;slot-manufacturer=c;slot-description=d",
        "PKCS11:?pin-source=file:/etc/pin&module-name=softhsm2&module-path=/usr/lib/x.so",
        "pkcs11:object=a%3bb%2Fc?pin-value=123456",
        "pkcs11:type=secret-key;type=cert",
        "pkcs11:",
        "pkcs11:object=%ff",
    ];
    for (at, uri) in uris.iter().enumerate() {
        write("uris", &format!("uri-{at}"), uri);
    }
    let vault = [
        "vault:v1:YWJj",
        "vault:v12:YWJjZA==",
        "vault:v4294967295:",
        "vault:v0:YQ==",
        "orders-2026",
        "label:web",
        "id:0102ff",
        "pkcs11:object=web?pin-value=1234",
    ];
    for (at, one) in vault.iter().enumerate() {
        write("vault", &format!("text-{at}"), one);
    }
    write(
        "vault",
        "signature",
        [0x30, 10, 2, 3, 0, 0x80, 1, 2, 3, 0x7f, 2, 3],
    );
    let batches = [
        r#"{"plaintext":"YWJj","associated_data":"YQ==","key_version":"1"}"#,
        r#"{"batch_input":[{"plaintext":"YQ==","reference":"r"},{"ciphertext":"vault:v1:YWJj"}],"partial_failure_response_code":207}"#,
        r#"{"batch_input":[{"input":"YQ==","prehashed":true,"salt_length":"hash"},{}],"hash_algorithm":"sha2-384"}"#,
        r#"{"batch_input":[{"input":"YQ==","signature":"vault:v1:YQ=="}],"marshaling_algorithm":"jws","x":{"y":[1,null]}}"#,
        r#"{"key_version":null,"batch_input":null}"#,
        r#"{"batch_input":[]}"#,
    ];
    for (at, one) in batches.iter().enumerate() {
        write("batches", &format!("body-{at}"), one);
    }
    let hosts = [
        "a.example:443\n",
        "\na.example",
        "https://a.example/path\na.example",
        "\nb.example:\u{e9}",
        "a.example\na.example\nb.example",
        "\n[2001:db8::1]:443",
        "b.example:443:",
        "\nb.example:abc",
        "\nA.EXAMPLE.:0443",
        "user@a.example",
    ];
    for (at, one) in hosts.iter().enumerate() {
        write("hosts", &format!("host-{at}"), one);
    }
    for (at, client) in ["1.2.3.4:5", "[2001:db8::1]:65535"].iter().enumerate() {
        let client = client.parse().expect("an address");
        for (version, header) in hsmux_gateway::fuzzing::write_proxy(client)
            .iter()
            .enumerate()
        {
            write(
                "proxy",
                &format!("v{}-{at}", version + 1),
                [header, &b"GET /"[..]].concat(),
            );
        }
    }
    write(
        "proxy",
        "unknown",
        "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\nhello",
    );
    write("proxy", "local", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0hello");
    write("proxy", "with-tlv", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\x01\x02\x03\x04\x05\x06\x07\x08\0\x09\x01\xbb\x04\0\x01\0");
}

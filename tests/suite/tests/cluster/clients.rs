//! What people's own programs find in front of three hosts: a browser, siege, testssl.

use std::fs;

use serde_json::Value;

use crate::rig::Cluster;

/// All of them in one cluster; what they say goes to files.
const CLIENTS: &str = r#"
export HOME=$CLUSTER_WORK/tmp
mkdir -p "$HOME/.pki/nssdb"
certutil -d "sql:$HOME/.pki/nssdb" -N --empty-password
certutil -d "sql:$HOME/.pki/nssdb" -A -n root -t C,, -i ca.pem
cat > www/index.html <<'END'
<p id="said">nothing</p>
<script>
const part = number => fetch("hello.txt?" + number).then(answer => answer.text());
Promise.all(Array.from({ length: 200 }, (_, number) => part(number)))
    .then(texts => said.textContent = "it says " + texts.length + " times: " + texts[199])
</script>
END
cd "$CLUSTER_REPORTS"
browse() {
    timeout 300 chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=60000 "$@" --dump-dom "https://$name/"
}
requests() {
    for host in 1 2 3; do
        curl --silent --fail --max-time 60 "http://198.18.0.1$host:9443/metrics" |
            awk '/^hsmux_gateway_requests_total/ { sum += $NF } END { print sum + 0 }'
    done
}
browse > http2.html 2> browser.log
requests > before
# A browser has one connection of HTTP/2, and so one host; of HTTP/1.1 it has six.
browse --disable-http2 > http1.html 2>> browser.log
requests > after

# siege hangs at its end now and then.
printf 'json_output = true\nlogging = false\nconnection = close\n' > siegerc
for time in 1 2 3; do
    timeout --kill-after=1 60 siege -R siegerc -c 10 -r 5 -b "https://$name/hello.txt" > siege.json && break
done

timeout 300 testssl --quiet --warnings off --color 0 --ip "$front" --jsonfile testssl.json \
    --protocols --std --pfs "https://$name/" > testssl.log
"#;

#[test]
fn a_browser_siege_and_testssl_are_content() {
    let cluster = Cluster::new();
    let done = cluster.run(CLIENTS).finish();
    let read = |file: &str| {
        let text = fs::read_to_string(cluster.reports().join(file));
        text.unwrap_or_else(|error| panic!("{file}: {error}\n{done}"))
    };
    assert_eq!(done.code, Some(0), "{done}");

    // The root is in the browser's list, and no warning is switched off.
    for page in ["http2.html", "http1.html"].map(read) {
        assert!(page.contains("it says 200 times: hello, world"), "{page}");
    }
    let requests = |file| {
        let text = read(file);
        let counts = text.lines().map(|line| line.parse::<u64>().expect(file));
        counts.collect::<Vec<_>>()
    };
    let (before, after) = (requests("before"), requests("after"));
    let served: Vec<_> = before.iter().zip(&after).map(|(b, a)| a - b).collect();
    assert!(served.iter().sum::<u64>() > 200, "{served:?}");
    let hosts = served.iter().filter(|count| **count > 0).count();
    assert!(hosts >= 2, "the parts of the page came from {served:?}");

    let siege = json(&read("siege.json"));
    assert_eq!(siege["transactions"], 50, "{siege}");
    assert_eq!(siege["availability"], 100.0, "{siege}");

    let findings = json(&read("testssl.json"));
    let findings = findings.as_array().expect("findings");
    let finding = |id: &str| {
        let one = findings.iter().find(|finding| finding["id"] == id);
        one.unwrap_or_else(|| panic!("no {id}: {findings:?}"))["finding"].clone()
    };
    for (id, said) in [
        ("SSLv3", "not offered"),
        ("TLS1", "not offered"),
        ("TLS1_1", "not offered"),
        ("TLS1_2", "offered"),
        ("TLS1_3", "offered with final"),
        ("ALPN_HTTP2", "h2"),
        ("cipherlist_3DES_IDEA", "not offered"),
        ("cipherlist_AVERAGE", "not offered"),
        ("cipherlist_STRONG", "offered"),
        ("PFS_ECDHE_curves", "prime256v1 secp384r1 X25519"),
    ] {
        assert_eq!(finding(id), said, "{id}");
    }
    let good = |finding: &&Value| {
        // Of the machine's own OpenSSL, which speaks no GOST.
        let of_client = finding["id"] == "engine_problem";
        of_client || finding["severity"] == "OK" || finding["severity"] == "INFO"
    };
    let bad: Vec<_> = findings.iter().filter(|finding| !good(finding)).collect();
    assert!(bad.is_empty(), "{bad:?}");
}

/// What a program has written, from the first brace or bracket on.
fn json(text: &str) -> Value {
    let begin = text.find(['{', '[']).unwrap_or(0);
    serde_json::from_str(&text[begin..]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

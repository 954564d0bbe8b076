//! WordPress on three hosts, behind gateways whose keys are in tokens.

use std::fs;

use crate::rig::Cluster;

/// What a visitor gets, and what many of them do; what is found goes to files.
const VISITS: &str = r#"
cd "$CLUSTER_REPORTS"
ask() { curl --silent --show-error --fail --max-time 120 --cacert "$CLUSTER_WORK/ca.pem" "$@"; }
signatures() {
    for host in 1 2 3; do ask "http://198.18.0.1$host:9443/metrics"; done |
        awk '/^hsmux_gateway_signatures_total/ { sum += $NF } END { print sum + 0 }'
}
ask "https://$name/" > front.html
grep --only-matching --extended-regexp "https://$name/[^\"' ]+\.(css|js)[^\"' ]*" front.html | sort -u > resources
while read -r resource; do
    ask --output /dev/null --write-out '%{content_type}\n' "$resource"
done < resources > types
signatures > before
hsmux bench tls "https://$name/" --ca "$CLUSTER_WORK/ca.pem" --follow --users 6 --hits 3 --burst --timeout 2m --json > bench.json
signatures > after
"#;

#[test]
fn wordpress_comes_through_haproxy_and_gateways_with_its_resources() {
    let cluster = Cluster::new();
    let script = cluster.run(VISITS).env("WORDPRESS", "1");
    let done = script.env("KEYS", "ec-prime256v1").ok();
    let read = |file: &str| {
        let text = fs::read_to_string(cluster.reports().join(file));
        text.unwrap_or_else(|error| panic!("{file}: {error}\n{done}"))
    };
    let front = read("front.html");
    assert!(front.contains("Hello world!"), "{front}");
    let types = read("types");
    for wanted in ["text/css", "javascript"] {
        assert!(types.contains(wanted), "{types}\n{front}");
    }

    let report: serde_json::Value = serde_json::from_str(&read("bench.json")).expect("JSON");
    let figures = &report["figures"];
    assert_eq!(figures["availability_pct"], 100.0, "{figures}");
    assert_eq!(figures["failed"], 0, "{figures}");
    let transactions = figures["transactions"].as_u64().expect("a number");
    let pages = 6 * 3;
    // Each page with all that belongs to it.
    let parts = 1 + read("resources").lines().count() as u64;
    assert!(transactions >= pages * parts, "{figures}\n{types}");
    let number = |file: &str| read(file).trim().parse::<u64>().expect("a number");
    let signed = number("after") - number("before");
    assert!(signed >= transactions, "{signed} signatures, {figures}");
    cluster.is_gone();
}

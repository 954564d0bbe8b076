//! `hsmux bench http` asks the broker.

use serde_json::Value;

use crate::rig::Broker;

#[test]
fn the_broker_is_measured_over_http() {
    let broker = Broker::start(1);
    for (key, kind) in [("app-gcm", "aes256-gcm96"), ("app-ec", "ecdsa-p256")] {
        let body = format!(r#"{{"type": "{kind}"}}"#);
        broker.good("POST", &format!("keys/{key}"), &body);
    }
    let ask = |line: &str| {
        let run = broker.rig.hsmux("bench http --token env:TOKEN --url");
        run.arg(&broker.url).env("TOKEN", &broker.token).args(line)
    };
    let measured = |line: &str| -> Value {
        let done = ask(line).args("--json --warm-up 1ms").ok();
        serde_json::from_str(&done.out).expect("JSON from hsmux bench http")
    };
    for (line, ops) in [
        ("--key app-gcm --count 200 --clients 4", 200),
        (
            "--key app-gcm --count 20 --mix encrypt,decrypt,rewrap --batch 10",
            20,
        ),
        ("--key app-ec --count 60 --mix sign=2,verify", 60),
        ("--key none --count 50 --mix health --no-keep-alive", 50),
    ] {
        let report = measured(line);
        let found = &report["measurement"];
        assert_eq!(found["ops"], ops, "{line}: {report}");
        assert_eq!(found["failed"], 0, "{line}: {report}");
        assert_eq!(found["verified"], ops, "{line}: {report}");
    }
    ask("--key other --count 10").fails().says("403");
    ask("--key app-ec --count 10").fails().says("400");
    ask("--key app-gcm --count 10 --mix encipher")
        .fails()
        .says("none of encrypt");
}

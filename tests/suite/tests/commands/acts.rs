//! Every administrative act has its lines on the audit trail, and is not begun where it has none.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Setup, SoftHsm, until};
use rustix::process::getuid;
use serde_json::{Value, json};

/// Exit code of `hsmux audit verify`.
const REMARKS: Option<i32> = Some(3);

/// What an act needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It ends the trouble with a trail, or the daemon, and is always done.
    After,
    /// It is not begun without a line, unless `on_failure = "continue"`.
    Before,
    /// Nor then.
    Always,
}

/// A command, the act that it is, and what the trail says it is about.
type Act = (Line, &'static str, &'static str, Value);

const ADD: &str = "token add hsm3 --module /usr/lib/softhsm/libsofthsm2.so --uri pkcs11:token=hsm3 --pin-file hsm3.pin";

/// All of them, in an order in which each succeeds.
fn acts() -> Vec<Act> {
    use Line::{After, Always, Before};
    let hsm2 = || json!({"token": "hsm2"});
    let hsm3 = || json!({"token": "hsm3"});
    vec![
        (After, "reload", "reload", json!({})),
        (Before, "pin release hsm2", "pin-release", hsm2()),
        (Before, "token resume hsm2", "token-resume", hsm2()),
        (
            Before,
            "key generate ec:p256 --label pair --id 0a",
            "key-generate",
            json!({"spec": "ec:p256", "label": "pair", "id": "0a"}),
        ),
        (
            Before,
            "key csr pkcs11:object=pair;type=private --subject CN=a.test",
            "key-csr",
            json!({"key": "pkcs11:object=pair;type=private", "subject": "CN=a.test"}),
        ),
        (
            Before,
            "key cert import site.crt --label site",
            "cert-import",
            json!({"label": "site"}),
        ),
        (
            Before,
            "key clone pkcs11:object=old --from hsm1 --to hsm2",
            "key-clone",
            json!({"key": "pkcs11:object=old", "from": "hsm1", "to": ["hsm2"]}),
        ),
        (
            Before,
            "key verify pkcs11:object=pair",
            "key-verify",
            json!({"key": "pkcs11:object=pair"}),
        ),
        (Before, ADD, "token-add", hsm3()),
        (
            Before,
            "token park hsm3 --reason firmware",
            "token-park",
            json!({"token": "hsm3", "reason": "firmware"}),
        ),
        (Before, "token remove hsm3 --forget", "token-remove", hsm3()),
        (
            Always,
            "pin rotate hsm1",
            "pin-rotate",
            json!({"tokens": ["hsm1"]}),
        ),
        (
            Before,
            "token-auth create billing",
            "token-auth-create",
            json!({"name": "billing"}),
        ),
        (
            Before,
            "token-auth revoke billing",
            "token-auth-revoke",
            json!({"which": "billing"}),
        ),
        (
            Before,
            "broker --backup copy.sqlite",
            "broker-backup",
            json!({"file": "copy.sqlite"}),
        ),
        (
            Always,
            "key delete pkcs11:object=old --all --yes --confirm old",
            "key-delete",
            json!({"key": "pkcs11:object=old"}),
        ),
        (After, "stop", "stop", json!({})),
    ]
}

/// What `hsm2` gets once it has refused it.
const NEW_PIN: &str = "new-pin-of-hsm2";

/// Two members, of which `hsm2` is parked, for its PIN was wrong until now; a token that is no member yet; a key that
/// one member holds alone.
fn rig() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.config.module += "\n[broker]\nlisten = [\"127.0.0.1:0\"]\n";
    rig.softhsm.init("hsm3");
    rig.write_pin("hsm3", &SoftHsm::pin("hsm3"));
    rig.softhsm
        .tool("hsm1")
        .args("--keypairgen --key-type EC:prime256v1 --id 01 --label old --sensitive --extractable")
        .ok();
    rig.run("openssl")
        .args("req -new -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout site.key -subj /CN=a.test -out site.crt")
        .ok();
    rig.write_pin("hsm2", NEW_PIN);
    rig.start_daemon();
    until("the member is parked", PATIENCE, || {
        (rig.members_in("parked") == ["hsm2"] && rig.members_in("serving") == ["hsm1"])
            .then_some(())
    });
    rig.softhsm
        .tool("hsm2")
        .args("--change-pin --new-pin")
        .arg(NEW_PIN)
        .ok();
    rig
}

/// What acts are on the trail, and how they ended.
fn told(lines: &[Value]) -> Vec<[&str; 2]> {
    let acts = lines.iter().filter(|line| line["act"].is_string());
    acts.map(|line| ["act", "outcome"].map(|field| line[field].as_str().unwrap_or_default()))
        .collect()
}

#[test]
fn each_act_has_its_lines() {
    let mut rig = rig();
    let mut expected = Vec::new();
    for (line, command, act, _) in acts() {
        rig.hsmux(command).ok();
        expected.extend((line != Line::After).then_some([act, "begun"]));
        expected.push([act, "done"]);
    }
    let mut daemon = rig.daemon.take().expect("a daemon");
    until("the daemon ends", PATIENCE, || {
        (!daemon.running()).then_some(())
    });
    let lines = rig.trail();
    assert_eq!(told(&lines), expected);
    for (_, _, act, about) in acts() {
        for line in lines.iter().filter(|line| line["act"] == act) {
            assert_eq!(line["uid"], getuid().as_raw(), "{line}");
            assert_eq!(line["program"], "hsmux", "{line}");
            assert!(line["pid"].is_u64(), "{line}");
            for (field, value) in about.as_object().expect("fields") {
                assert_eq!(&line[field], value, "{line}");
            }
        }
    }
    rig.hsmux("audit verify").ok();
}

/// Whatever an act of the table would change.
fn state(rig: &Rig) -> [String; 6] {
    let said = |command: &str| rig.hsmux(command).ok().out;
    let pins =
        ["hsm1.pin", "hsm1.pin.next", "copy.sqlite"].map(|name| fs::read(rig.path(name)).ok());
    let config = fs::read_to_string(rig.path("hsmux.toml")).expect("hsmux.toml");
    let status = rig.status();
    let members = status["members"].as_array().expect("members").iter();
    let members = members.map(|member| member["state"].to_string());
    [
        members.collect(),
        said("key list --json"),
        said("pin list --json"),
        said("token-auth list --json"),
        // A member that is added and refused may leave a line's end.
        config.trim_end().to_owned(),
        format!("{pins:?}"),
    ]
}

/// With the trail's disk full nothing is begun but what only reads and what leads out: the configuration, read again,
/// may say that acts are done all the same. What destroys is not even then.
#[test]
fn no_act_is_begun_without_its_line() {
    const NOT_BEGUN: &str = "it is not begun while it cannot be recorded";
    let mut rig = rig();
    rig.fill_the_trails_disk();
    let before = state(&rig);
    let all = acts();
    let announced = || all.iter().filter(|(line, ..)| *line != Line::After);
    for (line, command, ..) in announced() {
        let refused = rig.hsmux(command).fails();
        refused.says(NOT_BEGUN).says("No space left");
        if *line == Line::Before {
            refused.says("on_failure = \"continue\"");
        }
    }
    assert_eq!(state(&rig), before);
    rig.hsmux("status").ok().says("hsmux change nothing");

    rig.config.module += "\n[audit]\non_failure = \"continue\"\n";
    rig.write_config();
    rig.hsmux("reload").ok();
    for (line, command, ..) in announced() {
        let run = rig.hsmux(command);
        match line {
            Line::Always => _ = run.fails().says(NOT_BEGUN),
            _ => _ = run.ok(),
        }
    }

    rig.make_room_for_the_trail();
    let lines = rig.trail();
    let done = all
        .iter()
        .filter(|(line, _, act, _)| *line == Line::Before || *act == "reload");
    let done: Vec<_> = done.map(|(_, _, act, _)| [*act, "done"]).collect();
    let mut told = told(&lines);
    assert_eq!(told.remove(0)[0], "reload", "that of the full disk");
    assert_eq!(told, done);
    let gap = lines.iter().find(|line| line["gap"].is_object());
    let gap = &gap.expect("a line of what is missing")["gap"];
    // The reload was not announced.
    let acts = done.len() as u64 - 1;
    let missing = ["refused", "lost"].map(|what| gap[what].as_u64());
    assert_eq!(missing, [Some(acts); 2], "{gap}");
    let verified = rig.hsmux("audit verify").fails();
    assert_eq!(verified.code, REMARKS, "{verified}");

    // Also a reload that says so, for it came to a new file, takes over what the configuration says.
    rig.config.module = rig.config.module.replace("\"continue\"", "\"stop\"");
    rig.write_config();
    assert_eq!(rig.status()["audit"]["on_failure"], "continue");
    rig.fill_the_trails_disk();
    assert_eq!(rig.status()["audit"]["on_failure"], "stop");
    rig.hsmux("stop").ok();
    let mut daemon = rig.daemon.take().expect("a daemon");
    until("the daemon ends", PATIENCE, || {
        (!daemon.running()).then_some(())
    });
}

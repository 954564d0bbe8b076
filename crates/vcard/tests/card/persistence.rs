use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use hsmux_smartcard::CardChannel;
use hsmux_smartcard::tlv::tlv;
use hsmux_vcard::{Card, CardError, Fault, Profile};

use crate::host::{Host, PIN, update};

const CHILD: &str = "VCARD_TEST_STATE";

fn kept(file: &Path) -> Host {
    Host::with(Profile::new("VC000001").state(file))
}

/// Not a test of its own: the process that the next test kills.
/// It uses up a counter as fast as it can and reports each answer.
#[test]
fn child_that_is_killed() {
    let Some(file) = env::var_os(CHILD) else {
        return;
    };
    let mut host = kept(Path::new(&file));
    host.login();
    for count in 0.. {
        assert_eq!(host.status(0x80, 0x78, 1, 0x18, b"data"), 0x9000);
        println!("answered {count}");
        std::io::stdout().flush().unwrap();
    }
}

/// Work answered before kill -9 has happened; other work at most once.
#[test]
fn the_state_survives_kill() {
    const USES: u32 = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.json");
    let mut host = kept(&file);
    host.initialize(Some(1));
    host.ok(0x80, 0x52, 0, 0, &[5; 32], Some(256));
    let dkek = host.ok(0x80, 0x52, 0, 0, &[], Some(256));
    assert_eq!(host.verify(b"000000"), 0x63C2);
    host.login();
    host.ok(0, 0x48, 1, 0xB0, &tlv(0x90, &[&USES.to_be_bytes()]), None);
    assert_eq!(host.verify(b"000000"), 0x63C2);
    drop(host);

    let mut child = Command::new(env::current_exe().unwrap())
        .args([
            "persistence::child_that_is_killed",
            "--exact",
            "--nocapture",
        ])
        .env(CHILD, &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let count = |line: Option<_>| -> Option<u32> {
        let line: String = Option::<std::io::Result<String>>::transpose(line).ok()??;
        line.rsplit_once("answered ")?.1.parse().ok()
    };
    let mut answered = None;
    while answered < Some(20) {
        answered = answered.max(count(Some(lines.next().expect("the child goes on"))));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        answered = answered.max(count(Some(line)));
    }
    let answered = answered.unwrap() + 1;

    let state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let left = state["keys"]["1"]["uses"].as_u64().unwrap() as u32;
    assert!(
        (answered..=answered + 1).contains(&(USES - left)),
        "{answered} {left}"
    );
    assert!(
        state["warning"]
            .as_str()
            .unwrap()
            .contains("protects nothing")
    );

    let mut host = kept(&file);
    assert_eq!(
        host.status(0, 0x20, 0, 0x81, &[]),
        0x63C3,
        "the child's login"
    );
    assert_eq!(host.ok(0x80, 0x52, 0, 0, &[], Some(256)), dkek);
    host.login();
    assert_eq!(host.status(0x80, 0x78, 1, 0x18, b"data"), 0x9000);
}

#[test]
fn counters_of_pins_survive() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.json");
    let mut host = kept(&file);
    host.initialize(None);
    assert_eq!(host.verify(b"000000"), 0x63C2);
    drop(host);
    // A different serial number in the profile has no effect.
    let mut host = Host::with(Profile::new("OTHER").state(&file));
    assert_eq!(host.slot.card().serial(), "VC000001");
    assert_eq!(host.verify(b"000000"), 0x63C1);
    assert_eq!(host.verify(b"000000"), 0x63C0);
    drop(host);
    assert_eq!(kept(&file).verify(PIN), 0x6983);
}

#[test]
fn state_files_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.json");
    for content in ["", "{}", "[1]", "{\"warning\":\"\"}", "not json"] {
        fs::write(&file, content).unwrap();
        let error = Card::new(Profile::new("VC000001").state(&file));
        assert!(matches!(error, Err(CardError::State { .. })), "{content}");
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            content,
            "left as it was"
        );
    }
    let nowhere = Card::new(Profile::new("VC000001").state("/nonexistent/card.json"));
    assert!(matches!(nowhere, Err(CardError::State { .. })));
}

/// A card reports a failed write, and discards the change.
#[test]
fn a_folder_that_is_gone_is_a_memory_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state").join("card.json");
    fs::create_dir(file.parent().unwrap()).unwrap();
    let mut host = kept(&file);
    host.initialize(None);
    host.login();
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    assert_eq!(host.write(0xCF01, b"data"), 0x6581);
    assert_eq!(host.enumerate(), [0xCC00]);
}

/// Loses power at every commit of commands that change the card: nothing or everything has changed,
/// and the file agrees with the card.
#[test]
fn a_power_loss_leaves_all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("card.json");
    let mut host = Host::ready_with(Profile::new("VC000001").state(&file), 1);
    host.ok(0, 0x48, 1, 0xB0, &[], None);
    let blob = host.ok(0x80, 0x72, 1, 0x92, &[], Some(65_536));
    let commands: [(u8, u8, u8, u8, Vec<u8>); 5] = [
        (0, 0xD7, 0xCF, 1, update(0, b"content")),
        (0, 0x48, 2, 0xB0, vec![]),
        (0x80, 0x74, 3, 0x93, blob),
        (0, 0x46, 4, 0, crate::host::rsa_body(1024)),
        (0, 0xE4, 2, 0, vec![0xCC, 1]),
    ];
    for (cla, ins, p1, p2, data) in commands {
        for commits in 0..2 {
            let before = host.enumerate();
            let on_disk = fs::read(&file).unwrap();
            host.login();
            host.control()
                .order(Fault::PowerLoss(commits).once().on(ins));
            let mut command = hsmux_smartcard::CommandApdu::new(cla, ins, p1, p2).expecting(65_536);
            command.data = data.clone().into();
            let answer = host.channel.transmit(&command.encode().unwrap());
            assert!(answer.is_err(), "{ins:02X}");
            host.select();
            let after = host.enumerate();
            assert_eq!(after == before, commits == 0, "{ins:02X} {commits}");
            assert_eq!(
                fs::read(&file).unwrap() == on_disk,
                commits == 0,
                "{ins:02X} {commits}"
            );
            assert_eq!(kept(&file).enumerate(), after);
        }
        // It was not half done: on repetition it is refused, or works on the current state.
        host.login();
    }
    assert_eq!(
        host.enumerate(),
        [0xCC00, 0xCC02, 0xCC03, 0xCC04, 0xCE04, 0xCF01]
    );
}

//! A gateway that the daemon has not started: a unit of its own starts it, as another user.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use hsmux_suite::{PATIENCE, Process, Program, Rig, Run, built, until};
use serde_json::Value;

use crate::backends::Port;
use crate::rig::{BOTH, FOLDER, Gateway, page};

/// Nobody's number: a user without files.
const NOBODY: u32 = 65534;

fn service(rig: &Rig) -> Value {
    rig.status()["services"][0].clone()
}

/// `hsmux service gateway` as this user.
fn gateway_as(rig: &Rig, user: u32) -> Run {
    let link = rig.path("admin-gateway.sock");
    let run = rig.run("setpriv").args(&format!(
        "--reuid {user} --regid {user} --clear-groups --no-new-privs"
    ));
    let run = run
        .arg(built(Program::Hsmux))
        .args("service gateway --link");
    run.arg(link)
}

fn start(rig: &Rig) -> Process {
    let process = Process::start("gateway", rig.path("").as_path(), gateway_as(rig, NOBODY));
    until("it serves", PATIENCE, || {
        let service = service(rig);
        let serves = service["state"] == "serving" && service["pid"] == process.id();
        serves.then_some(())
    });
    process
}

#[test]
fn it_serves_as_its_own_user_and_comes_back() {
    let port = Port::taken();
    let number = port.address.rsplit_once(':').expect("a port").1;
    let number = number.parse().expect("a number");
    let mut rig = Gateway::prepare();
    fs::set_permissions(rig.path(""), Permissions::from_mode(0o711)).expect("permissions");
    rig.config.module = format!(
        "\n[gateway]\nstarted_by = \"systemd\"\nuser = {NOBODY}\nlisten = [{:?}]\nleave_time = \"0s\"\n\
         [[site]]\n{BOTH}\n{FOLDER}\n\n[admin]\nsocket = \"admin.sock\"\n",
        port.address
    );
    rig.start();
    let absent = service(&rig);
    assert_eq!(absent["state"], "ended", "{absent}");
    let problem = absent["problem"].as_str().expect("a reason");
    assert!(
        problem.contains("systemctl start hsmux-gateway"),
        "{problem}"
    );

    let refused = gateway_as(&rig, NOBODY - 1).fails();
    refused.says("is not the user of this process");
    assert_eq!(service(&rig)["state"], "ended");

    let mut gateway = start(&rig);
    page(number).ok().says("a page");
    let restart = rig.hsmux("restart gateway").fails();
    restart.says("systemctl restart");
    gateway.kill();
    // Clients wait for the next process.
    TcpStream::connect(&*port.address).expect("the daemon keeps the socket");
    let mut gateway = start(&rig);
    page(number).ok().says("a page");

    assert!(gateway.stop().success(), "{}", gateway.log());
    until("clients are refused", PATIENCE, || {
        TcpStream::connect(&*port.address).is_err().then_some(())
    });
    let mut gateway = start(&rig);
    page(number).ok().says("a page");
    rig.stop();
    assert!(gateway.wait().success(), "{}", gateway.log());
    assert!(!rig.path("admin-gateway.sock").exists());
}

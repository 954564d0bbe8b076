use std::fs;
use std::path::PathBuf;

use hsmux_suite::{PATIENCE, Process, Rig, Run, on_every_setup, until};

on_every_setup![signs_through_the_proxy, signs_through_the_server];

const PROXY: &str = "/usr/lib/x86_64-linux-gnu/p11-kit-proxy.so";
const CLIENT: &str = "/usr/lib/x86_64-linux-gnu/pkcs11/p11-kit-client.so";

/// A program whose p11-kit knows the tested module and no other.
///
/// p11-kit ignores root's own configuration, so root gets another view of the system's (a bind mount).
fn with_p11_kit(rig: &Rig, program: &str) -> Run {
    const BIND: &str =
        "mount --bind .config/pkcs11/modules /usr/share/p11-kit/modules && exec \"$@\"";
    let modules = rig.path(".config/pkcs11/modules");
    fs::create_dir_all(&modules).unwrap();
    fs::write(
        rig.path(".config/pkcs11/pkcs11.conf"),
        "user-config: only\n",
    )
    .unwrap();
    let module = format!("module: {}\n", rig.module().display());
    fs::write(modules.join("tested.module"), module).unwrap();
    if !rustix::process::geteuid().is_root() {
        return rig.run(program);
    }
    rig.run("unshare")
        .args("--mount sh -c")
        .arg(BIND)
        .arg("sh")
        .arg(program)
}

fn sign_with(rig: &Rig, run: Run) {
    fs::write(rig.path("data"), "what is signed").unwrap();
    run.args("--login --sign --id 01 -m SHA256-RSA-PKCS -i data -o signature --token-label")
        .arg(rig.label())
        .arg("--pin")
        .arg(rig.pin())
        .ok();
    rig.run("openssl")
        .args("dgst -sha256 -signature signature -verify")
        .arg(rig.keys.public("rsa"))
        .arg("data")
        .ok()
        .says("Verified OK");
}

fn signs_through_the_proxy(rig: &Rig) {
    with_p11_kit(rig, "p11-kit")
        .arg("list-modules")
        .ok()
        .says(&format!("token: {}", rig.label()));
    let tool = with_p11_kit(rig, "pkcs11-tool").args("--module").arg(PROXY);
    sign_with(rig, tool);
}

fn signs_through_the_server(rig: &Rig) {
    let socket = rig.path("p11-kit");
    let server = rig
        .run("p11-kit")
        .args("server --foreground --provider")
        .arg(rig.module())
        .arg("--name")
        .arg(&socket)
        .arg(format!("pkcs11:token={}", rig.label()));
    let mut server = Process::start("p11-kit-server", &rig.path(""), server);
    until("the server's socket", PATIENCE, || {
        assert!(server.running(), "{}", server.log());
        socket.exists().then_some(())
    });
    let address = PathBuf::from(format!("unix:path={}", socket.display()));
    let tool = rig
        .run("pkcs11-tool")
        .env("P11_KIT_SERVER_ADDRESS", address);
    sign_with(rig, tool.args("--module").arg(CLIENT));
}

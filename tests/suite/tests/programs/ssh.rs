use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use hsmux_suite::{Process, Rig, Run, on_every_setup};

on_every_setup![shows_public_keys, logs_in, logs_in_through_an_agent];

fn public_keys(rig: &Rig) -> String {
    rig.run("ssh-keygen").arg("-D").arg(rig.module()).ok().out
}

fn shows_public_keys(rig: &Rig) {
    let mut seen: Vec<_> = public_keys(rig)
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    seen.sort();
    seen.dedup();
    let mut expected = ["rsa", "ec"].map(|key| {
        let file = rig.run("ssh-keygen").args("-i -m PKCS8 -f");
        file.arg(rig.keys.public(key)).ok().out.trim().to_owned()
    });
    expected.sort();
    assert_eq!(seen, expected);
}

fn logs_in(rig: &Rig) {
    let server = Server::start(rig);
    for algorithm in ["rsa-sha2-256", "ecdsa-sha2-nistp256"] {
        with_pin(rig, server.ssh(rig))
            .args(&format!(
                "-o IdentityAgent=none -o PubkeyAcceptedAlgorithms={algorithm} -I"
            ))
            .arg(rig.module())
            .args("localhost echo logged in")
            .ok()
            .says("logged in");
    }
}

fn logs_in_through_an_agent(rig: &Rig) {
    let server = Server::start(rig);
    let socket = rig.path("agent");
    let mut agent = Process::start(
        "ssh-agent",
        &rig.path(""),
        rig.run("ssh-agent").args("-D -P *,*/* -a").arg(&socket),
    );
    agent.wait_for("SSH_AUTH_SOCK");
    let add = |line| rig.run("ssh-add").args(line).env("SSH_AUTH_SOCK", &socket);
    with_pin(rig, add("-s")).arg(rig.module()).ok();
    add("-l").ok().says("ECDSA").says("RSA");
    for _ in 0..3 {
        server
            .ssh(rig)
            .env("SSH_AUTH_SOCK", &socket)
            .args("localhost echo logged in")
            .ok()
            .says("logged in");
    }
    add("-e").arg(rig.module()).ok();
}

/// OpenSSH asks for the PIN through a program of our own.
fn with_pin(rig: &Rig, run: Run) -> Run {
    let ask = rig.path("askpass");
    fs::write(&ask, format!("#!/bin/sh\necho '{}'\n", rig.pin())).unwrap();
    fs::set_permissions(&ask, fs::Permissions::from_mode(0o700)).unwrap();
    run.env("SSH_ASKPASS", ask)
        .env("SSH_ASKPASS_REQUIRE", "force")
}

/// An sshd for whoever runs the tests, which knows the token's keys. One is started for each connection
/// and talks to its client without a port, which another program might have.
struct Server {
    known_hosts: PathBuf,
    command: String,
}

impl Server {
    fn start(rig: &Rig) -> Self {
        let (host_key, keys) = (rig.path("host_key"), rig.path("authorized"));
        rig.run("ssh-keygen")
            .args("-q -t ed25519 -N")
            .arg("")
            .arg("-f")
            .arg(&host_key)
            .ok();
        fs::write(&keys, public_keys(rig)).unwrap();
        let host = fs::read_to_string(rig.path("host_key.pub")).unwrap();
        let known_hosts = rig.path("known_hosts");
        fs::write(&known_hosts, format!("localhost {host}")).unwrap();
        // sshd as root wants its folder for privilege separation; a package makes it at boot.
        let _ = fs::create_dir_all("/run/sshd");
        let command = format!(
            "/usr/sbin/sshd -i -e -f /dev/null -o StrictModes=no -o UsePAM=no -o PermitRootLogin=yes \
             -o PidFile=none -o PasswordAuthentication=no -o AuthorizedKeysFile={} -h {}",
            keys.display(),
            host_key.display()
        );
        Self {
            known_hosts,
            command,
        }
    }

    fn ssh(&self, rig: &Rig) -> Run {
        rig.run("ssh")
            .arg("-o")
            .arg(format!("ProxyCommand={}", self.command))
            .args(&format!("-F /dev/null -o UserKnownHostsFile={}", self.known_hosts.display()))
            .args("-o StrictHostKeyChecking=yes -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no")
    }
}

use rustix::process::Signal;

use crate::way::{Login, Way};
use crate::web::{Kind, keeps_serving};

const COMMAND: &[&str] = &[
    "sh",
    "-c",
    "exec apache2 -d \"$PWD\" -f server.conf -DFOREGROUND",
];

/// A process for each connection.
const PREFORK: Kind = Kind {
    workers: 4,
    way: Way::Engine,
    login: Login::Pin,
    by_name: false,
    configuration: |port, keys| {
        let limits = "StartServers 4\nMinSpareServers 4\nServerLimit 4\nMaxRequestWorkers 4";
        configuration(port, keys, "prefork", limits)
    },
    command: COMMAND,
    reload: Signal::USR1,
};

/// Threads in two processes.
const EVENT: Kind = Kind {
    workers: 2,
    way: Way::Engine,
    login: Login::Peer,
    by_name: false,
    configuration: |port, keys| {
        let limits = "StartServers 2\nServerLimit 4\nThreadsPerChild 2\nMaxRequestWorkers 4\nMinSpareThreads 4\nMaxSpareThreads 4";
        configuration(port, keys, "event", limits)
    },
    command: COMMAND,
    reload: Signal::USR1,
};

const PROVIDER: Kind = Kind {
    way: Way::Provider,
    login: Login::Pin,
    ..EVENT
};

fn configuration(port: u16, [rsa, ec]: [&str; 2], kind: &str, limits: &str) -> String {
    let modules: String = [&format!("mpm_{kind}"), "authz_core", "socache_shmcb", "ssl"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    format!(
        r#"{modules}
{limits}
ServerName ec.test
Listen 127.0.0.1:{port}
User www-data
Group www-data
PidFile apache.pid
DefaultRuntimeDir "."
Mutex file:. default
ErrorLog error.log
LogFormat "%P" process
CustomLog access.log process
DocumentRoot www
KeepAlive Off
<VirtualHost *:{port}>
    SSLEngine on
    SSLProtocol -all +TLSv1.2 +TLSv1.3
    SSLCertificateFile ../ec.pem
    SSLCertificateKeyFile "{ec}"
    SSLCertificateFile ../rsa.pem
    SSLCertificateKeyFile "{rsa}"
</VirtualHost>
"#
    )
}

#[test]
fn prefork_keeps_serving_whatever_happens() {
    keeps_serving(&PREFORK);
}

#[test]
fn event_keeps_serving_whatever_happens() {
    keeps_serving(&EVENT);
}

#[test]
fn event_keeps_serving_with_the_provider() {
    keeps_serving(&PROVIDER);
}

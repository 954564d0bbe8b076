//! Health checks of backends.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use hsmux_suite::{Nginx, PATIENCE, until};

use crate::many_backends::{log, up};
use crate::rig::{BOTH, Gateway};

/// nginx, and the page that its check requests.
struct CheckedServer {
    nginx: Nginx,
    url: String,
    page: PathBuf,
}

impl CheckedServer {
    fn start(folder: &Path) -> Self {
        let nginx = Nginx::start(folder);
        let url = format!("https://127.0.0.1:{}", nginx.port());
        let page = folder.join("nginx/site/up.txt");
        let checked = Self { nginx, url, page };
        checked.is_well(true);
        checked
    }

    fn is_well(&self, well: bool) {
        if well {
            fs::write(&self.page, "up\n").expect("a page");
        } else {
            fs::remove_file(&self.page).expect("the page");
        }
    }

    /// The number of requests, without checks.
    fn requests(&self) -> usize {
        let requests = self.nginx.requests();
        let asked = requests.iter().filter(|line| line.contains("hello.txt"));
        asked.count()
    }
}

#[test]
fn a_server_is_left_out_while_its_check_fails() {
    let rig = Gateway::prepare();
    let servers = ["a", "b"].map(|name| CheckedServer::start(&rig.path(name)));
    let roots = servers.each_ref().map(|server| {
        let root = server.nginx.certificate();
        fs::read_to_string(root).expect("a certificate")
    });
    fs::write(rig.path("roots.pem"), roots.concat()).expect("roots");
    let urls = servers.each_ref().map(|server| &*server.url);
    let site = format!(
        "[[site]]\n{BOTH}\nbackend = {urls:?}\nbackend_ca = \"roots.pem\"\n\
         backend_check = \"/up.txt\"\nbackend_check_interval = \"2s\""
    );
    let gateway = Gateway::start(rig, "", &site);
    let ask = || {
        let before = servers.each_ref().map(CheckedServer::requests);
        let said = gateway.curl("a.test", "/hello.txt?[1-20]", "").out;
        assert_eq!(said.matches("hello, world").count(), 20, "{said}");
        // nginx logs a request after its answer.
        until("all are written down", PATIENCE, || {
            let now = servers.each_ref().map(CheckedServer::requests);
            let new = [now[0] - before[0], now[1] - before[1]];
            (new.iter().sum::<usize>() == 20).then_some(new)
        })
    };
    let become_so = |state: [u64; 2]| {
        for (server, well) in servers.iter().zip(state) {
            until("it is noticed", PATIENCE, || {
                (up(&gateway, &server.url) == well).then_some(())
            });
        }
    };
    assert_eq!(ask(), [10, 10]);
    servers[0].is_well(false);
    become_so([0, 1]);
    assert_eq!(ask(), [0, 20]);
    servers[0].is_well(true);
    become_so([1, 1]);
    assert_eq!(ask(), [10, 10]);
    // If all are down, they are used nevertheless.
    for server in &servers {
        server.is_well(false);
    }
    become_so([0, 0]);
    ask();
    assert_eq!(
        servers.each_ref().map(|server| up(&gateway, &server.url)),
        [0, 0]
    );
    let said = log(&gateway);
    let told = format!("{} is left out: asked for /up.txt: status 404", urls[0]);
    assert_eq!(said.matches(&told).count(), 2, "{said}");
    assert_eq!(said.matches("is back").count(), 1, "{said}");
}

/// It takes connections, but does not answer.
#[test]
fn a_check_without_an_answer_in_time_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let site = format!(
        "[[site]]\n{BOTH}\nbackend = \"{url}\"\nbackend_check = \"/\"\nbackend_check_interval = \"200ms\""
    );
    let gateway = Gateway::start(Gateway::prepare(), "", &site);
    until("it is noticed", PATIENCE, || {
        (up(&gateway, &url) == 0).then_some(())
    });
    assert!(log(&gateway).contains("asked for /: no answer within 200ms"));
}

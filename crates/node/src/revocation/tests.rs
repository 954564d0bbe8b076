use std::fs;
use std::path::{Path, PathBuf};

use hsmux_wire::frame;
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt, duplex};

use super::crl_exchange::ExchangeStep;
use super::*;
use crate::ca::{Authority, EnrollmentRequest};
use crate::identity::lists;

/// An authority, and hosts that have its files.
struct Cluster {
    folder: TempDir,
    authority: Authority,
    revoked: u32,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let life = Duration::from_secs(86_400);
        let authority = Authority::init(&folder.path().join("ca"), "a cluster", life, None);
        Self {
            authority: authority.unwrap(),
            folder,
            revoked: 0,
        }
    }

    /// A host with the list of now.
    fn host(&self, name: &str) -> Identity {
        let into = self.folder.path().join(name);
        let wanted = EnrollmentRequest {
            name,
            addresses: &[],
            life: Duration::from_secs(3600),
            request: None,
        };
        self.authority.enroll(&wanted, &into).unwrap();
        Identity {
            certificate: into.join("node.pem"),
            key: into.join("node.key"),
            ca: into.join("ca.pem"),
            revoked: Some(into.join("revoked.pem")),
        }
    }

    /// Another list.
    fn revoke(&mut self) -> Vec<u8> {
        self.revoked += 1;
        let name = format!("gone{}", self.revoked);
        self.host(&name);
        let list = self.authority.revoke(&name).unwrap().list;
        only(&list)
    }
}

fn file(host: &Identity) -> PathBuf {
    host.revoked.clone().unwrap()
}

/// The one list of a file.
fn only(file: &Path) -> Vec<u8> {
    let all = lists(file).unwrap();
    assert_eq!(all.len(), 1);
    all[0].to_vec()
}

fn framed(list: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let list = list.to_vec();
    frame::encode(&CrlMessage { list }, &mut bytes).unwrap();
    bytes.split_off(4)
}

fn told(exchange: &mut CrlExchange, host: &Identity, list: &[u8]) -> ExchangeStep {
    exchange.settle(host, Some(framed(list)))
}

#[test]
fn a_newer_list_is_put_in_place_and_an_older_one_never() {
    let mut cluster = Cluster::new();
    let host = cluster.host("web1");
    let first = only(&file(&host));
    let (second, third) = (cluster.revoke(), cluster.revoke());
    let mut exchange = CrlExchange::new("web2");
    let step = exchange.settle(&host, None);
    assert_eq!(step.news.len(), 1, "the other end is told what is here");
    assert!(exchange.is_settled(&host));
    assert!(
        told(&mut exchange, &host, &third).news.is_empty(),
        "it has that"
    );
    assert_eq!(only(&file(&host)), third);
    for older in [&second, &first, &third] {
        let step = told(&mut exchange, &host, older);
        assert!(step.problem.is_none() && step.news.is_empty());
        assert_eq!(only(&file(&host)), third);
    }
    // Not even where an administrator has gone back to one.
    fs::copy(cluster.host("web2").ca, file(&host)).unwrap();
    assert!(told(&mut exchange, &host, &second).problem.is_none());
    assert!(lists(&file(&host)).unwrap().is_empty());
    let fourth = cluster.revoke();
    told(&mut exchange, &host, &fourth);
    assert_eq!(only(&file(&host)), fourth);
}

#[test]
fn what_no_believed_authority_has_signed_is_not_taken_and_told_once() {
    let (mut cluster, mut other) = (Cluster::new(), Cluster::new());
    let host = cluster.host("web1");
    let first = only(&file(&host));
    let newer = cluster.revoke();
    other.revoke();
    let mut exchange = CrlExchange::new("web2");
    let problem = told(&mut exchange, &host, &other.revoke()).problem.unwrap();
    assert!(problem.contains("no authority"), "{problem}");
    for at in 0..newer.len() {
        let mut damaged = newer.clone();
        damaged[at] ^= 1;
        assert!(told(&mut exchange, &host, &damaged).problem.is_none());
    }
    let cut = &newer[..newer.len() - 1];
    let longer = [&newer[..], &[0]].concat();
    for damaged in [&[], cut, &longer] {
        told(&mut exchange, &host, damaged);
    }
    exchange.settle(&host, Some(vec![0xff; 100]));
    assert_eq!(only(&file(&host)), first);
    told(&mut exchange, &host, &newer);
    assert_eq!(only(&file(&host)), newer);
}

#[test]
fn a_list_that_cannot_be_put_in_place_is_when_it_can() {
    let mut cluster = Cluster::new();
    let host = cluster.host("web1");
    let newer = cluster.revoke();
    let name = format!(".revoked.pem.{}", std::process::id());
    let in_its_way = file(&host).with_file_name(name);
    fs::create_dir(&in_its_way).unwrap();
    let mut exchange = CrlExchange::new("web2");
    told(&mut exchange, &host, &newer);
    assert_ne!(only(&file(&host)), newer);
    assert!(!exchange.is_settled(&host), "it is tried again");
    fs::remove_dir(in_its_way).unwrap();
    exchange.settle(&host, None);
    assert_eq!(only(&file(&host)), newer);
    exchange.settle(&host, None);
    assert!(exchange.is_settled(&host));
}

#[test]
fn a_list_that_cannot_be_verified_is_when_it_can() {
    let mut cluster = Cluster::new();
    let mut other = Cluster::new();
    let host = cluster.host("web1");
    let newer = cluster.revoke();
    let good = fs::read(&host.ca).unwrap();
    fs::write(&host.ca, "is being written").unwrap();
    let mut exchange = CrlExchange::new("web2");
    let problem = told(&mut exchange, &host, &newer).problem;
    assert!(problem.is_some());
    // Some are kept, and not the last one alone.
    for _ in 0..3 {
        told(&mut exchange, &host, &other.revoke());
    }
    assert_ne!(only(&file(&host)), newer);
    fs::write(&host.ca, good).unwrap();
    assert!(!exchange.is_settled(&host));
    exchange.settle(&host, None);
    assert_eq!(only(&file(&host)), newer);
}

#[test]
fn the_newest_four_that_cannot_be_verified_are_kept() {
    let (mut cluster, mut other) = (Cluster::new(), Cluster::new());
    let host = cluster.host("web1");
    let good = fs::read(&host.ca).unwrap();
    let newer = [cluster.revoke(), cluster.revoke()];
    for (list, (others, is_kept)) in newer.iter().zip([(4, false), (3, true)]) {
        fs::write(&host.ca, "is being written").unwrap();
        let mut exchange = CrlExchange::new("web2");
        told(&mut exchange, &host, list);
        for _ in 0..others {
            told(&mut exchange, &host, &other.revoke());
        }
        fs::write(&host.ca, &good).unwrap();
        exchange.settle(&host, None);
        assert_eq!(only(&file(&host)) == *list, is_kept, "{others}");
    }
}

#[test]
fn lists_of_other_authorities_stay_where_they_are_and_names_of_files_as_well() {
    let (mut cluster, other) = (Cluster::new(), Cluster::new());
    let host = cluster.host("web1");
    let foreign = fs::read_to_string(file(&other.host("web9"))).unwrap();
    let own = fs::read_to_string(file(&host)).unwrap();
    let elsewhere = cluster.folder.path().join("elsewhere.pem");
    fs::write(&elsewhere, own + &foreign).unwrap();
    fs::remove_file(file(&host)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, file(&host)).unwrap();
    let newer = cluster.revoke();
    told(&mut CrlExchange::new("web2"), &host, &newer);
    let there: Vec<_> = lists(&elsewhere).unwrap();
    assert_eq!(*there[0], newer);
    assert_eq!(*there[1], *lists(&file(&other.host("web8"))).unwrap()[0]);
    assert!(file(&host).is_symlink());
}

#[tokio::test]
async fn what_either_end_has_gets_to_the_other() {
    let mut cluster = Cluster::new();
    let old = cluster.host("web1");
    cluster.revoke();
    let new = cluster.host("web2");
    let (here, there) = duplex(64);
    let never = |problem: &str| panic!("{problem}");
    let both = async {
        tokio::join!(
            exchange(here, "web2", || Some(old.clone()), never),
            exchange(there, "web1", || Some(new.clone()), never),
        )
    };
    let mut both = std::pin::pin!(both);
    let same = |a: &Identity, b: &Identity| only(&file(a)) == only(&file(b));
    for (told, by) in [(&old, &new), (&new, &old)] {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !same(told, by) {
            assert!(std::time::Instant::now() < deadline, "no list has come");
            let _ = timeout(Duration::from_millis(10), both.as_mut()).await;
        }
        // And now the other way.
        let next = cluster.revoke();
        let list = cluster.folder.path().join("ca/revoked.pem");
        fs::copy(list, file(told)).unwrap();
        assert_eq!(only(&file(told)), next);
    }
}

#[tokio::test]
async fn an_end_that_does_not_read_a_list_is_given_up() {
    let cluster = Cluster::new();
    let host = cluster.host("web1");
    // It stays open, and takes a few bytes.
    let (here, _there) = duplex(64);
    let never = |problem: &str| panic!("{problem}");
    let briefly = Duration::from_millis(10);
    let exchange = exchange_within(here, "web2", || Some(host.clone()), never, briefly);
    let ended = timeout(Duration::from_secs(60), exchange).await;
    let error = ended.expect("it ends").to_string();
    assert!(error.contains("does not read a list"), "{error}");
}

#[tokio::test]
async fn a_list_that_is_too_long_ends_the_exchange() {
    let cluster = Cluster::new();
    let host = cluster.host("web1");
    let (here, mut there) = duplex(1 << 16);
    let never = |problem: &str| panic!("{problem}");
    let longer = u32::try_from(MOST + FRAMED + 1).unwrap();
    there.write_all(&longer.to_le_bytes()).await.unwrap();
    let exchange = exchange(here, "web2", || Some(host.clone()), never);
    let ended = timeout(Duration::from_secs(60), exchange).await;
    let error = ended.expect("it ends").to_string();
    assert!(error.contains("are the most"), "{error}");
}

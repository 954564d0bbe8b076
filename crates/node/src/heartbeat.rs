//! Heartbeat of a link: asks the other host each second on a connection of its own, which no work delays. It also
//! ends a link whose other host is no longer trusted.

use std::time::Duration;

use hsmux_state::FileVersions;
use hsmux_token::{Error, Kind};
use hsmux_wire::Call;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

use crate::link::NodeLink;
use crate::stream::request;

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(1);

/// A host that has not answered for so long counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(5);

/// The time between two checks of trust.
const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// Runs while the other host answers and is trusted; returns the reason of its end.
pub async fn watch(over: &mut (impl AsyncRead + AsyncWrite + Unpin), link: &NodeLink) -> Error {
    // Trust is checked beside the answers: a host that answers slowly cannot delay its own revocation.
    tokio::select! {
        biased;
        error = believe(link) => error,
        error = ping(over, link.version) => error,
    }
}

/// Runs while the other host answers.
async fn ping(over: &mut (impl AsyncRead + AsyncWrite + Unpin), version: u16) -> Error {
    let nothing = Call::Execute(Vec::new());
    loop {
        sleep(INTERVAL).await;
        let asked = timeout(DEAD_AFTER, request(over, version, &nothing));
        match asked.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error,
            Err(_) => {
                let message = format!("has not answered for {} s", DEAD_AFTER.as_secs());
                return Error::lost(message);
            }
        }
    }
}

/// Runs while the other host is trusted. Files are read again when they change; with a new certificate this host
/// connects anew.
async fn believe(link: &NodeLink) -> Error {
    let mut seen = link.stamp.clone();
    let mut failed = None;
    loop {
        sleep(POLL_INTERVAL).await;
        if link.shown.has_expired() {
            return Error::lost("its certificate has expired");
        }
        let now = FileVersions::of(link.options.identity.files());
        if now == seen {
            continue;
        }
        match link.look_again() {
            Ok(()) => seen = now,
            // A half-written file is read again; its error is reported once.
            Err(error) if error.kind() == Kind::Environment => {
                if failed.as_ref() != Some(&now) {
                    tracing::warn!(%error, "files of this host are as they were");
                    failed = Some(now);
                }
            }
            Err(error) => return error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Instant;

    use hsmux_config::Identity;
    use hsmux_wire::SPOKEN;
    use hsmux_worker::LinkOptions;
    use tokio::io::duplex;

    use super::*;
    use crate::ca::{Authority, EnrollmentRequest};
    use crate::identity::TlsIdentity;

    /// From `web1`, in this folder, to `web2`.
    fn link(authority: &Authority, folder: &Path) -> NodeLink {
        let host = |name: &str| {
            let wanted = EnrollmentRequest {
                name,
                addresses: &[],
                life: Duration::from_secs(3600),
                request: None,
            };
            let into = folder.join(name);
            authority.enroll(&wanted, &into).unwrap();
            Identity {
                certificate: into.join("node.pem"),
                key: into.join("node.key"),
                ca: into.join("ca.pem"),
                revoked: Some(into.join("revoked.pem")),
            }
        };
        let identity = host("web1");
        NodeLink {
            server: "web2".try_into().unwrap(),
            version: *SPOKEN.end(),
            stamp: FileVersions::of(identity.files()),
            shown: TlsIdentity::read(&host("web2")).unwrap().own,
            own: TlsIdentity::read(&identity).unwrap().own,
            options: LinkOptions {
                name: "web2".to_owned(),
                address: String::new(),
                lanes: 1,
                identity,
            },
        }
    }

    #[tokio::test]
    async fn a_host_that_does_not_answer_is_dead_after_five_seconds() {
        let (mut here, _silent) = duplex(1024);
        let begun = Instant::now();
        let watched = ping(&mut here, *SPOKEN.end());
        let error = timeout(Duration::from_secs(60), watched).await.unwrap();
        let error = error.to_string();
        assert!(error.contains("has not answered for 5 s"), "{error}");
        assert!(begun.elapsed() >= INTERVAL + Duration::from_secs(5));
    }

    #[tokio::test]
    async fn who_answers_nothing_is_out_as_soon_as_it_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca");
        let life = Duration::from_secs(86_400);
        let authority = Authority::init(&ca, "a cluster", life, None).unwrap();
        let mut link = link(&authority, folder.path());
        let (mut here, _silent) = duplex(1024);
        // Wrong other files do not matter.
        let identity = &link.options.identity;
        fs::set_permissions(&identity.key, Permissions::from_mode(0o644)).unwrap();
        let list = authority.revoke("web2").unwrap().list;
        fs::copy(list, identity.revoked.as_ref().unwrap()).unwrap();
        let error = watch(&mut here, &link).await.to_string();
        assert!(error.contains("was revoked"), "{error}");
        link.shown.until = 1;
        let error = watch(&mut here, &link).await.to_string();
        assert!(error.contains("has expired"), "{error}");
    }

    #[tokio::test]
    async fn who_is_of_an_authority_that_was_replaced_is_out() {
        let folder = tempfile::tempdir().unwrap();
        let life = Duration::from_secs(86_400);
        let init =
            |name: &str| Authority::init(&folder.path().join(name), name, life, None).unwrap();
        let link = link(&init("ca"), folder.path());
        link.look_again().unwrap();
        init("another");
        fs::copy(
            folder.path().join("another/ca.pem"),
            &link.options.identity.ca,
        )
        .unwrap();
        let (mut here, _silent) = duplex(1024);
        let error = watch(&mut here, &link).await.to_string();
        assert!(error.contains("another authority"), "{error}");
    }
}

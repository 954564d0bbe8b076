//! Answers to ACME's HTTP challenges (RFC 8555, section 8.3), from a folder or from an ACME client.
//!
//! Nothing is ever returned but a key authorization for the requested token.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hsmux_config::Acme;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::{Answer, BlockingReads, Host};

const PREFIX: &str = "/.well-known/acme-challenge/";

/// The longest name of a file. Tokens of 128 bits have 22 characters.
const LONGEST_TOKEN: usize = 255;

/// Limit of a key authorization in bytes, many times its usual length: a token, a dot, a thumbprint of 43 characters.
const LONGEST: usize = 1024;

/// Time limit for the ACME client, which is near and computes nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a challenge has no answer.
pub enum ChallengeError {
    /// No ACME client listens: it does so only while it orders certificates.
    Nobody,
    /// Something has to be fixed.
    Fault(String),
}

/// Last error of each source of challenges. Anybody may ask for a challenge, so each error is logged once.
#[derive(Default)]
pub struct ReportedErrors(Mutex<HashMap<Acme, String>>);

/// The token in a challenge's path, not yet validated.
pub fn token(path: &str) -> Option<&str> {
    path.strip_prefix(PREFIX)
}

/// Fetches a token's key authorization. `None`: there is no such challenge.
pub async fn fetch(
    reads: &BlockingReads,
    acme: &Acme,
    token: &str,
    host: &Host,
) -> Result<Option<Bytes>, ChallengeError> {
    if !is_base64url(token.as_bytes()) || token.len() > LONGEST_TOKEN {
        return Ok(None);
    }
    let found = match acme {
        Acme::Folder(folder) => {
            let (within, path) = (folder.clone(), format!("{}{token}", &PREFIX[1..]));
            let reads = reads.of(folder);
            let read = reads.run(move || read(&within, &path)).await;
            read.map_err(|e| ChallengeError::Fault(format!("{}: {e}", folder.display())))?
        }
        Acme::Client(at) => {
            let asked = timeout(PATIENCE, ask(at, token, host));
            let answer = asked.await.unwrap_or_else(|late| Err(late.into()));
            answer.map_err(|why| match why.downcast_ref::<io::Error>() {
                Some(e) if e.kind() == io::ErrorKind::ConnectionRefused => ChallengeError::Nobody,
                _ => ChallengeError::Fault(format!("the ACME client at http://{at}: {why}")),
            })?
        }
    };
    Ok(found.filter(|found| is_authorization(token, found)))
}

impl ReportedErrors {
    /// Logs an error, unless the last one was the same.
    pub fn report(&self, acme: &Acme, now: Option<&ChallengeError>) {
        let mut known = self.0.lock();
        let Some(ChallengeError::Fault(why)) = now else {
            known.remove(acme);
            return;
        };
        let before = known.insert(acme.clone(), why.clone());
        if before.as_ref() != Some(why) {
            tracing::warn!("ACME's challenges have no answer: {why}");
        }
    }
}

impl std::fmt::Display for ChallengeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nobody => f.write_str("no ACME client listens"),
            Self::Fault(why) => f.write_str(why),
        }
    }
}

/// The answer to a challenge.
pub fn page(authorization: Bytes) -> Answer {
    let body = Full::from(authorization).map_err(|never| match never {});
    let mut answer = Answer::new(body.boxed_unsync());
    let any = HeaderValue::from_static("application/octet-stream");
    answer.headers_mut().insert(CONTENT_TYPE, any);
    answer
}

/// Reads a short regular file. Others are ignored: a pipe would never end.
fn read(folder: &Path, file: &str) -> io::Result<Option<Bytes>> {
    let file = folder.join(file);
    match file.symlink_metadata() {
        Ok(of) if of.is_file() && of.len() <= LONGEST as u64 => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return folder.metadata().map(|_| None);
        }
        Err(error) => return Err(error),
    }
    std::fs::read(file).map(|content| Some(content.into()))
}

/// Asks an ACME client, which may check the host.
async fn ask(
    at: &str,
    token: &str,
    host: &Host,
) -> Result<Option<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(at).await?;
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(format!("{PREFIX}{token}")).header(HOST, host.to_string());
    let request = request.body(Empty::<Bytes>::new())?;
    let answer = async {
        let answer = client.send_request(request).await?;
        if !answer.status().is_success() {
            return Ok(None);
        }
        let body = Limited::new(answer.into_body(), LONGEST).collect().await?;
        Ok(Some(body.to_bytes()))
    };
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = answer.as_mut() => answer,
        // The connection may end after the answer has come.
        _ = connection.as_mut() => answer.await,
    }
}

/// Section 8.1: the token, a dot, and the thumbprint of an account's key. White space may follow.
fn is_authorization(token: &str, content: &[u8]) -> bool {
    let content = content.trim_ascii_end();
    let thumbprint = content
        .strip_prefix(token.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"."));
    thumbprint.is_some_and(is_base64url)
}

fn is_base64url(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HTTP;

    async fn of(folder: &Path, token: &str) -> Option<Bytes> {
        let acme = Acme::Folder(folder.to_owned());
        let request = Request::get("/").header(HOST, "a.test").body(()).unwrap();
        let host = Host::of(&request, HTTP).unwrap();
        let fetched = fetch(&BlockingReads::default(), &acme, token, &host).await;
        fetched.map_err(|failure| failure.to_string()).unwrap()
    }

    #[tokio::test]
    async fn a_folder_gives_key_authorizations_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join(&PREFIX[1..]);
        std::fs::create_dir_all(&here).unwrap();
        std::fs::write(folder.path().join("secret"), "a secret").unwrap();
        std::fs::write(here.join("tok-en_1"), "tok-en_1.thumb\n").unwrap();
        std::fs::write(here.join("other"), "tok-en_1.thumb").unwrap();
        std::fs::write(here.join("long"), format!("long.{}", "a".repeat(5000))).unwrap();
        std::fs::create_dir(here.join("folder")).unwrap();
        std::os::unix::fs::symlink("tok-en_1", here.join("link")).unwrap();
        std::os::unix::fs::symlink("../../secret", here.join("secret")).unwrap();
        assert_eq!(
            of(folder.path(), "tok-en_1").await.unwrap(),
            "tok-en_1.thumb\n"
        );
        for token in [
            "other",
            "link",
            "secret",
            "folder",
            "absent",
            "",
            "..",
            "../../secret",
            "%2e",
            "a/b",
            "a\0",
        ] {
            assert_eq!(of(folder.path(), token).await, None, "{token}");
        }
        assert_eq!(of(folder.path(), &"a".repeat(300)).await, None);
    }

    #[test]
    fn a_token_is_what_follows_the_prefix() {
        assert_eq!(token("/.well-known/acme-challenge/a"), Some("a"));
        assert_eq!(token("/.well-known/acme-challenge/../a"), Some("../a"));
        assert_eq!(token("/.well-known/acme-challenge"), None);
        assert_eq!(token("//.well-known/acme-challenge/a"), None);
    }
}

//! A folder in place of a backend.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use tower::ServiceExt;
use tower_http::services::ServeDir;
use tower_http::services::fs::ServeFileSystemResponseBody as Found;

use crate::app_state::AppState;

use super::blocking_reads::FolderReads;
use super::file_cache::CachedFile;
use super::folder_backend::FolderBackend;
use super::forward::malformed;
use super::if_range::{Condition, for_all_of_it};
use super::linger::{DrainOutcome, linger};
use super::{Answer, PART, text};

/// Answers with a file of the folder.
pub async fn answer(app: &AppState, folder: &Path, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    // A file needs no body, but a malformed one is an error.
    match DrainOutcome::of(body).await {
        DrainOutcome::Malformed => return malformed(),
        DrainOutcome::Complete => {}
        DrainOutcome::Unfinished(rest) => linger(rest),
    }
    let request = Request::from_parts(head, Empty::<Bytes>::new());
    file(app, folder, request).await
}

async fn file(app: &AppState, folder: &Path, request: Request<Empty<Bytes>>) -> Answer {
    if is_hidden(request.uri().path()) {
        return text(StatusCode::NOT_FOUND, "there is no such file");
    }
    let path = is_for_all_of_it(&request).then(|| request.uri().path());
    let reads = app.reads.of(folder);
    let local = reads.is_local().await;
    if let Some(cached) = cached_file(app, path, &reads, local).await {
        let body = Full::from(cached.bytes.clone());
        let body = body.map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(body);
        answer.headers_mut().clone_from(&cached.head);
        return answer;
    }
    let path = path.map(str::to_owned);
    let files = FolderBackend::new(&app.files, reads, local, path.is_some());
    let found = find(folder, &files, request).await;
    if let (Some(path), StatusCode::OK, Some(whole)) = (path, found.status(), files.read()) {
        let cached = CachedFile {
            file: whole.file,
            metadata: whole.metadata,
            head: found.headers().clone(),
            bytes: whole.bytes,
            is_local: whole.is_local,
        };
        app.file_cache.put(folder, path, cached);
    }
    found.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// A cached file that is current. Local metadata are read on this thread: a switch to another one costs more.
async fn cached_file(
    app: &AppState,
    path: Option<&str>,
    reads: &FolderReads,
    local: bool,
) -> Option<Arc<CachedFile>> {
    let cached = app.file_cache.get(reads.folder(), path?)?;
    let current = if local && cached.is_local {
        cached.is_current()
    } else {
        let looked = Arc::clone(&cached);
        reads.run(move || Ok(looked.is_current())).await.ok()?
    };
    current.then_some(cached)
}

/// Finds a file, or a range of it. If-Range is compared with the head of the very file that was opened.
async fn find(
    folder: &Path,
    files: &FolderBackend,
    request: Request<Empty<Bytes>>,
) -> Response<Found> {
    let look = async |request| {
        let files = ServeDir::with_backend(folder, files.clone()).with_buf_chunk_size(PART);
        let Ok(found) = files.oneshot(request).await;
        found
    };
    let Some(condition) = Condition::of(&request) else {
        return look(request).await;
    };
    let all = for_all_of_it(&request);
    let part = look(request).await;
    match part.status() {
        StatusCode::PARTIAL_CONTENT if condition.holds(part.headers()) => part,
        StatusCode::PARTIAL_CONTENT => look(all).await,
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let all = look(all).await;
            if condition.holds(all.headers()) {
                part
            } else {
                all
            }
        }
        _ => part,
    }
}

/// Whether the request has neither a range nor a condition.
fn is_for_all_of_it<B>(request: &Request<B>) -> bool {
    let some = [
        RANGE,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_UNMODIFIED_SINCE,
        IF_RANGE,
    ];
    let headers = request.headers();
    request.method() == Method::GET && !some.iter().any(|header| headers.contains_key(header))
}

/// The only hidden folder that sites publish (RFC 8615).
const PUBLIC: &str = ".well-known";

/// Whether a name on the path begins with a dot.
fn is_hidden(path: &str) -> bool {
    let path = percent_decode_str(path).collect::<Vec<_>>();
    let names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(name, [] | [b'.']));
    let mut names = names.enumerate();
    names.any(|(at, name)| name.starts_with(b".") && (at > 0 || name != PUBLIC.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::is_hidden;

    #[test]
    fn names_that_begin_with_a_dot_are_hidden() {
        for path in [
            "/.git/config",
            "/%2egit/config",
            "//.git",
            "/a%2f.env",
            "/a/.env",
            "/a/%2E%65nv",
            "/./.git",
            "/../a",
            "/.well-known/.git/config",
            "/a/.well-known/b",
            "/.well-knowns",
            "/.Well-known/a",
        ] {
            assert!(is_hidden(path), "{path}");
        }
        for path in [
            "/",
            "/a.b/c.",
            "/./a",
            "/.well-known/security.txt",
            "/%2ewell-known/acme-challenge/a",
            "/a%252f.b/c",
        ] {
            assert!(!is_hidden(path), "{path}");
        }
    }
}

//! A folder in place of a backend.

use std::path::Path;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use hyper::{Method, Request, Response, StatusCode};
use tower::ServiceExt;
use tower_http::services::ServeDir;

use crate::house::House;

use super::Answer;
use super::files::Files;
use super::kept::Page;

/// A file of the folder.
pub async fn answer(house: &House, folder: &Path, request: Request<Incoming>) -> Answer {
    let path = is_for_all_of_it(&request).then(|| request.uri().path());
    if let Some(page) = path.and_then(|path| house.kept.get(folder, path)) {
        let body = Full::from(page.bytes.clone());
        let body = body.map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(body);
        answer.headers_mut().clone_from(&page.head);
        return answer;
    }
    let path = path.map(str::to_owned);
    let files = Files::new(&house.files, path.is_some());
    let Ok(found) = ServeDir::with_backend(folder, files.clone())
        .oneshot(request)
        .await;
    if let (Some(path), StatusCode::OK, Some(whole)) = (path, found.status(), files.read()) {
        let (file, metadata, bytes) = whole;
        let page = Page {
            file,
            metadata,
            head: found.headers().clone(),
            bytes,
        };
        house.kept.put(folder, path, page);
    }
    found.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// Whether the answer does not hang on what the client has already, or on the part of it that it wants.
fn is_for_all_of_it(request: &Request<Incoming>) -> bool {
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

//! A user: requests a page with its resources, thinks, and repeats.

use std::time::Duration;

use bytes::Bytes;
use hsmux_token::{Error, Kind, Result};
use hyper::StatusCode;
use tokio::time::Instant;

use super::dial::{self, Dialer};
use super::exchange::{self, HttpAnswer};
use super::request_log::RequestLog;
use super::site::Site;
use super::{Extent, RequestPace, TlsOptions, follow};
use crate::engine::{AsyncCaller, CallerFuture};

/// Shared state of all users.
pub struct LoadContext<'a> {
    pub options: &'a TlsOptions,
    pub site: &'a Site,
    pub dialer: &'a Dialer,
    pub log: RequestLog,
}

/// The maximum number of requests for a page and its resources.
const MOST: usize = 200;

impl LoadContext<'_> {
    /// One user.
    pub fn user(&self) -> TlsUser<'_> {
        let left = match (self.options.extent, self.options.pace) {
            (Extent::Hits(hits), RequestPace::ThinkS(_)) => Some(hits),
            // With a rate, any free user takes the next hit.
            _ => None,
        };
        TlsUser {
            context: self,
            left,
            thinks: false,
        }
    }

    /// Requests the page, and its resources if enabled; returns the first error.
    async fn page(&self) -> Result<()> {
        let mut targets = vec![self.site.target()];
        let mut result = Ok(());
        let mut at = 0;
        while let Some(target) = targets.get(at).cloned() {
            at += 1;
            let answer = self.request(&target).await;
            if self.options.follow
                && let Ok(answer) = &answer
            {
                for further in self.further(&target, answer) {
                    if targets.len() < MOST && !targets.contains(&further) {
                        targets.push(further);
                    }
                }
            }
            result = result.and(answer.map(drop));
        }
        result
    }

    /// The references of an answer on this site.
    fn further(&self, target: &str, answer: &HttpAnswer) -> Vec<String> {
        let mut found = Vec::new();
        if answer.status.is_redirection() {
            found.extend(answer.location.clone());
        } else if answer.status.is_success() {
            found.extend(answer.page.iter().flat_map(|page| follow::resources(page)));
        }
        let found = found.iter();
        found
            .filter_map(|reference| self.site.same_site(target, reference))
            .collect()
    }

    /// One request on a separate connection, with its records.
    async fn request(&self, target: &str) -> Result<HttpAnswer> {
        self.log.begin();
        let began = Instant::now();
        let timeout = self.options.timeout;
        let asked = tokio::time::timeout(timeout, self.exchange(target, began)).await;
        let result = asked.unwrap_or_else(|_| Err(exchange::late(timeout)));
        match &result {
            Ok(answer) => self.log.answered(answer, answer.ended - began),
            Err(_) => self.log.unanswered(),
        }
        let answer = result?;
        match answer.status {
            status if is_success(status) => Ok(answer),
            status => Err(Error::pool(Kind::Invalid, format!("{status}: {target}"))),
        }
    }

    async fn exchange(&self, target: &str, began: Instant) -> Result<HttpAnswer> {
        let tcp = dial::connect(self.site).await?;
        let connected = Instant::now();
        let stream = self.dialer.handshake(tcp).await?;
        let resumed = stream.ssl().session_reused();
        self.log
            .handshake_done(connected - began, connected.elapsed(), resumed);
        exchange::get(stream, self.site, target, self.options.follow).await
    }
}

/// As in siege: a request for a password counts as an answer.
pub fn is_success(status: StatusCode) -> bool {
    let asks = [
        StatusCode::UNAUTHORIZED,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    ];
    status.as_u16() < 400 || asks.contains(&status)
}

/// One user.
pub struct TlsUser<'a> {
    context: &'a LoadContext<'a>,
    /// Remaining hits; `None` without a limit.
    left: Option<u64>,
    /// False before the first hit.
    thinks: bool,
}

impl AsyncCaller for TlsUser<'_> {
    fn prepare(&mut self) -> CallerFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn more(&self) -> bool {
        self.left != Some(0)
    }

    fn think(&mut self) -> CallerFuture<'_, ()> {
        let time = match self.context.options.pace {
            RequestPace::ThinkS(most) if self.thinks => most * fastrand::f64(),
            _ => 0.0,
        };
        self.thinks = true;
        Box::pin(async move {
            if time > 0.0 {
                tokio::time::sleep(Duration::from_secs_f64(time)).await;
            }
        })
    }

    fn call(&mut self) -> CallerFuture<'_, Result<Bytes>> {
        self.left = self.left.map(|left| left.saturating_sub(1));
        Box::pin(async move { self.context.page().await.map(|()| Bytes::new()) })
    }
}

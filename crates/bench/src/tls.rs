//! Load on a web server over TLS, with users like those of siege: each hit has its own connection.
//! Users are futures, so that ten thousand take one thread.

mod dial;
mod exchange;
mod figures;
mod follow;
mod page;
mod request_log;
mod site;
mod terms;
mod text;
mod user;

use std::time::Duration;

use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::engine::{self, Ending, LoadModel, Phase, Plan, Progress, RunControl, Until};
use crate::{Head, Measurement};

use dial::Dialer;
pub use figures::Figures;
use request_log::RequestLog;
pub use request_log::Times;
use site::Site;
pub use terms::{Offer, TlsParameters, Trust, Version};
use user::LoadContext;

/// Options of the load.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// `https://www.example.org/page.html`.
    pub url: String,
    /// Concurrent users; with a rate: the maximum number of concurrent connections.
    pub users: usize,
    /// The pace of a user's requests.
    pub pace: RequestPace,
    /// The end of the measurement.
    pub extent: Extent,
    /// Requests a page's images, scripts and style sheets as well, and follows redirections, on the same site.
    pub follow: bool,
    /// The share of connections that offer an earlier session, from 0 to 1.
    pub resume: f64,
    /// The parameters that the handshake offers.
    pub offer: Offer,
    /// The trusted certificates.
    pub trust: Trust,
    /// The server's name in the handshake (SNI) and certificate, if it is not the URL's.
    pub name: Option<String>,
    /// The `HOST` or `HOST:PORT` to connect to, if it is not the URL's.
    pub connect: Option<String>,
    /// The deadline of a hit.
    pub timeout: Duration,
    /// The duration of the same load before the measurement.
    pub warm_up: Duration,
    /// Processes to account for, with their descendants: the server, if it is local.
    pub processes: Vec<u32>,
}

/// The pace of a user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestPace {
    /// After a random time up to this number of seconds (siege's delay). 0 is a burst (siege's benchmark mode).
    ThinkS(f64),
    /// Hits per second of all users, independent of earlier ones.
    PerSecond(f64),
}

/// The end of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// After this time; unfinished hits are dropped and counted separately, as in siege.
    Time(Duration),
    /// After this number of hits of each user.
    Hits(u64),
}

impl TlsOptions {
    /// Defaults: 25 users for 30 seconds, with at most one second of thinking time.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            users: 25,
            pace: RequestPace::ThinkS(1.0),
            extent: Extent::Time(Duration::from_secs(30)),
            follow: false,
            resume: 0.0,
            offer: Offer::default(),
            trust: Trust::System,
            name: None,
            connect: None,
            timeout: Duration::from_secs(30),
            warm_up: Duration::ZERO,
            processes: Vec::new(),
        }
    }

    fn load(&self) -> LoadModel {
        let workers = self.users;
        match self.pace {
            RequestPace::ThinkS(_) => LoadModel::Closed { workers },
            RequestPace::PerSecond(per_second) => LoadModel::Open {
                per_second,
                workers,
            },
        }
    }

    fn until(&self) -> Until {
        match self.extent {
            Extent::Time(time) => Until::Elapsed(time),
            Extent::Hits(hits) => Until::Count(hits.saturating_mul(self.users as u64)),
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::request(Kind::Invalid, why));
        let room = crate::http::allow_connections();
        match self.pace {
            _ if self.users == 0 => wrong("at least 1 user".into()),
            _ if self.users as u64 + SPARE_FILES > room => wrong(format!(
                "{} users need as many open files, and this process may have {room} (ulimit -n)",
                self.users
            )),
            _ if !(0.0..=1.0).contains(&self.resume) => {
                wrong(format!("{} is no share from 0 to 1", self.resume))
            }
            RequestPace::ThinkS(time) if !(0.0..=86_400.0).contains(&time) => {
                wrong(format!("{time} s is no time to think"))
            }
            RequestPace::PerSecond(rate) if rate.is_nan() || rate <= 0.0 => {
                wrong(format!("{rate} is no rate"))
            }
            _ => Ok(()),
        }
    }
}

/// Open files of this process besides its connections.
const SPARE_FILES: u64 = 40;

/// The result. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TlsReport {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// The page.
    pub url: String,
    /// Concurrent users.
    pub users: usize,
    /// The pace of a user's requests.
    pub pace: RequestPace,
    /// Whether a page's resources were requested as well.
    pub follow: bool,
    /// The share of connections that offered an earlier session.
    pub resume: f64,
    /// The parameters of the first handshake.
    pub tls: TlsParameters,
    /// Siege's twelve figures, for requests: a page and each of its resources.
    pub figures: Figures,
    /// Unfinished requests at the end, which no other figure includes.
    pub unfinished: u64,
    /// Handshakes and durations.
    pub times: Times,
    /// The engine's measurement: an operation is a page, with its resources if they were requested.
    pub measurement: Measurement,
}

/// Measures. Errors of single hits are in the report; an error here means that nothing could be measured:
/// the server is down, or its certificate is not trusted.
pub fn run(options: &TlsOptions, control: RunControl<'_>) -> Result<TlsReport> {
    let (site, dialer) = open(options)?;
    let tls = dialer.probe(&site, options.timeout)?;
    let warming = |progress: &Progress| {
        (control.progress)(&Progress {
            phase: Phase::WarmUp,
            ..*progress
        });
    };
    if !options.warm_up.is_zero() {
        let control = RunControl {
            progress: &warming,
            ..control
        };
        let until = Until::Elapsed(options.warm_up);
        measure(options, until, &site, &dialer, control);
    }
    let (log, measurement) = measure(options, options.until(), &site, &dialer, control);
    Ok(TlsReport {
        head: Head::now("tls"),
        url: options.url.clone(),
        users: options.users,
        pace: options.pace,
        follow: options.follow,
        resume: options.resume,
        tls,
        figures: log.figures(measurement.elapsed_s),
        unfinished: log.unfinished(),
        times: log.times(),
        measurement,
    })
}

/// Checks that the page exists, and that its server is trusted.
pub(crate) fn answers(options: &TlsOptions) -> Result<TlsParameters> {
    let (site, dialer) = open(options)?;
    dialer.probe(&site, options.timeout)
}

fn open(options: &TlsOptions) -> Result<(Site, Dialer)> {
    options.check()?;
    let site = Site::new(&options.url, options.connect.as_deref())?;
    let dialer = Dialer::new(&site, options)?;
    Ok((site, dialer))
}

fn measure(
    options: &TlsOptions,
    until: Until,
    site: &Site,
    dialer: &Dialer,
    control: RunControl<'_>,
) -> (RequestLog, Measurement) {
    let context = LoadContext {
        options,
        site,
        dialer,
        log: RequestLog::default(),
    };
    let plan = Plan {
        load: options.load(),
        until,
        warm_up: Duration::ZERO,
        processes: options.processes.clone(),
    };
    let caller = |_| -> Box<dyn engine::AsyncCaller> { Box::new(context.user()) };
    let measurement = engine::measure_waiting(&plan, control, &caller, Ending::Cut);
    (context.log, measurement)
}

//! What each request does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_pool::{Pool, SeatState};
use hsmux_token::{Error, Kind, Result as Outcome};

use super::{
    AdminFailure, AdminRequest, AdminResponse, certificate, find, key_copies, keys, pins, status,
};
use crate::daemon::Running;

/// Making an RSA key on a slow card takes minutes.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Carries out a request; blocks.
pub fn carry_out(
    running: &Arc<Running>,
    request: &AdminRequest,
) -> Result<AdminResponse, AdminFailure> {
    let pool = &running.shared.pool;
    let deadline = Instant::now() + PATIENCE;
    Ok(match request {
        AdminRequest::Status => AdminResponse::Status(Box::new(running.status())),
        AdminRequest::Keys => AdminResponse::Keys(keys::rows(pool)),
        AdminRequest::TokenAdd { token } => AdminResponse::Lines(vec![running.add(token)?]),
        AdminRequest::TokenRemove { token, force } => {
            spare_the_last(pool, token, *force)?;
            done(running.remove(token)?)
        }
        AdminRequest::TokenPark {
            token,
            reason,
            force,
        } => {
            spare_the_last(pool, token, *force)?;
            pool.park(token, reason)?;
            done(running.keep_parked()?)
        }
        AdminRequest::TokenResume { token } => {
            pool.resume(token)?;
            running.keep_parked()?;
            AdminResponse::Lines(vec![keys::until_settled(pool, token)?])
        }
        AdminRequest::Reload => AdminResponse::Lines(running.reload()?),
        AdminRequest::ServiceRestart { service } => {
            AdminResponse::Lines(vec![running.restart_service(*service)?])
        }
        // The service tells the main thread, once the answer is out; a command does its actions itself, and
        // the trail has their lines from the service.
        AdminRequest::Stop | AdminRequest::LocalAction { .. } => AdminResponse::Done,
        AdminRequest::KeyGenerate { spec, label, id } => {
            let id = id.as_deref().map(hex).transpose()?;
            AdminResponse::Keys(keys::generate(pool, *spec, label, id, deadline)?)
        }
        AdminRequest::KeyFind { key } => AdminResponse::Keys(keys::find(pool, &find::uri(key)?)?),
        AdminRequest::KeyDelete {
            key,
            objects,
            broker_keys,
        } => {
            let entries = keys::shown(pool, &find::uri(key)?, objects)?;
            keys::spare_broker_keys(&entries, *broker_keys)?;
            AdminResponse::Lines(keys::delete(pool, entries, deadline)?)
        }
        AdminRequest::KeyVerify { key } => {
            let which = key.as_deref().map(find::uri).transpose()?;
            AdminResponse::Keys(keys::verify(pool, which.as_ref())?)
        }
        AdminRequest::KeyClone {
            key,
            from,
            to,
            wrapping_key,
        } => {
            let which = key.as_deref().map(find::uri).transpose()?;
            let wrapping = wrapping_key.as_deref().map(find::uri).transpose()?;
            AdminResponse::Lines(key_copies::clone(
                running,
                which.as_ref(),
                from.as_deref(),
                to,
                wrapping.as_ref(),
            )?)
        }
        AdminRequest::KeyCsr {
            key,
            subject,
            names,
        } => {
            let key = find::uri(key)?;
            AdminResponse::Text(certificate::request(pool, &key, subject, names, deadline)?)
        }
        AdminRequest::CertImport { der, label, id } => {
            let id = id.as_deref().map(hex).transpose()?;
            let catalogue = pool.catalogue();
            let (create, note) = certificate::import(&catalogue, hex(der)?, label.clone(), id)?;
            let mut rows = keys::make(pool, &create, deadline)?;
            if let Some(row) = rows.first_mut() {
                row.notes.extend(note);
            }
            AdminResponse::Keys(rows)
        }
        AdminRequest::PinList => AdminResponse::Pins(pins::list(&running.config())?),
        AdminRequest::PinRelease { token } => {
            let config = running.config();
            let released = pins::release(&config, token)?;
            if config.member(token).is_some() {
                pool.resume(token)?;
            }
            AdminResponse::Pins(released)
        }
        AdminRequest::PinRotate { tokens } => AdminResponse::Lines(pins::rotate(running, tokens)?),
    })
}

/// Refuses to take a member out of service without which the pool, or a key, has none left, unless it is to be so.
fn spare_the_last(pool: &Pool, member: &str, force: bool) -> Outcome<()> {
    if force {
        return Ok(());
    }
    let keys = keys::served_by_it_alone(pool, member);
    let serving = pool.status().seats.into_iter();
    let serving = serving.filter(|seat| seat.state == SeatState::InService);
    let mut others = serving.clone().filter(|seat| seat.member != member);
    let is_last = others.next().is_none() && { serving }.any(|seat| seat.member == member);
    let why = match (is_last, keys.is_empty()) {
        (false, true) => return Ok(()),
        (true, true) => "it is the last member that serves".to_owned(),
        (_, false) => format!("without it no member serves {}", keys::listed(&keys)),
    };
    let message = format!("{member}: {why}; --force does it all the same");
    Err(Error::request(Kind::Forbidden, message))
}

fn done((): ()) -> AdminResponse {
    AdminResponse::Done
}

fn hex(text: &str) -> Outcome<Vec<u8>> {
    hex::decode(text)
        .map_err(|e| Error::request(Kind::Invalid, format!("{text:?} is not hexadecimal: {e}")))
}

impl Running {
    fn status(&self) -> status::DaemonStatus {
        let pool = self.shared.pool.status();
        status::DaemonStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            config: self.file.clone(),
            config_error: self.config_error(),
            listeners: self.listeners.status(),
            peers: self.peers().status(&self.config()),
            refused: self.peers().refused(),
            services: self.services.status(),
            members: status::members(&self.shared.pool, &pool),
            audit: self.shared.audit.status(),
            pool,
        }
    }
}

//! One application: what its connections share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_pool::{Claim, ClientSession, Owner, RequestTiming};
use hsmux_token::{
    Attribute, Attributes, Batch, Done, Error, Kind, Made, Object, ObjectChanges, ObjectId,
    ObjectRef, Operation, Request, Result, SessionObject, Token, ck,
};
use hsmux_wire::{HandedOver, View};
use parking_lot::Mutex;

use crate::service::AppService;
use crate::session_objects::SessionObjectReservation;
use crate::settings::is_private;

/// How long the end of a session object may take; nobody waits for it.
const CLEANUP: Duration = Duration::from_secs(30);

/// Login state and session objects of one C_Initialize.
pub struct Application {
    /// The listener.
    pub service: Arc<AppService>,
    /// Its session with the pool, where its session objects live together.
    pub pool_session: ClientSession,
    owner: Owner,
    logged_in: AtomicBool,
    /// If this is another host: the objects that it was last told of.
    told: Mutex<Option<Arc<View>>>,
    objects: Mutex<OwnedObjects>,
    /// Connections that are handed over to workers.
    direct: Mutex<Vec<HandedOver>>,
    /// Requests of a service by its own numbers. `None`: it is being submitted.
    withdrawable: Mutex<HashMap<u64, Option<Claim>>>,
}

#[derive(Default)]
struct OwnedObjects {
    owned: HashMap<SessionObject, OwnedObject>,
    ended: bool,
}

/// A session object.
struct OwnedObject {
    /// The attributes that do not change while it lives.
    known: Arc<Object>,
    reserved: SessionObjectReservation,
}

impl Application {
    /// A new application: not logged in, without objects.
    pub fn new(service: Arc<AppService>, account: u32) -> Self {
        let owner = service.owner(account);
        Self {
            pool_session: ClientSession::of(Arc::clone(&service.shared.pool), owner),
            owner,
            service,
            told: Mutex::default(),
            logged_in: AtomicBool::new(false),
            objects: Mutex::default(),
            direct: Mutex::default(),
            withdrawable: Mutex::default(),
        }
    }

    /// Submits a request that the service may withdraw by this number.
    pub fn submit_withdrawable(
        self: &Arc<Self>,
        number: u64,
        owner: Owner,
        request: Request,
        timing: Option<Arc<RequestTiming>>,
    ) {
        if !self.reserve_number(number) {
            let message = format!("another request has the number {number}");
            let refused = Error::request(Kind::Invalid, message);
            return request.done.complete(Err(refused));
        }
        let (application, done) = (Arc::downgrade(self), request.done);
        let done = Done::new(move |result| {
            if let Some(application) = application.upgrade() {
                let claim = application.take_claim(number);
                drop(claim);
            }
            done.complete(result);
        });
        let request = Request { done, ..request };
        let pool = &self.service.shared.pool;
        let claim = pool.submit_claimed(request, owner, timing);
        let unwanted = self.put_claim(number, claim);
        drop(unwanted);
    }

    fn reserve_number(&self, number: u64) -> bool {
        match self.withdrawable.lock().entry(number) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(None);
                true
            }
        }
    }

    /// Dropping the claim completes the request, which takes the lock: it is dropped by the caller.
    fn take_claim(&self, number: u64) -> Option<Claim> {
        self.withdrawable.lock().remove(&number).flatten()
    }

    /// Answers the claim if the request was answered or withdrawn while it was submitted.
    fn put_claim(&self, number: u64, claim: Claim) -> Option<Claim> {
        match self.withdrawable.lock().get_mut(&number) {
            Some(place) => {
                *place = Some(claim);
                None
            }
            None => Some(claim),
        }
    }

    /// Cancels these requests, if they still wait.
    pub fn withdraw(&self, numbers: &[u64]) {
        let claims: Vec<_> = numbers
            .iter()
            .map(|number| self.take_claim(*number))
            .collect();
        // They are answered here.
        drop(claims);
    }

    /// Notes a direct connection, which ends with the login.
    pub fn note_direct(&self, handed: HandedOver) {
        let mut direct = self.direct.lock();
        direct.retain(HandedOver::is_open);
        direct.push(handed);
    }

    /// True after a successful C_Login.
    pub fn logged_in(&self) -> bool {
        self.logged_in.load(Ordering::Acquire)
    }

    /// Logs in, after a successful C_Login.
    pub fn log_in(&self) {
        self.logged_in.store(true, Ordering::Release);
    }

    /// C_Logout: destroys private session objects (PKCS#11 3.0, section 5.6.9).
    pub fn log_out(&self) {
        self.logged_in.store(false, Ordering::Release);
        let direct = std::mem::take(&mut *self.direct.lock());
        direct.iter().for_each(HandedOver::end);
        let mut gone = Vec::new();
        self.objects.lock().owned.retain(|object, owned| {
            let private = is_private(&owned.known);
            if private {
                gone.push(*object);
            }
            !private
        });
        self.destroy(gone);
    }

    /// The attributes of a session object that do not change, if it belongs to this application.
    pub fn owned(&self, object: &SessionObject) -> Option<Arc<Object>> {
        let objects = self.objects.lock();
        let owned = objects.owned.get(object);
        owned.map(|owned| Arc::clone(&owned.known))
    }

    /// The size of a session object in bytes.
    pub fn bytes_of(&self, object: &SessionObject) -> usize {
        let objects = self.objects.lock();
        objects
            .owned
            .get(object)
            .map_or(0, |owned| owned.reserved.bytes())
    }

    /// A session object grows by so many bytes.
    pub fn grow(&self, object: &SessionObject, bytes: usize) {
        if let Some(owned) = self.objects.lock().owned.get_mut(object) {
            owned.reserved.grow(bytes);
        }
    }

    /// Takes over the new objects of an operation's outcome. Private objects that arrive after a C_Logout are destroyed
    /// at once.
    pub fn keep(&self, made: &[Made]) -> Result<()> {
        let new = made
            .iter()
            .filter_map(|made| Some((made.session?, self.own(&made.object))));
        let new: Vec<_> = new.collect();
        let mut objects = self.objects.lock();
        // Checked under the lock: either this sees the C_Logout, or the C_Logout sees the objects.
        let too_late = !self.logged_in() && new.iter().any(|(_, new)| is_private(&new.known));
        if !objects.ended && !too_late {
            objects.owned.extend(new);
            return Ok(());
        }
        drop(objects);
        self.destroy(new.into_iter().map(|(object, _)| object).collect());
        let message = "a private session object needs a login, which has ended meanwhile";
        Err(Error::request(Kind::NotLoggedIn, message))
    }

    /// Forgets an object that is gone, or is about to be.
    pub fn forget(&self, object: &SessionObject) {
        self.objects.lock().owned.remove(object);
    }

    /// The changes since the last call; the first time everything.
    pub fn tell(&self, now: &Arc<View>) -> ObjectChanges {
        let before = self.told.lock().replace(Arc::clone(now));
        match before {
            Some(before) if before.epoch == now.epoch => ObjectChanges::default(),
            before => difference(before.as_deref(), now),
        }
    }

    /// The last connection has closed.
    pub fn end(&self) {
        let waiting = std::mem::take(&mut *self.withdrawable.lock());
        drop(waiting);
        let mut objects = self.objects.lock();
        objects.ended = true;
        let owned = std::mem::take(&mut objects.owned);
        drop(objects);
        self.destroy(owned.into_keys().collect());
    }

    fn own(&self, object: &Object) -> OwnedObject {
        let all = &self.service.shared.session_objects;
        OwnedObject {
            known: Arc::new(lasting(object)),
            reserved: all.take_object(self.owner, object.bytes()),
        }
    }

    /// Reserves memory for the session objects that an operation will make or extend. Keep it until the operation ends.
    pub fn room_for(&self, operation: &Operation) -> Result<Option<SessionObjectReservation>> {
        let all = &self.service.shared.session_objects;
        all.take_for(self.owner, operation)
    }

    fn destroy(&self, objects: Vec<SessionObject>) {
        if objects.is_empty() {
            return;
        }
        let deadline = Instant::now() + CLEANUP;
        let request = |object| Request {
            behalf: None,
            operation: Operation::Destroy {
                object: ObjectRef::Session(object),
            },
            deadline,
            // If the worker is gone, its objects are gone as well.
            done: Done::new(|_| {}),
        };
        let batch: Batch = objects.into_iter().map(request).collect();
        self.pool_session.submit(batch);
    }
}

/// The attributes of a session object that decide about rights and that C_SetAttributeValue cannot change.
fn lasting(object: &Object) -> Object {
    let lasts = |attribute: &&Attribute| attribute.kind == ck::CKA_PRIVATE;
    // Copied, because a slice would keep its whole frame in memory.
    let copied = |attribute: &Attribute| Attribute {
        kind: attribute.kind,
        value: attribute.value.to_vec().into(),
    };
    let attributes = object.attributes.0.iter().filter(lasts);
    Object {
        id: object.id,
        attributes: Attributes(attributes.map(copied).collect()),
    }
}

/// The difference between two views. The objects of both are sorted by their names.
fn difference(before: Option<&View>, now: &View) -> ObjectChanges {
    let before = before.map_or(&[][..], |before| &before.objects);
    let find = |objects: &[Object], id: &ObjectId| {
        let at = objects.binary_search_by_key(id, |object| object.id);
        at.ok().map(|at| objects[at].clone())
    };
    let new = |object: &&Object| find(before, &object.id).as_ref() != Some(*object);
    let gone = |object: &&Object| find(&now.objects, &object.id).is_none();
    ObjectChanges {
        is_partial: false,
        made: now.objects.iter().filter(new).cloned().collect(),
        gone: before.iter().filter(gone).map(|object| object.id).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::{Receiver, channel};

    use hsmux_pool::Seat;
    use hsmux_token::Outcome;
    use hsmux_token::fake::FakeToken;

    use super::*;
    use crate::Daemon;
    use crate::settings::{Clients, Settings};

    const LONG: Duration = Duration::from_secs(60);

    fn daemon(folder: &std::path::Path, token: &Arc<FakeToken>) -> Daemon {
        let file = folder.join("hsmux.toml");
        let text = "[pool]\nlabel = \"web\"\n[daemon]\nsocket = \"hsmux.sock\"\nlogin = \"peer\"\n\
            [[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";
        fs::write(&file, text).unwrap();
        let config = hsmux_config::load(&file).unwrap_or_else(|m| panic!("{m:#?}"));
        let token = Arc::clone(token);
        let seat = Seat {
            name: "a".into(),
            member: "a".into(),
            weight: 1,
            timeout: LONG,
            connector: Arc::new(move || Ok(Arc::clone(&token) as Arc<dyn Token>)),
        };
        Daemon::start_with(config, vec![seat]).unwrap()
    }

    fn ask(application: &Arc<Application>, number: u64) -> Receiver<Result<Outcome>> {
        let (tell, told) = channel();
        let request = Request {
            behalf: None,
            operation: Operation::Random { len: 8 },
            deadline: Instant::now() + LONG,
            done: Done::new(move |result| drop(tell.send(result))),
        };
        application.submit_withdrawable(number, Owner::Broker(1), request, None);
        told
    }

    #[test]
    fn a_request_is_withdrawn_by_its_number_which_no_other_may_have() {
        let folder = tempfile::tempdir().unwrap();
        let token = FakeToken::builder("a").build();
        let daemon = daemon(folder.path(), &token);
        let running = daemon.running();
        let settings = Settings::of_service(&running.config(), Clients::Broker);
        let service = AppService::new(Arc::clone(&running.shared), settings);
        let application = Arc::new(Application::new(service, 0));
        token.hang();
        let runs = ask(&application, 1);
        let waits = ask(&application, 2);
        let kind = |told: &Receiver<Result<Outcome>>| {
            let told = told.recv_timeout(LONG).unwrap();
            told.map(drop).map_err(|error| error.kind())
        };
        assert_eq!(kind(&ask(&application, 2)), Err(Kind::Invalid));
        application.withdraw(&[1, 2, 3]);
        assert_eq!(kind(&waits), Err(Kind::Deadline));
        token.heal();
        assert_eq!(kind(&runs), Ok(()));
        assert!(application.withdrawable.lock().is_empty());
    }
}

//! Clients of several owners, and what they ask for.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{
    Attributes, Behalf, Done, Mechanism, ObjectRef, Operation, Request, SessionObject, Verb, ck,
};

use super::keys;
use super::requests::RequestModel;
use super::world::World;
use crate::client_session::{ClientConnection, ClientSession};
use crate::{Owner, Pool};
use hsmux_token::fake::Random;

pub(super) struct Client {
    session: ClientSession,
    connection: ClientConnection,
    owner: Owner,
    session_objects: Vec<SessionObject>,
}

impl Client {
    pub fn new(pool: &Arc<Pool>, number: usize) -> Self {
        let owner = [
            Owner::User(1),
            Owner::Broker(1),
            Owner::Broker(2),
            Owner::Service,
        ][number % 4];
        let session = ClientSession::of(Arc::clone(pool), owner);
        Self {
            connection: session.connect(),
            session,
            owner,
            session_objects: Vec::new(),
        }
    }

    /// Asks for something.
    pub fn ask(&mut self, world: &Arc<World>, pool: &Arc<Pool>, client: usize) {
        let number = world.number();
        let mut state = world.state();
        let made = state.requests.made.iter();
        let own = made
            .filter(|(by, _)| *by == client)
            .map(|(_, object)| *object);
        self.session_objects.extend(own);
        state.requests.made.retain(|(by, _)| *by != client);
        drop(state);
        let (operation, time, claims) = world.executor.random(|random| {
            let operation = self.operation(random, number);
            // From a moment to half a minute.
            let time = Duration::from_micros(200 << random.below(18));
            (operation, time, random.one_in(2))
        });
        let deadline = world.now() + time;
        let model = RequestModel::new(client, operation.clone(), deadline);
        world.state().requests.add(number, model);
        let told = Arc::clone(world);
        let request = Request {
            behalf: Some(Box::new(Behalf {
                request: number,
                ..Behalf::default()
            })),
            operation,
            deadline,
            done: Done::new(move |result| told.answered(number, &result)),
        };
        if claims {
            let claim = pool.submit_claimed(request, self.owner, None);
            let unused = world.state().requests.keep_claim(number, claim);
            drop(unused);
        } else {
            self.connection.submit([(request, None)]);
        }
    }

    /// Ends its connection, and opens another one.
    pub fn reconnect(&mut self) {
        self.connection.end();
        self.connection = self.session.connect();
    }

    fn operation(&mut self, random: &mut Random, number: u64) -> Operation {
        let session_object = match self.session_objects[..] {
            [] => None,
            _ => Some(*random.pick(&self.session_objects)),
        };
        let data = number.to_be_bytes();
        match random.below(12) {
            0 => Operation::Random { len: 8 },
            // A long one.
            1 => Operation::Random { len: 1 << 20 },
            2 => Operation::Generate {
                mechanism: Mechanism::plain(ck::CKM_AES_KEY_GEN),
                template: Attributes::default().with_flag(ck::CKA_TOKEN, false),
            },
            3 | 4 if let Some(object) = session_object => Operation::Use {
                verb: Verb::Encrypt,
                key: ObjectRef::Session(object),
                mechanism: Mechanism::plain(ck::CKM_AES_ECB),
                data: data.to_vec().into(),
            },
            5 if let Some(object) = session_object => {
                self.session_objects.retain(|other| *other != object);
                Operation::Destroy {
                    object: ObjectRef::Session(object),
                }
            }
            _ => {
                let key = random.below(keys::SECRET as u64 + 1) as usize;
                let verb = match key {
                    keys::SECRET => Verb::Encrypt,
                    _ if random.one_in(6) => Verb::Decrypt,
                    _ => Verb::Sign,
                };
                Operation::Use {
                    verb,
                    key: keys::id(key).into(),
                    mechanism: keys::mechanism(key),
                    data: data.repeat(2).into(),
                }
            }
        }
    }
}

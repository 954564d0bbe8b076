//! Faults of tokens, by choice of the seed, and their end.

use std::collections::BTreeSet;
use std::time::Duration;

use super::keys;
use super::token::Refusal;
use super::world::World;

impl World {
    /// One fault, or the end of one.
    pub fn fault(&self) {
        let count = self.state().tokens.len() as u64;
        let (token, what, key) = self.executor.random(|random| {
            (
                random.below(count) as usize,
                random.below(22),
                random.below(keys::SECRET as u64 + 1) as usize,
            )
        });
        self.executor
            .tell(|| format!("fault {what} of {token}, key {key}"));
        let alive = self.alive(token);
        let one = match alive[..] {
            [] => None,
            _ => Some(self.executor.random(|random| *random.pick(&alive))),
        };
        match what {
            0..3 => self.lose_all(one),
            3..5 => self.set_hung(one, true),
            5 => self.set_hung(one, false),
            6 => self.lose_all(alive),
            7 => {
                self.state().tokens[token].refusal = Refusal::Failure;
                self.lose_all(one);
            }
            8 => {
                self.state().tokens[token].refusal = Refusal::Pin;
                self.lose_all(one);
            }
            9..12 => {
                let refusal = &mut self.state().tokens[token].refusal;
                // A refused PIN is for the administrator.
                if *refusal == Refusal::Failure {
                    *refusal = Refusal::None;
                }
            }
            12 | 13 => self.change_keys(token, key),
            14 => {
                // The secret key of the first member is the right one, by definition.
                if key != keys::SECRET || token > 0 {
                    let mut state = self.state();
                    let false_keys = &mut state.tokens[token].false_keys;
                    if !false_keys.remove(&key) {
                        false_keys.insert(key);
                    }
                    drop(state);
                    self.lose_all(alive);
                }
            }
            15 => {
                let mut state = self.state();
                state.tokens[token].serial += 1;
                state.tokens[token].proved.clear();
                drop(state);
                self.lose_all(alive);
            }
            16 => self.state().tokens[token].slowness = Duration::from_secs(60),
            17 => self.slow_down(one),
            18 => {
                self.change_keys(token, key);
                self.slow_down(one);
            }
            19 => self.make_blind(one),
            20 => {
                let mut state = self.state();
                let model = &mut state.tokens[token];
                model.lanes = model.lanes % 4 + 1;
                model.has_grown = true;
            }
            _ => self.state().tokens[token].slowness = Duration::from_millis(1),
        }
    }

    fn lose_all(&self, connections: impl IntoIterator<Item = u64>) {
        for connection in connections {
            self.lose(connection);
        }
    }

    fn set_hung(&self, connection: Option<u64>, is_hung: bool) {
        let mut state = self.state();
        let model = connection.and_then(|number| state.connections.get_mut(&number));
        if let Some(model) = model.filter(|model| model.ended.is_none()) {
            model.is_hung = is_hung;
        }
    }

    /// The operations of a connection take much longer from now on.
    fn slow_down(&self, connection: Option<u64>) {
        let mut state = self.state();
        let model = connection.and_then(|number| state.connections.get_mut(&number));
        if let Some(model) = model {
            model.pace = Duration::from_micros(100);
        }
    }

    /// A connection sees no more changes of the token.
    fn make_blind(&self, connection: Option<u64>) {
        let mut state = self.state();
        let model = connection.and_then(|number| state.connections.get_mut(&number));
        if let Some(model) = model {
            model.is_blind = true;
        }
    }

    /// Somebody else adds a key to the token, or removes one.
    fn change_keys(&self, token: usize, key: usize) {
        if key == keys::SECRET && token == 0 {
            return;
        }
        let mut state = self.state();
        let model = &mut state.tokens[token];
        model.is_changed = true;
        if !model.keys.remove(&key) {
            model.keys.insert(key);
        }
    }

    /// No more faults. Everything has what it had at first; `all`: all connections are made anew.
    pub fn heal(&self, all: bool) {
        let mut lost = Vec::new();
        for token in 0..self.plan.tokens.len() {
            let alive = self.alive(token);
            let mut state = self.state();
            let at_first = self.plan.tokens[token].model();
            let model = &mut state.tokens[token];
            let is_changed =
                model.is_changed || !model.false_keys.is_empty() || model.serial != at_first.serial;
            let refused = std::mem::take(&mut model.refused);
            let pin = (model.is_pin_held, refused, model.resuming);
            let mut proved = std::mem::take(&mut model.proved);
            if model.serial != at_first.serial {
                proved.clear();
            }
            *model = at_first;
            (model.is_pin_held, model.refused, model.resuming) = pin;
            model.proved = proved;
            lost.extend(alive.into_iter().filter(|number| {
                let connection = &state.connections[number];
                let is_false = connection.false_keys != BTreeSet::new();
                let is_blind = connection.is_blind;
                all || is_changed || is_false || is_blind || connection.serial != 0
            }));
        }
        for connection in self.state().connections.values_mut() {
            connection.is_hung = false;
        }
        self.state().is_healed = true;
        self.lose_all(lost);
    }
}

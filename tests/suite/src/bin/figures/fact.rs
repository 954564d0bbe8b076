//! A single figure with its bound.

use std::fmt;

use serde::Serialize;

use crate::page::verdict;

/// A value with an optional bound.
#[derive(Serialize)]
pub struct Fact {
    name: String,
    value: f64,
    unit: &'static str,
    limit: Option<Limit>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Fact {
    /// A value without a bound.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            limit: None,
        }
    }

    /// Sets an upper bound.
    pub fn at_most(self, bound: f64) -> Self {
        Self {
            limit: Some(Limit::AtMost(bound)),
            ..self
        }
    }

    /// Sets a lower bound.
    pub fn at_least(self, bound: f64) -> Self {
        Self {
            limit: Some(Limit::AtLeast(bound)),
            ..self
        }
    }

    /// Whether it keeps its bound.
    pub fn reached(&self) -> bool {
        match self.limit {
            None => true,
            Some(Limit::AtMost(bound)) => self.value <= bound,
            Some(Limit::AtLeast(bound)) => self.value >= bound,
        }
    }

    /// Its line of the table of figures: name, value, rounds, goal, verdict.
    pub fn row(&self) -> [String; 5] {
        let shown = |value: f64| format!("{} {}", number(value), self.unit);
        let (goal, verdict) = match self.limit {
            None => ("-".to_owned(), "shown beside"),
            Some(Limit::AtMost(bound)) => {
                (format!("at most {}", shown(bound)), verdict(self.reached()))
            }
            Some(Limit::AtLeast(bound)) => (
                format!("at least {}", shown(bound)),
                verdict(self.reached()),
            ),
        };
        let once = "1".to_owned();
        [
            self.name.clone(),
            shown(self.value),
            once,
            goal,
            verdict.to_owned(),
        ]
    }
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value.abs() < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, value, _, goal, verdict] = self.row();
        match self.limit {
            None => write!(f, "{name}: {value}"),
            Some(_) => write!(f, "{name}: {value}   goal {goal}   {verdict}"),
        }
    }
}

//! Faults of a card on request.

use std::str::FromStr;
use std::time::Duration;

use hsmux_smartcard::StatusWord;
use serde::{Deserialize, Serialize};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// The card neither answers nor acts.
    Mute,
    /// The answer comes so many milliseconds later.
    Slow(u64),
    /// SIGN returns 9000 and an invalid signature.
    WrongSignature,
    /// The command is refused with this status word and has no effect.
    Status(u16),
    /// Power is lost after this many of the command's commits: 0 loses all of them;
    /// a number beyond the last loses only the answer.
    PowerLoss(u32),
}

/// A fault, and the commands that it affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// What goes wrong.
    pub fault: Fault,
    /// Only commands with this instruction byte; none: all commands.
    #[serde(default)]
    pub ins: Option<u8>,
    /// How many commands it affects; none: until [`Order::Clear`].
    #[serde(default)]
    pub times: Option<u32>,
}

/// An order to a card, in JSON on a control socket or in a file: `"unplug"`,
/// `{"fault":{"fault":{"slow":200},"ins":104,"times":1}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Pulls the card.
    Unplug,
    /// Plugs it in again.
    Plug,
    /// Adds a fault.
    Fault(Trigger),
    /// Ends all faults.
    Clear,
}

impl Order {
    /// Limits a fault to so many commands, or to this instruction byte; other orders are unchanged.
    #[must_use]
    pub fn only(self, times: Option<u32>, ins: Option<u8>) -> Self {
        match self {
            Self::Fault(trigger) => Self::Fault(Trigger {
                times: times.or(trigger.times),
                ins: ins.or(trigger.ins),
                ..trigger
            }),
            other => other,
        }
    }
}

/// An unknown order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is none of unplug, plug, clear, mute, slow=MS, wrong-signature, status=WORD (hexadecimal), power-loss=CHANGES"
)]
pub struct OrderError(String);

impl FromStr for Order {
    type Err = OrderError;

    /// Parses an order of the command line: `unplug`, `slow=200`, `status=6F00`. Faults affect every command.
    fn from_str(text: &str) -> Result<Self, OrderError> {
        let fault = match text.split_once('=') {
            None => match text {
                "unplug" => return Ok(Self::Unplug),
                "plug" => return Ok(Self::Plug),
                "clear" => return Ok(Self::Clear),
                "mute" => Some(Fault::Mute),
                "wrong-signature" => Some(Fault::WrongSignature),
                _ => None,
            },
            Some(("slow", ms)) => ms.parse().ok().map(Fault::Slow),
            Some(("status", word)) => u16::from_str_radix(word, 16).ok().map(Fault::Status),
            Some(("power-loss", changes)) => changes.parse().ok().map(Fault::PowerLoss),
            Some(_) => None,
        };
        let fault = fault.ok_or_else(|| OrderError(text.to_owned()))?;
        Ok(Self::Fault(fault.always()))
    }
}

impl Fault {
    /// The fault for the next command only.
    pub fn once(self) -> Trigger {
        self.times(1)
    }

    /// The fault for so many commands.
    pub fn times(self, times: u32) -> Trigger {
        Trigger {
            times: Some(times),
            ..self.always()
        }
    }

    /// The fault for every command.
    pub fn always(self) -> Trigger {
        Trigger {
            fault: self,
            ins: None,
            times: None,
        }
    }
}

impl Trigger {
    /// Limits it to commands with this instruction byte.
    #[must_use]
    pub fn on(self, ins: u8) -> Self {
        Self {
            ins: Some(ins),
            ..self
        }
    }
}

/// The combined effect of all faults on one command.
#[derive(Default)]
pub(crate) struct Effects {
    pub mute: bool,
    pub slow: Duration,
    pub wrong_signature: bool,
    pub status: Option<StatusWord>,
    pub power_loss: Option<u32>,
}

impl FromIterator<Fault> for Effects {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        let mut effects = Self::default();
        for fault in faults {
            match fault {
                Fault::Mute => effects.mute = true,
                Fault::Slow(ms) => effects.slow += Duration::from_millis(ms),
                Fault::WrongSignature => effects.wrong_signature = true,
                Fault::Status(word) => effects.status = Some(StatusWord(word)),
                Fault::PowerLoss(commits) => effects.power_loss = Some(commits),
            }
        }
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_in_json() {
        let order = |text| serde_json::from_str::<Order>(text);
        assert_eq!(order("\"unplug\"").unwrap(), Order::Unplug);
        assert_eq!(
            order(r#"{"fault":{"fault":{"status":28416},"ins":104,"times":3}}"#).unwrap(),
            Order::Fault(Fault::Status(0x6F00).times(3).on(0x68))
        );
        assert_eq!(
            order(r#"{"fault":{"fault":"mute"}}"#).unwrap(),
            Order::Fault(Fault::Mute.always())
        );
        assert!(order(r#"{"fault":{"fault":"mute","time":1}}"#).is_err());
    }

    #[test]
    fn orders_in_words() {
        let order = |text: &str| text.parse::<Order>();
        assert_eq!(order("plug").unwrap(), Order::Plug);
        let slow = Order::Fault(Fault::Slow(250).always());
        assert_eq!(order("slow=250").unwrap(), slow);
        let refused = Order::Fault(Fault::Status(0x6F00).always());
        assert_eq!(order("status=6F00").unwrap(), refused);
        for wrong in ["", "slow", "slow=x", "mute=1", "status=10000", "explode"] {
            assert!(order(wrong).unwrap_err().to_string().contains("unplug"));
        }
    }
}

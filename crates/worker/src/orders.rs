//! What a worker is told at its start.

use hsmux_config::Identity;
use hsmux_module::Options;
use hsmux_token::{Error, Result, Secret};
use minicbor::{Decode, Encode};
use zeroize::Zeroize;

use crate::sandbox::Sandbox;

/// Which token a worker is to serve.
pub(super) enum Order {
    /// One of a vendor's module.
    Module(Box<ModuleOrder>),
    /// Another host's.
    Link(LinkOptions),
}

/// A token of a vendor's module, and what the module may do.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array)]
pub(super) struct ModuleOrder {
    #[n(0)]
    pub options: Options,
    #[n(1)]
    pub sandbox: Sandbox,
}

/// How a worker gets to another host.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct LinkOptions {
    /// The member, for messages; and what the host's certificate is to say.
    #[n(0)]
    pub name: String,
    /// Host and port.
    #[n(1)]
    pub address: String,
    /// At most so many operations at once.
    #[n(2)]
    pub lanes: u32,
    /// What this host shows.
    #[n(3)]
    pub identity: Identity,
}

impl Order {
    /// The argument that the worker's program is started with.
    pub fn role(&self) -> &'static str {
        match self {
            Self::Module(_) => "worker",
            Self::Link(_) => "link",
        }
    }

    /// For messages.
    pub fn called(&self) -> String {
        match self {
            Self::Module(order) => format!("the worker of {}", order.options.name),
            Self::Link(options) => format!("the link to {}", options.name),
        }
    }

    /// How many lanes there are to be at most.
    pub fn lanes(&self) -> u32 {
        match self {
            Self::Module(order) => order.options.sessions,
            Self::Link(options) => options.lanes,
        }
    }

    /// As it travels.
    pub fn written(&self) -> Result<Secret> {
        let mut bytes = Vec::with_capacity(4096);
        let written = match self {
            Self::Module(order) => minicbor::encode(&**order, &mut bytes),
            Self::Link(options) => minicbor::encode(options, &mut bytes),
        };
        written.map_err(|error| {
            bytes.zeroize();
            let message = format!("what a worker is to do cannot be encoded: {error}");
            Error::protocol(message)
        })?;
        Ok(Secret::new(bytes))
    }
}

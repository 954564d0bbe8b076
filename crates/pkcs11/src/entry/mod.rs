//! The exported functions: each is a guard, pointers that become slices, and a call into safe code.
//!
//! PKCS#11 3.0, section 5. Functions of one shape are in the tables at the end of a family.

mod crypt;
#[doc(hidden)]
pub mod fuzzing;
mod general;
mod guard;
mod key;
mod list;
mod mechanism;
mod message;
mod object;
mod pointer;
mod session;
mod slot;
mod template;

pub use crypt::*;
pub use general::*;
pub use key::*;
pub use list::*;
pub use message::*;
pub use object::*;
pub use session::*;
pub use slot::*;

pub(crate) use guard::caught;
pub(crate) use pointer::{Output, padded};

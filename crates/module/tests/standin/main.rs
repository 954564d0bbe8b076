//! [`hsmux_module::ModuleToken`] on a stand-in module with configurable faults.
//! Each test has a copy of the module under a name of its own, so that all run in one process.

mod child;
mod faults;
mod fixture;
mod pin_rotation;
mod pins;
mod slots;

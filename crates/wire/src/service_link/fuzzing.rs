//! Entry for fuzz targets: a packet of one end of a service's link, as the other reads it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags, recv};

use super::{FromService, LONGEST, ServiceLink, ToService, sealed, unexpected};
use crate::descriptors::send;

/// Both ends of a link. A fuzzer writes to one of them.
pub struct FuzzedLink {
    daemon: ServiceLink,
    service: ServiceLink,
}

/// What a packet of a fuzzer brings along.
#[derive(Clone, Copy, Debug)]
pub enum PassedDescriptor<'a> {
    /// Nothing.
    Nothing,
    /// A socket.
    Socket,
    /// Two sockets.
    TwoSockets,
    /// A file with this text that nobody can change.
    Sealed(&'a str),
}

impl Default for FuzzedLink {
    fn default() -> Self {
        let (daemon, service) = ServiceLink::pair().expect("a pair of sockets");
        Self {
            daemon,
            service: ServiceLink::of_service(service),
        }
    }
}

impl FuzzedLink {
    /// A packet of a service, as the daemon reads it.
    pub fn attend(
        &self,
        packet: &[u8],
        descriptor: PassedDescriptor<'_>,
    ) -> io::Result<FromService> {
        pass(&self.service, packet, descriptor)?;
        self.daemon.attend()
    }

    /// A packet of the daemon, as a service reads it.
    pub fn hear(&self, packet: &[u8], descriptor: PassedDescriptor<'_>) -> io::Result<ToService> {
        pass(&self.daemon, packet, descriptor)?;
        self.service.hear()
    }

    /// The packet of this message of a service.
    pub fn of_service(&self, message: FromService) -> Vec<u8> {
        self.service
            .report(message)
            .expect("a message that was read");
        packet(&self.daemon)
    }

    /// The packet of this message of the daemon.
    pub fn of_daemon(&self, message: &ToService) -> Vec<u8> {
        self.daemon.tell(message).expect("a message that was read");
        packet(&self.service)
    }
}

fn pass(over: &ServiceLink, packet: &[u8], descriptor: PassedDescriptor<'_>) -> io::Result<()> {
    if packet.is_empty() {
        return Err(unexpected());
    }
    let descriptors: Vec<OwnedFd> = match descriptor {
        PassedDescriptor::Nothing => Vec::new(),
        PassedDescriptor::Socket => vec![over.as_fd().try_clone_to_owned()?],
        PassedDescriptor::TwoSockets => {
            vec![
                over.as_fd().try_clone_to_owned()?,
                over.as_fd().try_clone_to_owned()?,
            ]
        }
        PassedDescriptor::Sealed(text) => vec![sealed(text)?.into()],
    };
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    send(over, packet, &descriptors, SendFlags::DONTWAIT)
}

fn packet(end: &ServiceLink) -> Vec<u8> {
    let mut bytes = vec![0; LONGEST];
    let (read, _) = recv(end, &mut bytes[..], RecvFlags::DONTWAIT).expect("the packet");
    bytes.truncate(read);
    bytes
}

//! System calls that no PKCS#11 module needs, and those that open the network.

use std::collections::BTreeMap;

use nix::libc;
use nix::syslog::{Facility, LogFlags, openlog};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// Calls that look into other processes, start programs, or change the system. They answer EACCES.
const REFUSED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Those of them that other processors do not have.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Sockets that a module may make. Pairs of them are allowed to all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sockets {
    /// None: Unix sockets lead to the administration, and to other services that believe this user.
    Nothing,
    /// Unix sockets: pcscd has one.
    Unix,
    All,
}

/// Refuses them to all threads of this process.
pub(super) fn confine(sockets: Sockets) -> Result<(), seccompiler::Error> {
    let refused = REFUSED.iter().chain(REFUSED_HERE);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        refused.map(|call| (*call, Vec::new())).collect();
    match sockets {
        Sockets::Nothing => {
            // The one that it has: SoftHSM's log goes there.
            let _ = openlog(None, LogFlags::LOG_NDELAY, Facility::LOG_USER);
            rules.insert(libc::SYS_socket, Vec::new());
        }
        Sockets::Unix => {
            let unix = u64::from(libc::AF_UNIX.cast_unsigned());
            let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?;
            rules.insert(libc::SYS_socket, vec![SeccompRule::new(vec![other])?]);
        }
        Sockets::All => {}
    }
    let refuse = SeccompAction::Errno(libc::EACCES.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    let program: BpfProgram = filter.try_into().map_err(|error: BackendError| error)?;
    seccompiler::apply_filter_all_threads(&program)
}

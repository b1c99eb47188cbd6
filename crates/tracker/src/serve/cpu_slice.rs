//! A short scheduler time slice for the announce threads (ADR 20).
//!
//! An announce thread works for some ten microseconds and then waits for packets. Since Linux 6.12
//! a thread that wakes with a shorter slice than the running thread preempts it at once, instead of
//! after up to three milliseconds. Its share of the CPU stays the same.

#![expect(
    unsafe_code,
    reason = "no crate offers this system call for ordinary threads"
)]

use std::io;

/// The requested slice in nanoseconds, the shortest that the kernel grants.
const SLICE: u64 = 100_000;

/// Requests a short slice for the calling thread. Older kernels accept the call without effect.
pub(super) fn request_short_slice() -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: SLICE,
        sched_deadline: 0,
        sched_period: 0,
    };
    const THIS_THREAD: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;
    // SAFETY: the kernel reads `size` bytes from the pointer, which is exactly `attributes`, and
    // does not keep the pointer.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            THIS_THREAD,
            &raw const attributes,
            NO_FLAGS,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::request_short_slice;
    use rustix::process::{getpriority_process, setpriority_process};

    #[test]
    fn a_short_slice_keeps_the_nice_value() {
        let thread = std::thread::spawn(|| {
            setpriority_process(None, 3).expect("a thread may raise its nice value");
            request_short_slice().expect("any thread may request a slice");
            getpriority_process(None)
        });
        assert_eq!(thread.join().expect("no panic"), Ok(3));
    }
}

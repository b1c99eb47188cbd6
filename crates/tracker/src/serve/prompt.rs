//! How soon a thread that answers clients is given a processor. It works for some ten microseconds
//! at a time and then waits, so it asks the scheduler for short turns: since Linux 6.12, whoever
//! wakes with a shorter turn than the thread that runs takes its place at once, instead of after up
//! to three milliseconds. It gets no more of the processor for it.

#![expect(
    unsafe_code,
    reason = "no crate offers this system call for ordinary threads"
)]

use std::io;

/// The turn that is asked for, in nanoseconds; the shortest that the kernel grants.
const TURN: u64 = 100_000;

/// Asks for short turns for the calling thread. Older kernels take the call and change nothing.
pub(super) fn take_short_turns() -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: TURN,
        sched_deadline: 0,
        sched_period: 0,
    };
    const THIS_THREAD: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;
    // SAFETY: the kernel reads `size` bytes from the pointer, which is the whole of `attributes`,
    // and keeps nothing of it.
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
    use super::take_short_turns;
    use rustix::process::{getpriority_process, setpriority_process};

    #[test]
    fn a_thread_that_takes_short_turns_stays_as_nice_as_it_was() {
        let thread = std::thread::spawn(|| {
            setpriority_process(None, 3).expect("a thread may be nicer");
            take_short_turns().expect("any thread may ask for it");
            getpriority_process(None)
        });
        assert_eq!(thread.join().expect("no panic"), Ok(3));
    }
}

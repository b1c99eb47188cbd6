//! Wall time, CPU time and allocations of a piece of work.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static COUNTED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// mimalloc for all contenders, with an allocation counter that is off while times are measured.
#[derive(Debug)]
pub(crate) struct Counting;

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe by nature; every call is passed on as it is"
)]
// SAFETY: every call is passed on to mimalloc unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { mimalloc::MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { mimalloc::MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if COUNTED.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { mimalloc::MiMalloc.realloc(pointer, layout, size) }
    }
}

/// Number of allocations during `work`, on all threads.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    COUNTED.store(true, Ordering::Relaxed);
    work();
    COUNTED.store(false, Ordering::Relaxed);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Wall time and CPU time, in nanoseconds per unit of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

/// Measures `units` units of work.
pub(crate) fn measure(units: u64, work: impl FnOnce()) -> Timing {
    let (start, cpu) = (Instant::now(), cpu_time());
    work();
    let (wall, cpu) = (start.elapsed(), cpu_time() - cpu);
    let each = |time: Duration| time.as_nanos() as f64 / units as f64;
    Timing {
        wall: each(wall),
        cpu: each(cpu),
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Largest share of stolen CPU time at which a round counts.
const MAX_STEAL: f64 = 0.01;
/// Attempts per round. The last one counts in any case.
const TRIES: usize = 3;

/// Measures a short round, and repeats it if the hypervisor gave the CPUs to other guests
/// meanwhile. Stolen time is not the contender's fault, and it rarely affects two contenders alike.
pub(crate) fn without_steal<T>(mut round: impl FnMut() -> T) -> T {
    for _ in 1..TRIES {
        let before = Ticks::now();
        let found = round();
        if before.stolen_since() <= MAX_STEAL {
            return found;
        }
    }
    round()
}

/// CPU time since the boot, in ticks.
#[derive(Debug, Default)]
struct Ticks {
    all: f64,
    stolen: f64,
}

impl Ticks {
    fn now() -> Ticks {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let numbers = line.split_whitespace().skip(1);
        let ticks: Vec<f64> = numbers.filter_map(|ticks| ticks.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal. The fields after these are
        // contained in the first two.
        Ticks {
            all: ticks.iter().take(8).sum(),
            stolen: ticks.get(7).copied().unwrap_or_default(),
        }
    }

    /// Share of the CPU time since then that was stolen.
    fn stolen_since(&self) -> f64 {
        let now = Ticks::now();
        (now.stolen - self.stolen) / (now.all - self.all).max(1.0)
    }
}

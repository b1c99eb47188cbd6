//! Memory that will be asked for soon.
//!
//! With a million jobs or ten thousand flows nearly every look waits for memory. Where it is known what comes next, it is asked
//! for before it is needed, so that the waits overlap with work and with each other (ADR 26).

use prefetch_index::prefetch_index;

/// Has the line of the cache in which this begins brought near, without waiting for it.
#[inline]
pub(crate) fn fetch<T>(what: &T) {
    prefetch_index(std::slice::from_ref(what), 0);
}

/// The same for one of a list, if it is there.
#[inline]
pub(crate) fn fetch_at<T>(list: &[T], at: u32) {
    if let Some(what) = list.get(at as usize) {
        fetch(what);
    }
}

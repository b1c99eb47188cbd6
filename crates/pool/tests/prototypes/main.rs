//! The pool as its applications will use it, each in about a hundred lines: what is awkward here is awkward there.

mod forward;
mod proxy;
mod truth;
mod walk;

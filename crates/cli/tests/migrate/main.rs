//! `headworks migrate`, run as a user runs it, and judged by what is not ours.

mod crashes;
mod support;
mod trees;

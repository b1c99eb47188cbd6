//! One module a command. Each takes its arguments and returns how it ended.

pub(crate) mod config;
pub(crate) mod sim;
pub(crate) mod tracker;
pub(crate) mod up;

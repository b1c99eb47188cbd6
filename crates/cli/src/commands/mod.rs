//! One module a command. Each takes its arguments and returns how it ended.

pub(crate) mod config;
pub(crate) mod migrate;
pub(crate) mod sim;
pub(crate) mod up;

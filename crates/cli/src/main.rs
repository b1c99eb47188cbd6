//! The one binary: parse, configure, wire, exit code.

fn main() {}

//! A fake application, local servers and curl.

#![allow(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod curl;
pub(crate) mod waterworks;

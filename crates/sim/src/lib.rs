//! The scheduling core under a virtual clock.

pub mod audit;
pub mod chaos;

//! One configuration for all applications, with the origin of every value.
//!
//! An application declares its section once with [`section!`](crate::section). A [`Schema`] holds
//! the known sections. [`Schema::load`] merges flag over environment over file over default and
//! returns a [`Config`], or every [`Problem`] found. Nothing here owns state: a `Config` is a
//! value, and [`reload`](crate::reload) publishes new ones.

mod de;
mod display;
mod files;
mod init;
mod json_schema;
mod layers;
mod node;
mod origin;
mod problem;
mod schema;
mod secret;
mod section;
mod sources;
#[cfg(test)]
mod tests;
mod units;

pub use display::DisplayValue;
pub use files::is_plain_yaml;
pub use origin::Origin;
pub use problem::{Problem, Problems, truncate_numbers};
pub use schema::{Config, Schema};
pub use secret::{Secret, non_empty_secret};
pub use section::{Key, Section, SectionSpec, ValidationError};
pub use sources::Sources;
pub use units::{
    Amount, bytes, format_duration, format_size, millis, minutes, parse_seconds, parse_size,
    seconds,
};

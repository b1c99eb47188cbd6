//! One configuration for all applications, with the origin of every value.
//!
//! An application declares its section once with [`section!`](crate::section). A [`Schema`] holds
//! the known sections. [`Schema::load`] merges flag over environment over file over default and
//! returns a [`Config`], or every [`Problem`] found. Nothing here owns state: a `Config` is a
//! value, and [`reload`](crate::reload) publishes new ones.

mod de;
mod files;
mod init;
mod layers;
mod node;
mod origin;
mod problem;
mod schema;
mod secret;
mod section;
mod shown;
mod sources;
#[cfg(test)]
mod tests;
mod units;

pub use files::is_shallow_yaml;
pub use origin::Origin;
pub use problem::{Problem, Problems, shortened};
pub use schema::{Config, Schema};
pub use secret::{Secret, given};
pub use section::{Key, Objection, Section, SectionSpec};
pub use shown::Shown;
pub use sources::Sources;
pub use units::{Amount, bytes, millis, minutes, seconds, show_duration, show_size};

//! What can be wrong with a scenario or a trace, said so that it can be put right.

use std::fmt;

/// A place in a file that a user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a simulation could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A file that cannot be read.
    #[error("{file}: cannot be read: {source}; check the path and its permissions")]
    Read {
        /// The file, as it was named.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that is not text.
    #[error("{place}: not UTF-8 text; save the file as UTF-8")]
    NotText {
        /// Where it stops being text.
        place: Place,
    },
    /// A scenario that is neither a file nor shipped.
    #[error("`{name}` is neither a file nor a scenario that is shipped; {way_out}")]
    NoSuchScenario {
        /// What was asked for.
        name: String,
        /// The nearest that is shipped, or all that are.
        way_out: String,
    },
    /// A file that is not TOML.
    #[error("{place}: not TOML: {problem}; see https://toml.io for how it is written")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser stumbled over.
        problem: String,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key `{key}`; {way_out}")]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key as it was written, with the tables it is in.
        key: String,
        /// The nearest right one, or all that there are.
        way_out: String,
    },
    /// A key that is missing, or has a value of the wrong type, or one that cannot work.
    #[error("{place}: `{key}`: {problem}")]
    Value {
        /// Where.
        place: Place,
        /// The key, with the tables it is in.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A trace without a single request.
    #[error(
        "{file}: there is no request in it; write lines of arrival time, class, flow, cost, as in 0.25,3,tenant-1,800"
    )]
    EmptyTrace {
        /// The file, as it was named.
        file: String,
    },
    /// Loads that no run would come to the end of.
    #[error(
        "about {jobs:.1e} jobs would be handed in, most of them by the load `{most}`, and a run may take {allowed} steps; \
         lower its rate, shorten `duration`, or allow more with `max_steps`"
    )]
    TooLarge {
        /// Jobs of all loads.
        jobs: f64,
        /// The load that has most of them.
        most: String,
        /// Steps that a run may take.
        allowed: u64,
    },
    /// A run that took all steps that it may take.
    #[error(
        "stopped after {steps} steps, with {} simulated; give far sides a longer latency or clients a time to think, shorten \
         `duration`, or allow more with `max_steps`",
        crate::report::seconds(simulated.as_secs_f64())
    )]
    TooLong {
        /// What it did.
        steps: u64,
        /// How far it came.
        simulated: std::time::Duration,
    },
    /// A run that would not fit into memory.
    #[error(
        "stopped with {live} requests waiting, running or about to come back at once, and {} simulated; give far sides a shorter latency, \
         clients fewer tries, or the loads a lower rate",
        crate::report::seconds(simulated.as_secs_f64())
    )]
    TooMany {
        /// How many.
        live: u64,
        /// How far it came.
        simulated: std::time::Duration,
    },
    /// A line of a trace that is not a request.
    #[error("{place}: {field}: {problem}")]
    Trace {
        /// Where.
        place: Place,
        /// The field of the line.
        field: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

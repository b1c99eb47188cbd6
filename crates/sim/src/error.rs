//! Errors in scenarios and traces, with the place and the remedy.

use std::fmt;

/// A place in a user's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The reason why a simulation could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}; check the path and its permissions")]
    Read {
        /// The file, as it was named.
        file: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not text.
    #[error("{place}: not UTF-8 text; save the file as UTF-8")]
    NotText {
        /// The first position that is not text.
        place: FileLocation,
    },
    /// The scenario is neither a file nor shipped.
    #[error("`{name}` is neither a file nor a shipped scenario; {remedy}")]
    NoSuchScenario {
        /// The requested name.
        name: String,
        /// The closest shipped name, or all of them.
        remedy: String,
    },
    /// The file is not TOML.
    #[error("{place}: invalid TOML: {problem}; see https://toml.io for the syntax")]
    Syntax {
        /// The place.
        place: FileLocation,
        /// The error of the parser.
        problem: String,
    },
    /// The key does not exist.
    #[error("{place}: unknown key `{key}`; {remedy}")]
    UnknownKey {
        /// The place.
        place: FileLocation,
        /// The key as written, with its tables.
        key: String,
        /// The closest valid key, or all of them.
        remedy: String,
    },
    /// A key is missing, or its value has the wrong type or is invalid.
    #[error("{place}: `{key}`: {problem}")]
    Value {
        /// The place.
        place: FileLocation,
        /// The key, with its tables.
        key: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// The trace has no requests.
    #[error(
        "{file}: no requests; write lines of arrival time, class, flow, cost, such as 0.25,3,tenant-1,800"
    )]
    EmptyTrace {
        /// The file, as it was named.
        file: String,
    },
    /// The loads are too large to be simulated in the permitted steps.
    #[error(
        "about {jobs:.1e} jobs would be submitted, most of them by the load `{most}`, but a run is limited to {allowed} steps; \
         lower its rate, shorten `duration`, or allow more with `max_steps`"
    )]
    LoadTooLarge {
        /// The jobs of all loads.
        jobs: f64,
        /// The load with the most jobs.
        most: String,
        /// The permitted steps.
        allowed: u64,
    },
    /// The run exceeded the permitted steps.
    #[error(
        "stopped after {steps} steps, with {} simulated; give targets a longer latency or clients a think time, shorten \
         `duration`, or allow more with `max_steps`",
        crate::report::seconds(simulated.as_secs_f64())
    )]
    StepLimit {
        /// The steps taken.
        steps: u64,
        /// The time simulated.
        simulated: std::time::Duration,
    },
    /// The run would exceed the memory limit.
    #[error(
        "stopped with {live} requests waiting, running or about to return, and {} simulated; give targets a shorter latency, \
         clients fewer tries, or the loads a lower rate",
        crate::report::seconds(simulated.as_secs_f64())
    )]
    MemoryLimit {
        /// The live requests.
        live: u64,
        /// The time simulated.
        simulated: std::time::Duration,
    },
    /// A line of a trace is not a request.
    #[error("{place}: {field}: {problem}")]
    Trace {
        /// The place.
        place: FileLocation,
        /// The field of the line.
        field: &'static str,
        /// The problem and the remedy.
        problem: String,
    },
}

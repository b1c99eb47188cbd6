//! What a scenario expects: a number of the report, and the limits it must keep.

use std::fmt;

/// A number of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Metric {
    /// Requests that clients wanted served.
    Requests,
    /// Times that a job was handed in, returns included.
    Offered,
    /// Jobs admitted.
    Admitted,
    /// Admitted for each one offered.
    AdmittedShare,
    /// Jobs refused.
    Refused,
    /// Jobs that gave up their place.
    Shed,
    /// Jobs that did not start in time.
    Expired,
    /// Jobs that failed.
    Failed,
    /// Jobs done.
    Done,
    /// Requests done for each one wanted.
    DoneShare,
    /// Leases given out.
    Granted,
    /// Leases given out because of age.
    Aged,
    /// The part of all cost that went here.
    Share,
    /// How far that is from its weight's part, relative to it.
    ShareDeviation,
    /// Half of all waits are at most this, in seconds.
    WaitP50,
    /// Nine in ten waits are at most this, in seconds.
    WaitP90,
    /// All but one in a hundred waits are at most this, in seconds.
    WaitP99,
    /// Visits of clients that came back when they were told to.
    Returned,
    /// Admitted for each of those visits.
    ReadmittedShare,
    /// Requests whose client gave up.
    GivenUp,
    /// Calls that failed.
    Failures,
    /// Calls answered with "too many requests".
    Overloads,
    /// Times that it was suspended.
    Suspensions,
    /// The part of the time for which it was not active.
    HeldShare,
    /// 1 if every round closed and nothing is pending, else 0.
    Completed,
    /// Nodes that ended well.
    Nodes,
    /// Rounds that the leader was ahead at most.
    MaxLead,
    /// Passes that were needed.
    Passes,
}

impl Metric {
    /// Whether it can be measured of that.
    pub(crate) fn applies(self, scope: &Scope) -> bool {
        use Metric as M;
        match scope {
            Scope::All => matches!(
                self,
                M::Requests
                    | M::Offered
                    | M::Admitted
                    | M::AdmittedShare
                    | M::Refused
                    | M::Shed
                    | M::Expired
                    | M::Failed
                    | M::Done
                    | M::DoneShare
                    | M::Granted
                    | M::Aged
                    | M::WaitP50
                    | M::WaitP90
                    | M::WaitP99
            ),
            Scope::Class(_) => {
                self.applies(&Scope::All) || matches!(self, M::Share | M::ShareDeviation)
            }
            Scope::Flow(_) => matches!(
                self,
                M::Offered
                    | M::Admitted
                    | M::AdmittedShare
                    | M::Refused
                    | M::Shed
                    | M::Done
                    | M::Granted
                    | M::Share
                    | M::ShareDeviation
            ),
            Scope::Load(_) => matches!(
                self,
                M::Requests
                    | M::Done
                    | M::DoneShare
                    | M::Returned
                    | M::ReadmittedShare
                    | M::GivenUp
            ),
            Scope::Target(_) => matches!(
                self,
                M::Granted | M::Failures | M::Overloads | M::Suspensions | M::HeldShare
            ),
            Scope::Side(_) => {
                matches!(
                    self,
                    M::Completed | M::Nodes | M::MaxLead | M::Passes | M::Failed
                )
            }
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde::Serialize::serialize(self, f)
    }
}

/// What a number is measured of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// One class, or every one that was offered something.
    Class(Option<usize>),
    /// One flow, or every one.
    Flow(Option<String>),
    Load(String),
    /// A group of targets, or one of them; each of them must keep the limits.
    Target(String),
    Side(&'static str),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::All => f.write_str("all"),
            Scope::Class(None) => f.write_str("every class"),
            Scope::Class(Some(class)) => write!(f, "class {class}"),
            Scope::Flow(None) => f.write_str("every flow"),
            Scope::Flow(Some(flow)) => write!(f, "flow {flow}"),
            Scope::Load(load) => write!(f, "load {load}"),
            Scope::Target(target) => write!(f, "target {target}"),
            Scope::Side(side) => write!(f, "the {side}"),
        }
    }
}

/// One expectation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expect {
    pub(crate) metric: Metric,
    pub(crate) scope: Scope,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
}

impl Expect {
    pub(crate) fn is_met(&self, measured: f64) -> bool {
        self.at_least.is_none_or(|least| measured >= least)
            && self.at_most.is_none_or(|most| measured <= most)
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.metric, self.scope)?;
        if let Some(least) = self.at_least {
            write!(f, " at least {least}")?;
        }
        if let Some(most) = self.at_most {
            write!(f, " at most {most}")?;
        }
        Ok(())
    }
}

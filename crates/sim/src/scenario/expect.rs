//! Expectations: a metric of the report and its limits.

use std::fmt;

/// A metric of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Metric {
    /// Requests by clients.
    Requests,
    /// Submissions, including those of returning clients.
    Offered,
    /// Jobs admitted.
    Admitted,
    /// Ratio of admitted to offered.
    AdmittedShare,
    /// Jobs refused.
    Refused,
    /// Jobs that were shed.
    Shed,
    /// Jobs that expired before they started.
    Expired,
    /// Jobs that failed.
    Failed,
    /// Jobs done.
    Done,
    /// Ratio of completed to all requests.
    DoneShare,
    /// Leases granted.
    Granted,
    /// Leases granted because of aging.
    Aged,
    /// Part of the total cost.
    Share,
    /// Deviation from the share of its weight, relative to that share.
    ShareDeviation,
    /// p50 wait, in seconds.
    WaitP50,
    /// p90 wait, in seconds.
    WaitP90,
    /// p99 wait, in seconds.
    WaitP99,
    /// Visits of clients that came back at the time they were told.
    Returned,
    /// Ratio of those visits that were admitted.
    ReadmittedShare,
    /// Requests abandoned by their client.
    GivenUp,
    /// Calls that failed.
    Failures,
    /// Calls answered with "too many requests".
    Overloads,
    /// Number of suspensions.
    Suspensions,
    /// Part of the time in which the target was not active.
    HeldShare,
    /// 1 if every round closed and nothing is pending, else 0.
    Completed,
    /// Nodes that succeeded.
    Nodes,
    /// Maximum rounds by which the leader was ahead.
    MaxLead,
    /// Passes needed.
    Passes,
    /// Least part of the limit that a fleet used in any 10 s.
    LeastUse,
    /// Largest part of the limit that a fleet used in any 10 s.
    MostUse,
    /// Calls that a fleet started while a limit was exceeded.
    CallsOver,
}

impl Metric {
    /// Whether the metric applies to the scope.
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
                    | M::LeastUse
                    | M::MostUse
                    | M::CallsOver
            ),
            Scope::Class(_) => {
                let of_fleet = matches!(self, M::LeastUse | M::MostUse | M::CallsOver);
                !of_fleet && self.applies(&Scope::All)
                    || matches!(self, M::Share | M::ShareDeviation)
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

/// The item that a metric is measured of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// One class, or every class with offered jobs.
    Class(Option<usize>),
    /// One flow, or every flow.
    Flow(Option<String>),
    Load(String),
    /// A group of targets or one of them; each must be within the limits.
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

//! Metric families: name, kind and help text.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A value that only increases.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution of observations.
    Histogram,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric family. In a constant, an invalid name is a compile error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
}

impl Family {
    /// A counter. By convention its name ends in `_total`; no suffix is added.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Family {
        Family::new(name, help, Kind::Counter)
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Family {
        Family::new(name, help, Kind::Gauge)
    }

    /// A histogram.
    #[must_use]
    pub const fn histogram(name: &'static str, help: &'static str) -> Family {
        Family::new(name, help, Kind::Histogram)
    }

    const fn new(name: &'static str, help: &'static str, kind: Kind) -> Family {
        assert!(is_name(name), "a metric is called [a-zA-Z_:][a-zA-Z0-9_:]*");
        Family { name, help, kind }
    }

    /// The metric's name, exactly as it is exposed.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let letter = byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
        if !letter && (at == 0 || !byte.is_ascii_digit()) {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names() {
        assert!(is_name("queue_depth") && is_name("a:b9"));
        assert!(!is_name("") && !is_name("9a") && !is_name("a-b") && !is_name("a b"));
    }
}

//! Exit codes that scripts may rely on.

use std::process::ExitCode;

/// The outcome of a command, as an exit code.
///
/// ```
/// use headworks_service::exit::Exit;
/// assert_eq!(Exit::Usage.code(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exit {
    /// 0: success.
    Done,
    /// 1: failure.
    Failed,
    /// 2: usage error: a flag, a configuration or a scenario is invalid.
    Usage,
    /// 3: finished, but parts of the work failed.
    FinishedWithFailures,
    /// 4: finished, and the comparison found differences.
    DifferencesFound,
    /// 130: stopped by a signal, as a shell reports it. Run again, the command resumes.
    Interrupted,
}

impl Exit {
    /// The numeric exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::FinishedWithFailures => 3,
            Exit::DifferencesFound => 4,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn codes_are_stable() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::FinishedWithFailures,
            Exit::DifferencesFound,
        ];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4]);
    }
}

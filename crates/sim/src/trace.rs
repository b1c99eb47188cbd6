//! Recorded loads: CSV lines of arrival time in seconds, class, flow and cost.
//!
//! They are read line by line during the replay, so that a trace may be larger than memory. Only
//! the names of its flows are kept.

use crate::error::{FileLocation, SimError};
use csv::{ByteRecord, Reader, ReaderBuilder, Trim};
use headworks_core::{Class, Time};
use std::collections::HashMap;
use std::io::{self, Read};

/// A recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Time,
    pub(crate) class: Class,
    pub(crate) flow: u32,
    pub(crate) cost: u64,
}

pub(crate) struct Trace<'a> {
    file: String,
    reader: Reader<LineLimitReader<'a>>,
    record: ByteRecord,
    first: bool,
    line: Option<Line>,
    /// The arrival time of the first request. The run starts there, so that times may be
    /// timestamps.
    start: Option<Time>,
    flows: Vec<String>,
    numbers: HashMap<Vec<u8>, u32>,
}

/// A reader that limits the length of lines: a file without line ends would fill memory.
struct LineLimitReader<'a> {
    lines: Box<dyn Read + 'a>,
    /// Bytes since the last line end outside quotes.
    long: usize,
    last: u8,
    quoted: bool,
    comment: bool,
}

const LONGEST_LINE: usize = 1 << 20;

impl Read for LineLimitReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.lines.read(into)?;
        for byte in &into[..count] {
            self.track(*byte);
        }
        if self.long > LONGEST_LINE {
            let words = "a line is longer than a megabyte; is a quote not closed?";
            return Err(io::Error::other(words));
        }
        Ok(count)
    }
}

impl LineLimitReader<'_> {
    fn track(&mut self, byte: u8) {
        self.long += 1;
        // A quote counts at the start of a field, as the next quote after that, and right after a
        // closing one.
        let mut last = byte;
        match byte {
            b'"' if self.quoted => self.quoted = false,
            b'"' if !self.comment && matches!(self.last, b'\n' | b',' | b'"') => self.quoted = true,
            b'"' => last = 0,
            _ if self.quoted => {}
            b'\n' => (self.long, self.comment) = (0, false),
            b'#' if self.last == b'\n' => self.comment = true,
            _ => {}
        }
        self.last = last;
    }
}

/// Maximum cost of a job, as in scenarios, so that the sum over millions of jobs does not overflow.
const MAX_COST: u64 = 1_000_000_000_000;

const FIELDS: [&str; 4] = ["arrival time", "class", "flow", "cost"];

/// Maximum time in seconds: 1,000 years, which covers Unix timestamps.
const LATEST: f64 = 3.2e10;

impl<'a> Trace<'a> {
    /// A trace from `lines`. Flows that the scenario names keep their numbers.
    pub(crate) fn new(file: String, lines: Box<dyn Read + 'a>, flows: &[String]) -> Self {
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .comment(Some(b'#'))
            .buffer_capacity(1 << 16)
            .from_reader(LineLimitReader {
                lines,
                long: 0,
                last: b'\n',
                quoted: false,
                comment: false,
            });
        Trace {
            file,
            reader,
            record: ByteRecord::new(),
            first: true,
            line: None,
            start: None,
            numbers: (0..)
                .zip(flows)
                .map(|(number, flow)| (flow.clone().into_bytes(), number))
                .collect(),
            flows: flows.to_vec(),
        }
    }

    /// The line that was read last.
    pub(crate) fn line(&self) -> Option<Line> {
        self.line
    }

    pub(crate) fn into_flows(self) -> Vec<String> {
        self.flows
    }

    /// Reads the next line; returns the time of its request, or `None` at the end.
    pub(crate) fn advance(&mut self, classes: &[String]) -> Result<Option<Time>, SimError> {
        loop {
            let more = self.reader.read_byte_record(&mut self.record);
            match more {
                Ok(false) if self.start.is_none() => {
                    let file = self.file.clone();
                    return Err(SimError::EmptyTrace { file });
                }
                Ok(false) => {
                    self.line = None;
                    return Ok(None);
                }
                Ok(true) => {}
                Err(error) => return Err(self.unreadable(error)),
            }
            if std::mem::take(&mut self.first) && self.is_header() {
                continue;
            }
            let line = self.parse(classes)?;
            if let Some(before) = self.line
                && line.at < before.at
            {
                let problem = format!(
                    "{} is earlier than {} in the previous line; sort the file by its first column",
                    line.at.as_secs_f64(),
                    before.at.as_secs_f64()
                );
                return Err(self.error(0, problem));
            }
            self.line = Some(line);
            let start = *self.start.get_or_insert(line.at);
            return Ok(Some(Time::ZERO + line.at.since(start)));
        }
    }

    /// Whether the first line names the columns. Any other text in place of a number is an error,
    /// not a header.
    fn is_header(&self) -> bool {
        let field = |at: usize| {
            let field = self.record.get(at).unwrap_or_default();
            std::str::from_utf8(field)
                .unwrap_or_default()
                .to_lowercase()
        };
        field(0).contains("time") || field(0).contains("arriv") || field(1).contains("class")
    }

    fn unreadable(&self, error: csv::Error) -> SimError {
        match error.into_kind() {
            csv::ErrorKind::Io(source) => SimError::Read {
                file: self.file.clone(),
                source,
            },
            _ => self.error(
                0,
                "the line cannot be read as CSV; check its quotes".to_owned(),
            ),
        }
    }

    fn parse(&mut self, classes: &[String]) -> Result<Line, SimError> {
        if self.record.len() != FIELDS.len() {
            let problem = format!(
                "{} fields, not 4; write arrival time, class, flow, cost, as in 0.25,3,tenant-1,800",
                self.record.len()
            );
            return Err(self.error(self.record.len().min(3), problem));
        }
        let at = self.time()?;
        let class = self.class(classes)?;
        let cost = self.cost()?;
        let flow = self.flow()?;
        Ok(Line {
            at,
            class,
            flow,
            cost,
        })
    }

    fn text(&self, field: usize) -> Result<&str, SimError> {
        let bytes = self.record.get(field).unwrap_or_default();
        std::str::from_utf8(bytes)
            .map_err(|_| self.error(field, "is not UTF-8; save the file as UTF-8".to_owned()))
    }

    fn time(&self) -> Result<Time, SimError> {
        let text = self.text(0)?;
        let seconds = text.parse::<f64>().ok();
        match seconds.filter(|seconds| (0.0..=LATEST).contains(seconds)) {
            Some(seconds) => Ok(Time::from_nanos((seconds * 1e9).round() as u64)),
            None => Err(self.error(
                0,
                format!("`{text}` is not a time; write seconds, as in 12.5 or 1700000000.25"),
            )),
        }
    }

    fn class(&self, classes: &[String]) -> Result<Class, SimError> {
        let text = self.text(1)?;
        let index = match text.parse::<usize>() {
            Ok(number) => Some(number).filter(|number| *number < classes.len()),
            Err(_) => classes.iter().position(|class| class == text),
        };
        index.map(|index| Class(index as u8)).ok_or_else(|| {
            let last = classes.len() - 1;
            self.error(
                1,
                format!("unknown class `{text}`; write 0 to {last}, or configure more classes"),
            )
        })
    }

    fn cost(&self) -> Result<u64, SimError> {
        let text = self.text(3)?;
        match text.parse::<u64>() {
            Ok(cost @ 1..=MAX_COST) => Ok(cost),
            _ => Err(self.error(
                3,
                format!("`{text}` is not a cost; write a whole number from 1 to {MAX_COST}"),
            )),
        }
    }

    fn flow(&mut self) -> Result<u32, SimError> {
        let name = self.record.get(2).unwrap_or_default();
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if let Some(byte) = name.iter().find(|byte| byte.is_ascii_control()) {
            let shown = byte.escape_ascii();
            return Err(self.error(
                2,
                format!("contains a control character ({shown}); remove it"),
            ));
        }
        let number = self.flows.len() as u32;
        self.flows.push(String::from_utf8_lossy(name).into_owned());
        self.numbers.insert(name.to_vec(), number);
        Ok(number)
    }

    fn error(&self, field: usize, problem: String) -> SimError {
        let line = self.record.position().map_or(1, csv::Position::line);
        SimError::Trace {
            place: FileLocation {
                file: self.file.clone(),
                line,
                column: field as u64 + 1,
            },
            field: FIELDS[field.min(3)],
            problem,
        }
    }
}
